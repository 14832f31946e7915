"""Thresholds against trying all there are."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from modeling.answers.thresholds import halves_drawn, halves_predicted, tune_label_thresholds


def drawn(seed, count=60, labels=4, digits=8):
    draw = np.random.default_rng(seed)
    gold = draw.random([count, labels]) < [0.5, 0.2, 0.05, 0.9]
    values = np.clip(0.3 * gold + 0.6 * draw.random([count, labels]), 0, 1)
    return values.round(digits).astype(np.float32), gold


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("digits", [1, 8])  # many equal probabilities, and none
def test_best_of_all_thresholds(seed, digits):
    values, gold = drawn(seed, digits=digits)
    thresholds = tune_label_thresholds(values, gold)
    assert thresholds.dtype == np.float32
    for column, right, threshold in zip(values.T, gold.T, thresholds, strict=True):

        def score(t, column=column, right=right):
            return f1_score(right, column >= t, zero_division=0)

        tried = np.unique([0.0, 0.5, *column, *(column + 1e-5)])
        best = max(map(score, tried))
        assert score(threshold) == pytest.approx(best, abs=1e-12)
        # None that is nearer to 0.5 by more than the way to the next example is as good.
        if score(0.5) == best:
            assert threshold == 0.5
        equal = [t for t in tried if score(t) == best]
        gaps = np.diff(np.unique([0, *column])).max() + 1e-6
        assert abs(threshold - 0.5) <= min(abs(t - 0.5) for t in equal) + gaps


def test_ties_go_towards_a_half():
    gold = np.array([[1], [0], [1]])
    # 0.6 and 0.2 are equally good (F1 0.8 predicting all; the first alone 0.67): the only best one.
    assert tune_label_thresholds([[0.9], [0.6], [0.2]], gold)[0] == np.float32(0.1)
    # Anything up to 0.7 predicts the right ones and nothing else.
    assert tune_label_thresholds([[0.9], [0.1], [0.7]], gold)[0] == 0.5
    assert tune_label_thresholds([[0.4], [0.1], [0.3]], gold)[0] == pytest.approx(0.2)


def test_labels_without_examples_keep_a_half():
    values = np.full([5, 2], 0.01, np.float32)
    gold = np.zeros([5, 2])
    gold[0, 1] = 1
    assert tune_label_thresholds(values, gold)[0] == 0.5
    assert tune_label_thresholds(values[:0], gold[:0]).tolist() == [0.5, 0.5]


def test_neighbouring_floats_and_no_numbers():
    low = np.float32(0.75)
    high = np.nextafter(low, np.float32(1))
    threshold = tune_label_thresholds([[low], [high]], [[0], [1]])[0]
    assert low < threshold <= high
    assert np.isfinite(tune_label_thresholds([[np.nan], [0.8]], [[1], [1]])).all()


def test_halves_never_see_themselves():
    values, gold = drawn(1)
    predicted = halves_predicted(values, gold)
    for half, other in halves_drawn(60):
        assert sorted([*half, *other]) == list(range(60)) and len(half) == 30
        thresholds = tune_label_thresholds(values[other], gold[other])
        np.testing.assert_array_equal(predicted[half], values[half] >= thresholds)
    assert halves_predicted(values[:1], gold[:1]).shape == (1, 4)
