"""Intervals against SciPy's and against drawing examples one by one."""

import numpy as np
import pytest
from scipy import stats

from modeling.training.reports.intervals import (
    bootstrap_interval,
    drawn_interval,
    wilson_interval,
)


@pytest.mark.parametrize("right, count", [(0, 1), (1, 1), (3, 10), (872, 872), (0, 50), (41, 97)])
def test_wilson(right, count):
    expected = stats.binomtest(right, count).proportion_ci(0.95, "wilson")
    assert wilson_interval(right, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_of_nothing():
    with pytest.raises(ValueError, match="no examples"):
        wilson_interval(0, 0)


def mean(sums):
    return sums[:, 1] / sums[:, 0]


def drawn_one_by_one(values, resamples=20_000):
    draw = np.random.default_rng(1)
    means = [draw.choice(values, len(values)).mean() for _ in range(resamples)]
    return np.percentile(means, [2.5, 97.5])


def test_bootstrap_is_that_of_drawing_examples():
    values = np.random.default_rng(0).normal(size=60)
    parts = np.stack([np.ones(60), values], 1)
    interval = bootstrap_interval(mean, parts)
    assert interval == pytest.approx(drawn_one_by_one(values), abs=0.03)
    assert interval == bootstrap_interval(mean, parts)  # the same seed
    assert interval != bootstrap_interval(mean, parts, seed=1)


def test_examples_that_add_the_same_are_counted():
    """0.3 of 50 are right: about what the binomial distribution says."""
    by_count = bootstrap_interval(mean, np.array([[1, 0], [1, 1]]), np.array([35, 15]))
    one_by_one = np.stack([np.ones(50), np.arange(50) < 15], 1)
    assert by_count == bootstrap_interval(mean, one_by_one)
    assert by_count == pytest.approx(stats.binom.ppf([0.025, 0.975], 50, 0.3) / 50, abs=0.02)


def test_undefined_scores_do_not_count():
    parts = np.array([[1.0, 2.0], [1.0, 4.0]])

    def sometimes(sums):
        return np.where(sums[:, 1] == 6, np.nan, mean(sums))

    assert bootstrap_interval(sometimes, parts) == (2.0, 4.0)
    assert np.isnan(bootstrap_interval(lambda sums: sums[:, 0] * np.nan, parts)).all()


def test_drawn_scores_are_the_same_bootstrap():
    values = np.random.default_rng(2).normal(size=80)
    interval = drawn_interval(lambda drawn: float(values[drawn].mean()), 80)
    assert interval == pytest.approx(drawn_one_by_one(values), abs=0.03)
