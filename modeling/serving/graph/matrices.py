"""Matrices as an export keeps them.

float32: as they are. bfloat16: in half the bytes. int8: in a quarter of the bytes, whole numbers
with a scale per output of a product, or per row of a table of vectors.
"""

import numpy as np
import tensorflow as tf


class StoredMatrix:
    """A matrix in variables that a SavedModel keeps, in fewer bytes if wished.

    Args:
        matrix: float32 [rows, columns].
        dtype: "float32"; "bfloat16", rounded to the nearest; or "int8".
        axis: Along which int8 shares a scale: 0 for the kernel of a product, 1 for a table of
            vectors.
        largest: Of int8's whole numbers, which are from minus that on.

    Attributes:
        values: Its numbers, [rows, columns].
        scales: float32 [1, columns] or [rows, 1], what those of int8 are multiplied with; else
            None.
        column_sums: int32 [columns], of int8's values; else None.
        variables: All that it is kept in.
    """

    def __init__(self, matrix: np.ndarray, dtype: str, axis: int = 0, largest: int = 127):
        self.scales = self.column_sums = None
        if dtype == "int8":
            scales = np.maximum(np.abs(matrix).max(axis, keepdims=True), 1e-12) / largest
            matrix = np.clip(np.rint(matrix / scales), -largest, largest)
            self.scales = tf.Variable(scales.astype(np.float32), trainable=False)
            self.column_sums = matrix.sum(0, dtype=np.float64).astype(np.int32)
        self.values = tf.Variable(tf.cast(matrix, dtype), trainable=False)
        self.variables = [v for v in (self.values, self.scales) if v is not None]

    def read(self, dtype: str) -> tf.Tensor:
        """All of it, to compute in `dtype`."""
        return self._scaled(self.values, self.scales, dtype)

    def rows(self, numbers: tf.Tensor, dtype: str) -> tf.Tensor:
        """Some of its rows: int32 [...] → [..., columns]."""
        scales = self.scales
        if scales is not None and scales.shape[0] > 1:
            scales = tf.gather(scales, numbers)
        return self._scaled(tf.gather(self.values, numbers), scales, dtype)

    @staticmethod
    def _scaled(values, scales, dtype: str) -> tf.Tensor:
        wide = tf.cast(values, dtype)
        return wide if scales is None else wide * tf.cast(scales, dtype)
