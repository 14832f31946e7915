"""The expected calibration error as it is defined, bin by bin."""

import math


def expected_error(confidence, right, bins: int) -> float:
    """Guo et al.'s equation 3, with bins ((m - 1)/M, m/M]; 0 is in the first."""
    error = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        pairs = zip(confidence, right, strict=True)
        inside = [(c, r) for c, r in pairs if low < c <= high or c == low == 0]
        if inside:
            said, was = (math.fsum(x) / len(inside) for x in zip(*inside, strict=True))
            error += len(inside) / len(confidence) * abs(was - said)
    return error
