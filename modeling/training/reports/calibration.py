"""Whether probabilities are what they say: of answers given with 0.8, are 80 % right?"""

from typing import NamedTuple

import numpy as np

BINS = 15


class Reliability(NamedTuple):
    """Answers by how sure the model was of them.

    Attributes:
        counts: int64 [bins], answers whose probability is in the bin.
        confidence: float64 [bins], the sum of their probabilities.
        right: float64 [bins], how many of them are right.
    """

    counts: np.ndarray
    confidence: np.ndarray
    right: np.ndarray

    @property
    def expected_error(self) -> float:
        """Expected calibration error: the mean over answers of how far their bin is off.

        (Guo et al., "On calibration of modern neural networks", ICML 2017.) NaN without answers.
        """
        total = self.counts.sum()
        return float(np.abs(self.right - self.confidence).sum() / total) if total else float("nan")


def measure_reliability(confidence, right, bins: int = BINS) -> Reliability:
    """Counts answers in bins of equal width; one on an edge belongs to the bin below.

    Args:
        confidence: float [N], from 0 to 1. What isn't finite counts as 0.
        right: [N], 0 or 1.
        bins: How many.
    """
    confidence = np.nan_to_num(np.asarray(confidence, np.float64), posinf=0.0)
    number = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    sums = [np.bincount(number, w, bins) for w in (confidence, np.asarray(right, np.float64))]
    return Reliability(np.bincount(number, minlength=bins), *sums)
