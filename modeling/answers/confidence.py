"""The probability that an answer is right, from what the model gives it and who was judged right.

Among the n best answers to a question the model's probabilities add up to 1, whether or not one of
them is right, so that they aren't how often such an answer is. Two numbers, fitted on answers that
were judged, make that of their odds (Platt, "Probabilistic outputs for support vector machines",
1999). Of classes one is right, and one number does: the temperature (Guo et al., "On calibration
of modern neural networks", 2017).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

MOST_LOG_ODDS = 30.0
"""Log odds are cut there, to either side; beyond it float64 can't tell a probability from 1."""
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.1, 10.0
_MOST_STEPS = 100


class PlattCalibration(NamedTuple):
    """1 / (1 + exp(-(slope · log odds + intercept))); as it is made, the odds' own probability."""

    slope: float = 1.0
    intercept: float = 0.0

    def of(self, log_odds) -> np.ndarray:
        """Probabilities, float64 of the shape of `log_odds`."""
        return 1 / (1 + np.exp(-(self.slope * np.asarray(log_odds, np.float64) + self.intercept)))


def fit_platt_calibration(log_odds, right) -> PlattCalibration:
    """The likeliest calibration, by Newton's method in float64.

    As Platt does, it begins at the share of right answers, and is fitted to (r + 1) / (r + 2) and
    1 / (w + 2) in place of 1 and 0, of r right and w wrong answers; so it is finite where all are
    right, or the odds tell right from wrong. Without answers it is the odds' own probability.

    Args:
        log_odds: float [N], each from -MOST_LOG_ODDS to MOST_LOG_ODDS.
        right: [N], 0 or 1, whether the answer is right.
    """
    odds, right = np.asarray(log_odds, np.float64), np.asarray(right) > 0
    targets = np.where(right, (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2))
    inputs = np.stack([odds, np.ones_like(odds)], 1)

    def loss(weights: np.ndarray) -> float:
        logits = inputs @ weights
        return float((np.logaddexp(0, logits) - targets * logits).sum())

    if not len(odds):
        return PlattCalibration()
    # From a slope of 1 a step would be endless where all odds are large: there it is flat.
    weights = np.array([0.0, np.log((right.sum() + 1) / ((~right).sum() + 1))])
    for _ in range(_MOST_STEPS):
        probabilities = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (probabilities - targets)
        curvature = (inputs.T * (probabilities * (1 - probabilities))) @ inputs
        # Of odds that are all alike the two numbers aren't determined: the least step of all.
        step = np.linalg.pinv(curvature, hermitian=True) @ gradient
        size, before = 1.0, loss(weights)
        while size > 1e-10 and loss(weights - size * step) > before:
            size /= 2
        if loss(weights - size * step) > before:
            break
        weights = weights - size * step
        if np.abs(size * step).max(initial=0) < 1e-12:
            break
    return PlattCalibration(*map(float, weights))


def fit_temperature(logits, label_ids) -> float:
    """The T with which softmax(logits / T) makes the labels likeliest, to some 15 digits.

    The likelihood is concave in 1 / T, so that its derivative is bisected, in float64. T is from
    LEAST_TEMPERATURE to MOST_TEMPERATURE: where every example is right the likeliest would be 0,
    where the logits know nothing of the labels infinity. It is 1 where all are equally likely, as
    without examples.

    Args:
        logits: float [N, L]. Examples whose logits aren't finite don't count.
        label_ids: int [N].
    """
    logits, label_ids = np.asarray(logits, np.float64), np.asarray(label_ids, np.int64)
    finite = np.isfinite(logits).all(1)
    logits = logits[finite] - logits[finite].max(1, keepdims=True)
    gold = logits[np.arange(len(logits)), label_ids[finite]]

    def slope(inverse: float) -> float:
        """Of the negative log-likelihood, by 1 / T."""
        weights = np.exp(inverse * logits)
        return float(((weights * logits).sum(1) / weights.sum(1) - gold).sum())

    low, high = 1 / MOST_TEMPERATURE, 1 / LEAST_TEMPERATURE
    if slope(low) == slope(high):
        return 1.0
    for _ in range(_MOST_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 1 / middle


def calibrated_confidence(
    logits: tf.Tensor, given: tf.Tensor, calibration: PlattCalibration
) -> tf.Tensor:
    """Probabilities that the answers given are right, in the graph; float32 [B].

    Args:
        logits: float32 [B, n], of the n best.
        given: int32 [B], which of them is given.
        calibration: See there.
    """
    logits = tf.cast(logits, tf.float64)
    is_given = tf.one_hot(given, tf.shape(logits)[1], True, False, dtype=tf.bool)
    together = tf.reduce_logsumexp(tf.where(is_given, tf.constant(-1e30, logits.dtype), logits), 1)
    odds = tf.gather(logits, given, batch_dims=1) - together
    odds = tf.clip_by_value(odds, -MOST_LOG_ODDS, MOST_LOG_ODDS)
    return tf.cast(tf.sigmoid(calibration.slope * odds + calibration.intercept), tf.float32)
