"""Calibrations against SciPy's minimum, and the graph against the formula."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, special

from modeling.answers.confidence import (
    LEAST_TEMPERATURE,
    MOST_TEMPERATURE,
    PlattCalibration,
    calibrated_confidence,
    fit_platt_calibration,
    fit_temperature,
)


def fitted_by_scipy(log_odds, right):
    targets = np.where(right, (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2))

    def loss(weights):
        p = special.log_expit(weights[0] * log_odds + weights[1])
        q = special.log_expit(-weights[0] * log_odds - weights[1])
        return -(targets * p + (1 - targets) * q).sum()

    return optimize.minimize(
        loss,
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000},
    ).x


@pytest.mark.parametrize("slope, intercept", [(0.4, -1.0), (1.0, 0.0), (2.5, 0.7)])
def test_fit_is_the_likeliest(slope, intercept):
    draw = np.random.default_rng(0)
    log_odds = draw.normal(0, 3, 800)
    right = draw.random(800) < special.expit(slope * log_odds + intercept)
    fitted = fit_platt_calibration(log_odds, right)
    assert fitted == pytest.approx(fitted_by_scipy(log_odds, right), abs=1e-5)
    assert fitted == pytest.approx((slope, intercept), abs=0.4)
    np.testing.assert_allclose(
        fitted.of(log_odds), special.expit(fitted.slope * log_odds + fitted.intercept), rtol=1e-12
    )


@pytest.mark.parametrize("right", [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1]])
def test_fit_is_finite_where_likelihood_has_no_top(right):
    log_odds = np.array([-30.0, -1.0, 2.0, 30.0])
    fitted = fit_platt_calibration(log_odds, right)
    assert np.isfinite(fitted).all()
    assert fitted.of(log_odds).mean() == pytest.approx(
        np.where(right, (sum(right) + 1) / (sum(right) + 2), 1 / (6 - sum(right))).mean(), abs=1e-6
    )


@pytest.mark.parametrize(
    ("log_odds", "right"),
    [([30.0] * 10, [1] * 3 + [0] * 7), ([-30, 30, 30, -30], [0, 1, 1, 0]), ([-30, 30], [1, 0])],
)
def test_odds_without_bounds(log_odds, right):
    """As of a single answer, which nothing else competes with: the loss has no slope there."""
    fitted = fit_platt_calibration(log_odds, right)
    wanted = fitted_by_scipy(np.array(log_odds, float), np.array(right) > 0)
    np.testing.assert_allclose(
        fitted.of(log_odds), PlattCalibration(*wanted).of(log_odds), atol=1e-6
    )


def test_no_answers():
    assert fit_platt_calibration([], []) == PlattCalibration()


def test_odds_that_are_all_alike():
    fitted = fit_platt_calibration(np.full(10, 2.0), np.arange(10) < 3)
    targets = (3 * 4 / 5 + 7 / 9) / 10
    assert fitted.of(2.0) == pytest.approx(targets, abs=1e-9)
    assert np.isfinite(fit_platt_calibration([], [])).all()


def test_graph_is_the_formula():
    logits = np.array([[3.0, 1.0, -1e9], [0.5, 2.0, 1.0], [4.0, -1e9, -1e9]], np.float32)
    given = np.array([0, 2, 0], np.int32)
    odds = [3 - 1, 1 - np.logaddexp(0.5, 2), 30]
    for calibration in (PlattCalibration(), PlattCalibration(0.3, -0.9)):
        graph = tf.function(lambda *inputs, of=calibration: calibrated_confidence(*inputs, of))
        got = graph(tf.constant(logits), tf.constant(given))
        np.testing.assert_allclose(got, calibration.of(odds), atol=1e-6)
    shares = special.softmax(logits.astype(np.float64), 1)
    np.testing.assert_allclose(PlattCalibration().of(odds), shares[range(3), given], atol=1e-6)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_temperature_is_the_likeliest(temperature, classes):
    draw = np.random.default_rng(classes)
    logits = draw.normal(0, 3, [2000, classes])
    shares = special.softmax(logits / temperature, 1)
    labels = (shares.cumsum(1) < draw.random([2000, 1])).sum(1).clip(0, classes - 1)

    def loss(inverse):
        return -special.log_softmax(inverse * logits, 1)[np.arange(2000), labels].sum()

    bounds = 1 / MOST_TEMPERATURE, 1 / LEAST_TEMPERATURE
    best = optimize.minimize_scalar(loss, bounds=bounds, options={"xatol": 1e-10}).x
    fitted = fit_temperature(logits, labels)
    assert fitted == pytest.approx(1 / best, rel=1e-6)
    assert fitted == pytest.approx(temperature, rel=0.1)
    # What all logits of an example have in common is of no account, nor is a choice that isn't.
    shifted = np.hstack([logits + draw.normal(0, 9, [2000, 1]), np.full([2000, 1], -1e9)])
    assert fit_temperature(shifted, labels) == pytest.approx(fitted, rel=1e-9)


def test_temperature_where_likelihood_has_no_top():
    logits = np.array([[2.0, 0, 1], [0, 0.5, 0.1], [-1, 3, 3.5]], np.float32)
    right = logits.argmax(1)
    assert fit_temperature(logits, right) == pytest.approx(LEAST_TEMPERATURE)
    assert fit_temperature(logits, logits.argmin(1)) == pytest.approx(MOST_TEMPERATURE)
    assert fit_temperature(np.full([4, 3], 2.0), [0, 1, 2, 0]) == 1
    assert fit_temperature(np.zeros([0, 3]), []) == 1
    # Of examples that are all alike 70 % are right.
    alike = fit_temperature(np.tile([1.0, -1.0], [10, 1]), np.arange(10) >= 7)
    assert special.expit(2 / alike) == pytest.approx(0.7, abs=1e-12)
    endless = np.vstack([np.tile([1.0, -1.0], [10, 1]), [[np.nan, 1], [np.inf, 0]]])
    assert fit_temperature(endless, np.arange(12) >= 7) == alike
