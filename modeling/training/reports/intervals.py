"""Intervals of 95 %: how far a score on so many examples may be from that on endlessly many."""

import math
from collections.abc import Callable

import numpy as np

Interval = tuple[float, float]
RESAMPLES = 1000
_QUANTILE = 1.959963984540054  # of the normal distribution, at 97.5 %
_PERCENTILES = (2.5, 97.5)
_MOST_NUMBERS = 2**21  # held in memory at once


def wilson_interval(right: float, count: int) -> Interval:
    """Of a share: `right` of `count` examples (Wilson, "Probable inference", JASA 1927).

    Raises:
        ValueError: There are no examples.
    """
    if count < 1:
        raise ValueError("A share of no examples has no interval.")
    share, square = right / count, _QUANTILE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    half *= _QUANTILE / (1 + square / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def bootstrap_interval(
    score: Callable[[np.ndarray], np.ndarray],
    parts: np.ndarray,
    counts: np.ndarray | None = None,
    seed: int = 0,
) -> Interval:
    """The middle 95 % of a score's values when examples are drawn anew, with replacement.

    (Efron, "Bootstrap methods", 1979; percentiles of RESAMPLES drawings.) The score is a function
    of sums over examples. What examples add is given once for all that add the same, so that
    memory and time grow with the number of different ones only.

    Args:
        score: From sums [R, K] to float [R]; NaN where it is undefined, which isn't counted.
        parts: [U, K], what an example adds to the sums. Where examples are alike within a group,
            as the sentences of a document are, what the group adds.
        counts: int [U], how many examples add that; None: one each.
        seed: Of the drawing.

    Returns:
        Both NaN where the score is never defined.
    """
    parts = np.asarray(parts, np.float64)
    if counts is None:
        parts, counts = np.unique(parts, axis=0, return_counts=True)
    total = int(counts.sum())
    draw = np.random.default_rng(seed)
    at_once = max(_MOST_NUMBERS // max(parts.shape), 1)
    values = [
        score(draw.multinomial(total, counts / total, min(at_once, RESAMPLES - begin)) @ parts)
        for begin in range(0, RESAMPLES, at_once)
    ]
    return _middle(np.concatenate(values))


def drawn_interval(score: Callable[[np.ndarray], float], count: int, seed: int = 0) -> Interval:
    """`bootstrap_interval` of a score that isn't a function of sums, as of ranks.

    Args:
        score: From the numbers of the examples drawn, int64 [N], to a value or NaN.
        count: N.
        seed: Of the drawing.
    """
    draw = np.random.default_rng(seed)
    return _middle(np.array([score(draw.integers(count, size=count)) for _ in range(RESAMPLES)]))


def _middle(values: np.ndarray) -> Interval:
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    low, high = np.percentile(values, _PERCENTILES)
    return float(low), float(high)
