"""Rows without padding: outside of attention an export computes real tokens only.

unpadding = Unpadding.of(input_mask)
rows = unpadding.remove(rows)                 # [B·T, H] → [N, H]
rows = unpadding.restore(rows)                # [N, H] → [B·T, H], for attention, which masks
rows = unpadding.restore_cleared(rows)        # the same with zeros at padding

How many tokens are real differs from batch to batch, so what XLA compiles can't do this. Measured
on CPUs; where a model is exported doesn't tell where it will be served. TensorFlow's alone.
"""

from typing import NamedTuple

import tensorflow as tf

_MULTIPLE = 16
"""N is a multiple of it, for oneDNN prepares, and keeps, something for each new shape."""


class Unpadding(NamedTuple):
    """Which places of a batch hold real tokens.

    Attributes:
        real: bool [B·T, 1].
        places: int [N], of those that are, in order, and then the first a few times more.
        rows: int32 [B·T], which of the N stands in each place; at padding, the one before it.
        none: bool [], whether there is no padding; then nothing is copied.
    """

    real: tf.Tensor
    places: tf.Tensor
    rows: tf.Tensor
    none: tf.Tensor

    @classmethod
    def of(cls, input_mask: tf.Tensor) -> "Unpadding":
        """From int [B, T], not 0 at real tokens.

        The first place of a row counts as real: a row of padding alone has a vector, too.
        """
        first = tf.range(tf.shape(input_mask)[1]) == 0
        real = tf.reshape((input_mask != 0) | first, [-1])
        rows = tf.cumsum(tf.cast(real, tf.int32)) - 1
        places = tf.where(real)[:, 0]
        places = tf.pad(places, [[0, -tf.size(places) % _MULTIPLE]])
        return cls(real[:, tf.newaxis], places, rows, tf.reduce_all(real))

    def remove(self, rows: tf.Tensor) -> tf.Tensor:
        """[B·T, H] → [N, H], the real ones; all, where there is no padding."""
        return tf.cond(self.none, lambda: rows, lambda: tf.gather(rows, self.places))

    def restore(self, rows: tf.Tensor) -> tf.Tensor:
        """[N, H] → [B·T, H]; padding has another token's vector."""
        return tf.cond(self.none, lambda: rows, lambda: tf.gather(rows, self.rows))

    def restore_cleared(self, rows: tf.Tensor) -> tf.Tensor:
        """[N, H] → [B·T, H]; padding has zeros."""
        return tf.where(self.real, self.restore(rows), tf.zeros([], rows.dtype))
