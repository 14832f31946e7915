"""Rows without padding: each comes back where it was."""

import numpy as np
import tensorflow as tf

from modeling.serving.graph.unpadding import Unpadding, real_places

# A hole, a full row, a row of padding alone, and padding in front.
MASK = [[1, 1, 0, 1, 1, 0], [1] * 6, [0] * 6, [0, 0, 1, 1, 1, 1]]


def test_rows_come_back_where_they_were():
    mask = np.array(MASK)
    real = mask.copy()
    real[:, 0] = 1  # as every row's first place
    found = real_places(tf.constant(mask, tf.int32))
    np.testing.assert_array_equal(found, real == 1)
    unpadding = Unpadding.of(found)
    rows = np.arange(1.0, mask.size + 1)[:, np.newaxis].astype(np.float32)
    kept = unpadding.remove(tf.constant(rows))
    number = real.sum()
    assert kept.shape == (16 * -(-number // 16), 1)
    np.testing.assert_array_equal(kept[:number], rows[real.ravel() == 1])
    back = unpadding.restore(kept).numpy()
    np.testing.assert_array_equal(back[real.ravel() == 1], rows[real.ravel() == 1])
