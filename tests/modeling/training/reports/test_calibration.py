"""Reliability against a loop over the bins."""

import math

import numpy as np
import pytest

from modeling.training.reports.calibration import BINS, measure_reliability
from tests.fine_tuning.calibration_reference import expected_error


@pytest.mark.parametrize("bins", [1, 10, BINS])
def test_error_is_that_of_the_definition(bins):
    draw = np.random.default_rng(0)
    confidence = np.concatenate([draw.random(500), [0.0, 1.0, 0.1, 0.5, 0.3]])
    right = draw.random(505) < confidence**2
    measured = measure_reliability(confidence, right, bins)
    assert measured.counts.sum() == 505
    assert measured.expected_error == pytest.approx(
        expected_error(confidence, right, bins), abs=1e-12
    )


def test_a_perfect_model_and_a_boaster():
    assert measure_reliability([1.0, 1.0], [1, 1]).expected_error == 0
    assert measure_reliability([1.0, 1.0], [0, 0]).expected_error == 1
    assert measure_reliability([math.nan, math.inf], [1, 1]).expected_error == 1


def test_without_answers_there_is_no_error():
    assert math.isnan(measure_reliability([], []).expected_error)
