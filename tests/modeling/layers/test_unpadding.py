"""Rows without padding: the same vectors, computed for real tokens only."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.layers.dense import Dense
from modeling.layers.execution import INFERENCE, PLAIN, Execution
from modeling.layers.unpadding import Unpadding
from modeling.models import BertClassifier

UNPADDED = Execution(inference=True, unpad=True)
# A hole, a full row, a row of padding alone, and padding in front.
MASK = [[1, 1, 0, 1, 1, 0], [1] * 6, [0] * 6, [0, 0, 1, 1, 1, 1]]
SEQUENCES = [[1, 1, 0, 2, 2, 0], [1, 2, 2, 3, 3, 3], [0] * 6, [0, 0, 1, 1, 1, 2]]


def test_rows_come_back_where_they_were():
    mask = np.array(MASK)
    unpadding = Unpadding.of(tf.constant(mask, tf.int32))
    real = mask.copy()
    real[:, 0] = 1  # as every row's first place
    rows = np.arange(1.0, mask.size + 1)[:, np.newaxis].astype(np.float32)
    kept = unpadding.remove(tf.constant(rows))
    number = real.sum()
    assert kept.shape == (16 * -(-number // 16), 1)
    np.testing.assert_array_equal(kept[:number], rows[real.ravel() == 1])
    back = unpadding.restore(kept).numpy()
    np.testing.assert_array_equal(back[real.ravel() == 1], rows[real.ravel() == 1])
    cleared = unpadding.restore_cleared(kept).numpy()
    np.testing.assert_array_equal(cleared, rows * real.reshape(-1, 1))


def test_without_padding_nothing_is_copied():
    unpadding = Unpadding.of(tf.ones([2, 3], tf.int32))
    rows = tf.random.stateless_normal([6, 4], [1, 2])
    for way in (unpadding.remove, unpadding.restore, unpadding.restore_cleared):
        np.testing.assert_array_equal(way(rows), rows)


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_model_gives_the_same(direction, packed):
    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 8, "initializer_range": 0.3}
    model = BertClassifier(BertConfig(40, attention_direction=direction, **sizes), 3)
    model.build()
    ids = np.random.default_rng(0).integers(0, 40, np.shape(MASK))
    batch = {"input_ids": tf.constant(ids, tf.int32), "input_mask": tf.constant(MASK, tf.int32)}
    if packed:
        batch["sequence_ids"] = tf.constant(SEQUENCES, tf.int32)

    def traced(unpadded: bool):
        @tf.function
        def run():
            return model(batch, execution=UNPADDED if unpadded else PLAIN)

        return run()

    plain, unpadded = traced(False), traced(True)
    real = np.array(MASK) == 1
    padding = ~real
    padding[:, 0] = False  # which counts as real
    layers = [plain["encoder_outputs"], unpadded["encoder_outputs"]]
    for expected, found in zip(*layers, strict=True):
        np.testing.assert_allclose(found.numpy()[real], expected.numpy()[real], atol=1e-5)
        assert not found.numpy()[padding].any()
    some = real[:, 0]  # the vector of padding is nothing that anybody reads
    for name in ("pooled_output", "logits"):
        np.testing.assert_allclose(
            unpadded[name].numpy()[some], plain[name].numpy()[some], atol=1e-5
        )


def test_only_real_tokens_are_multiplied(monkeypatch):
    config = BertConfig(40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    model = BertClassifier(config, 2)
    model.build()
    rows, product = [], Dense.product

    def counted(self, x, execution):
        rows.append(int(x.shape[0]))
        return product(self, x, execution)

    monkeypatch.setattr(Dense, "product", counted)
    mask = tf.constant(np.arange(16) < np.full((64, 1), 2), tf.int32)
    model({"input_ids": mask, "input_mask": mask}, execution=UNPADDED)
    assert rows == [128] * 6 + [64]  # the last is the pooler
    rows.clear()
    model({"input_ids": mask, "input_mask": mask}, execution=INFERENCE)  # as evaluation does
    assert rows == [1024] * 6 + [64]
