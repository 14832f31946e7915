"""Models of examples with several rows: choices, and windows over long texts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import ABSENT, BertClassifier, BertMultipleChoice

CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
)
ROWS = [3, 1, 2, 0]  # of each example; the last one only fills the batch


@pytest.fixture(scope="module")
def batch() -> dict:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 11, (4, 3)) * (np.arange(3) < np.array(ROWS)[:, None])
    return {
        "input_ids": tf.constant(rng.integers(1, 40, (4, 3, 10)), tf.int32),
        "input_mask": tf.constant(np.arange(10) < lengths[..., None], tf.int32),
        "segment_ids": tf.constant(np.arange(10) > lengths[..., None] // 2, tf.int32),
    }


def make(model_class, *arguments, **options):
    keras.utils.set_random_seed(1)
    model = model_class(CONFIG, *arguments, **options)
    model.build()
    # Large enough that rows differ well.
    model.output_weights.assign(keras.random.normal(model.output_weights.shape, seed=3))
    return model


def row_alone(batch, example, row):
    """[1, …] of one row, without its padding."""
    length = int(tf.reduce_sum(batch["input_mask"][example, row]))
    return {name: tensor[example, row, :length][tf.newaxis] for name, tensor in batch.items()}


def test_multiple_choice_is_each_row_alone(batch):
    model = make(BertMultipleChoice)
    found = model(batch)
    assert found["logits"].shape == (4, 3) and found["logits"].dtype == tf.float32
    assert found["pooled_output"].shape == (12, 16)
    logits = found["logits"].numpy()
    for example, rows in enumerate(ROWS):
        assert (logits[example, rows:] == np.float32(ABSENT)).all()
        for row in range(rows):
            # One vector, whose product with the pooled vector is the logit.
            pooled = model.encoder(row_alone(batch, example, row))["pooled_output"][0]
            wanted = np.dot(pooled, model.output_weights[0])
            np.testing.assert_allclose(logits[example, row], wanted, atol=2e-6)
    probabilities = tf.nn.softmax(logits).numpy()
    assert probabilities[1].tolist() == [1, 0, 0]
    assert probabilities[2, 2] == 0
    names = [weight.path.split("/", 1)[1] for weight in model.trainable_weights]
    assert [name for name in names if not name.startswith("bert/")] == ["output_weights"]


def test_multiple_choice_gradients(batch):
    """They reach all weights but those of positions that don't occur, and never absent rows."""
    model = make(BertMultipleChoice)
    labels = tf.constant([2, 0, 1, 0])

    def gradients(batch):
        with tf.GradientTape() as tape:
            logits = model(batch)["logits"]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses[:3])
        found = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
        return [tf.convert_to_tensor(gradient).numpy() for gradient in found]

    found = gradients(batch)
    for weight, gradient in zip(model.trainable_weights, found, strict=True):
        assert np.isfinite(gradient).all()
        assert gradient.any(), weight.path
    there = batch["input_mask"].numpy().any(-1, keepdims=True)
    other = dict(batch, input_ids=tf.where(there, batch["input_ids"], 7))
    for mine, theirs in zip(gradients(other), found, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("bilstm", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_classifier_pools_the_rows_alone(batch, pooling, bilstm):
    model = make(BertClassifier, 3, row_pooling=pooling, bilstm=bilstm)
    logits = model(batch)["logits"].numpy()
    assert logits.shape == (4, 3) and np.isfinite(logits).all()
    for example, rows in enumerate(ROWS[:3]):
        alone = [model(row_alone(batch, example, row))["logits"][0] for row in range(rows)]
        wanted = {"mean": np.mean, "max": np.max}[pooling](alone, axis=0)
        np.testing.assert_allclose(logits[example], wanted, atol=5e-6)
    one_row = {name: tensor[:3, :1] for name, tensor in batch.items()}
    plain = {name: tensor[:3, 0] for name, tensor in batch.items()}
    np.testing.assert_allclose(model(one_row)["logits"], model(plain)["logits"], atol=2e-6)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_gradient_of_pooled_rows(batch, pooling):
    """An example without rows has none, and no weight gets NaN."""
    model = make(BertClassifier, 2, row_pooling=pooling)
    variables = [weight.value for weight in model.trainable_weights]
    with tf.GradientTape(persistent=True) as tape:
        logits = model(batch)["logits"]
        first, filling = tf.reduce_sum(logits[0, 0]), tf.reduce_sum(logits[3])
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in tape.gradient(first, variables))
    # Also where the batch's filling is asked for.
    assert not np.any(tape.gradient(filling, model.output_bias.value))


def test_row_pooling_is_refused():
    with pytest.raises(ModelingError, match="'sum'; it may be mean or max"):
        BertClassifier(CONFIG, 2, row_pooling="sum")


def test_dynamic_shapes(batch):
    """As in an exported graph: neither examples, rows nor length are known."""
    model = make(BertMultipleChoice)
    spec = {name: tf.TensorSpec([None] * 3, tf.int32) for name in batch}
    logits = tf.function(lambda batch: model(batch)["logits"], input_signature=[spec])
    np.testing.assert_allclose(logits(batch), model(batch)["logits"], atol=2e-6)
    fewer = {name: tensor[1:3, :2] for name, tensor in batch.items()}
    np.testing.assert_allclose(logits(fewer), model(fewer)["logits"], atol=2e-6)
    nothing = {name: tf.zeros([0, 3, 10], tf.int32) for name in batch}
    assert logits(nothing).shape == (0, 3)
