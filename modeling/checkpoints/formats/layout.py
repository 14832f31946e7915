"""From Keras's layout of BERT's weights to the original's.

Attention kernels are [H, heads, size] and [heads, size, H], their biases [heads, size]; a head's
kernel is [in, outputs], which the original stores the other way round.
"""

import math

import numpy as np


def original_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a weight in the original's layout.

    Args:
        name: Its original name.
        shape: Its shape in Keras's layout.
    """
    if name.endswith("output_weights"):
        return shape[::-1]
    if len(shape) == 3 and name.endswith("/attention/output/dense/kernel"):
        return (shape[0] * shape[1], shape[2])
    if "/attention/self/" in name and len(shape) > 1:
        inputs = 1 if name.endswith("/kernel") else 0
        return (*shape[:inputs], math.prod(shape[inputs:]))
    return shape


def in_original_layout(name: str, array: np.ndarray) -> np.ndarray:
    """The weight of this original name, laid out as the original does; see `original_shape`."""
    if name.endswith("output_weights"):
        return array.T
    return array.reshape(original_shape(name, array.shape))
