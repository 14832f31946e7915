"""Rows without padding: outside of attention an export computes real tokens only.

unpadding = Unpadding.of(input_mask)
rows = unpadding.remove(rows)                 # [B·T, H] → [N, H]
rows = unpadding.restore(rows)                # [N, H] → [B·T, H], for attention, which masks

How many tokens are real differs from batch to batch, so what XLA compiles can't do this. Measured
on CPUs; where a model is exported doesn't tell where it will be served.
"""

from typing import NamedTuple

import tensorflow as tf

_MULTIPLE = 16
"""N is a multiple of it, for oneDNN prepares, and keeps, something for each new shape."""


def real_places(input_mask: tf.Tensor) -> tf.Tensor:
    """int [B, T], not 0 at real tokens → bool [B, T].

    The first place of a row counts as real: a row of padding alone has a vector, too.
    """
    return (input_mask != 0) | (tf.range(tf.shape(input_mask)[1]) == 0)


class Unpadding(NamedTuple):
    """Which places of a batch hold real tokens.

    Attributes:
        places: int [N], of those that are, in order, and then the first a few times more.
        rows: int32 [B·T], which of the N stands in each place; at padding, the one before it.
    """

    places: tf.Tensor
    rows: tf.Tensor

    @classmethod
    def of(cls, real: tf.Tensor) -> "Unpadding":
        """From bool [B, T]."""
        real = tf.reshape(real, [-1])
        places = tf.where(real)[:, 0]
        places = tf.pad(places, [[0, -tf.size(places) % _MULTIPLE]])
        return cls(places, tf.cumsum(tf.cast(real, tf.int32)) - 1)

    def remove(self, rows: tf.Tensor) -> tf.Tensor:
        """[B·T, H] → [N, H], the real ones."""
        return tf.gather(rows, self.places)

    def restore(self, rows: tf.Tensor) -> tf.Tensor:
        """[N, H] → [B·T, H]; padding has another token's vector."""
        return tf.gather(rows, self.rows)
