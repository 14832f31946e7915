"""Numbers above 65504 are infinite in float16: the model's own arithmetic must not make any."""

import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.layers.dense import ACTIVATIONS
from modeling.losses import PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer

# Around zero, around where the cube of float16 overflows, and far beyond it.
POINTS = [0.0, 0.5, 1.0, 3.0, 5.0, 9.9, 10.1, 40.0, 41.0, 300.0, 6e4]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_activation_and_gradient(name, jit_compile):
    x = tf.constant(POINTS + [-p for p in POINTS])

    @tf.function(jit_compile=jit_compile)
    def value_and_slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ACTIVATIONS[name](x)
        return y, tape.gradient(y, x)

    for full, half in zip(value_and_slope(x), value_and_slope(tf.cast(x, tf.float16)), strict=True):
        assert half.dtype == tf.float16
        np.testing.assert_allclose(tf.cast(half, tf.float32), full, rtol=2e-3, atol=6e-3)


def _batch():
    rng = np.random.default_rng(0)
    return {
        "input_ids": tf.constant(rng.integers(0, 40, (3, 12)), tf.int32),
        "input_mask": tf.constant(np.arange(12) < [[12], [7], [9]], tf.int32),
        "segment_ids": tf.constant(np.arange(12) > [[5], [3], [4]], tf.int32),
        "masked_lm_positions": tf.constant([[1, 3], [2, 0], [4, 5]], tf.int32),
        "masked_lm_ids": tf.constant([[5, 6], [7, 0], [8, 9]], tf.int32),
        "masked_lm_weights": tf.constant([[1, 1], [1, 0], [1, 1]], tf.float32),
        "next_sentence_labels": tf.constant([[0], [1], [0]], tf.int32),
    }


def _model(policy, act="gelu", **changes):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
    return BertPretrainer(BertConfig(**sizes, hidden_act=act, **changes), dtype=policy)


@pytest.mark.parametrize(
    ("act", "direction", "jit_compile"),
    [
        ("gelu", "bidirectional", False),
        ("gelu", "left_to_right", True),
        pytest.param("gelu_erf", "bidirectional", True, marks=pytest.mark.slow),
    ],
)
def test_large_activations_stay_finite(act, direction, jit_compile):
    model = _model("mixed_float16", act, attention_direction=direction)
    model.build()
    for weight in model.weights:
        if weight.path.endswith(("query/kernel", "key/kernel")):
            weight.assign(weight * 1e4)  # scores beyond 65504
        elif weight.path.endswith("intermediate/dense/kernel"):
            weight.assign(weight * 5e3)  # activations of hundreds
        elif weight.path.endswith("transform/dense/kernel"):
            weight.assign(weight * 5e3)
    variables = [weight.value for weight in model.trainable_weights]
    batch = _batch()

    def step(batch):
        with tf.GradientTape() as tape:
            outputs = model(batch, dropout_key=tf.constant([1, 2, 3]))
            losses, _ = PretrainingLosses()(outputs, batch)
            loss = tf.add_n([mean.result() for mean in losses.values()])
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        return loss, outputs, gradients

    layer = model.encoder.layers[0]
    x = tf.reshape(model(batch)["embedding_output"], [-1, 16])
    inner = tf.cast(layer.intermediate(x), tf.float32)
    query, key = (
        tf.cast(part(x), tf.float32) for part in (layer.attention.query, layer.attention.key)
    )
    assert 100 < tf.reduce_max(tf.abs(inner)) < 65504
    assert tf.reduce_max(tf.abs(tf.matmul(query, key, transpose_b=True))) > 5e5
    assert tf.reduce_max(tf.abs(query)) < 65504
    loss, outputs, gradients = tf.function(step, jit_compile=jit_compile)(batch)
    assert outputs["masked_lm_logits"].dtype == tf.float32
    for tensor in tf.nest.flatten([loss, outputs, gradients]):
        assert np.isfinite(tensor).all()
    assert tf.linalg.global_norm(gradients) > 0


def test_gradients_are_the_float32_ones():
    """At a loss scale as training uses, float16 loses nothing but digits."""
    full, half = _model("float32"), _model("mixed_float16")
    full.build()
    half.build()
    rng = np.random.default_rng(1)
    for mine, theirs in zip(half.weights, full.weights, strict=True):
        theirs.assign(rng.normal(scale=0.2, size=theirs.shape))
        mine.assign(theirs)
    batch, gradients = _batch(), []
    for model, scale in ((full, 1.0), (half, 1024.0)):
        variables = [weight.value for weight in model.trainable_weights]
        with tf.GradientTape() as tape:
            losses, _ = PretrainingLosses()(model(batch), batch)
            loss = scale * tf.add_n([mean.result() for mean in losses.values()])
        found = [tf.convert_to_tensor(g) / scale for g in tape.gradient(loss, variables)]
        gradients.append(tf.concat([tf.reshape(g, [-1]) for g in found], 0))
    difference = tf.norm(gradients[0] - gradients[1]) / tf.norm(gradients[0])
    assert 0 < difference < 0.01


def test_bilstm_stays_finite():
    config = _model("float32").config
    model = BertClassifier(config, 2, bilstm=True, dtype="mixed_float16")
    batch = _batch()
    assert model(batch)["logits"].dtype == tf.float32
    for weight in model.bilstm.weights:
        weight.assign(weight * 1e3)
    variables = [weight.value for weight in model.bilstm.weights]
    with tf.GradientTape() as tape:
        logits = model(batch)["logits"]
        loss = tf.reduce_sum(tf.square(logits))
    for tensor in [logits, *tape.gradient(loss, variables)]:
        assert np.isfinite(tensor).all()
