"""Rematerialisation: the same gradients, computed twice, in less memory."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.engine.setup import EngineSettings, make_train_step
from tests.scripts import run

LAYERS = 2
# Products of a Transformer layer's forward pass: query, key, value, scores, context and three.
PRODUCTS = 8

# The resident set's high-water mark of this process; getrusage's begins with its parent's.
MEMORY = """
import re, sys
import tensorflow as tf
from modeling.config import BertConfig
from modeling.models import BertPretrainer

config = BertConfig(100, hidden_size=128, num_hidden_layers=24, num_attention_heads=2,
                    intermediate_size=512)
model = BertPretrainer(config, remat=sys.argv[1] == "remat")
ids = tf.ones((16, 128), tf.int32)
model({"input_ids": ids[:1, :8], "masked_lm_positions": ids[:1, :1]})
variables = [v.value for v in model.trainable_weights if "embeddings" not in v.path]

@tf.function
def step(ids):
    with tf.GradientTape() as tape:
        outputs = model({"input_ids": ids}, dropout_key=tf.constant([1, 2, 3]))
        loss = tf.reduce_sum(tf.square(outputs["sequence_output"]))
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        if gradient is not None:
            variable.assign_sub(1e-9 * gradient)

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

before = peak()
for _ in range(2):
    step(ids)
print((peak() - before) / 1024)
"""


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


def _gradients(remat, policy, direction="bidirectional"):
    """A function of the batch: (loss, all gradients) with dropout, of a model made anew."""
    sizes = {"hidden_size": 16, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    sizes |= {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
    config = BertConfig(**sizes, attention_direction=direction)
    model = BertPretrainer(config, remat=remat, dtype=policy)
    model.build()
    rng = np.random.default_rng(1)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(scale=0.1, size=weight.shape))
    variables = [weight.value for weight in model.trainable_weights]

    def gradients(batch):
        with tf.GradientTape() as tape:
            outputs = model(batch, dropout_key=tf.constant([1, 2, 3]))
            losses, _ = PretrainingLosses()(outputs, batch)
            loss = tf.add_n([mean.result() for mean in losses.values()])
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    return gradients


def _equal(one, other, bound):
    np.testing.assert_allclose(one[0], other[0], rtol=max(bound, 1e-6))
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=bound)
    assert tf.linalg.global_norm(one[1]) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "direction"),
    [("float32", "bidirectional"), ("mixed_bfloat16", "left_to_right")],
)
def test_gradients_are_the_same_eagerly_and_in_a_graph(policy, direction):
    plain, remat = (_gradients(remat, policy, direction) for remat in (False, True))
    batch = _batch()
    _equal(plain(batch), remat(batch), 0)
    # In a graph, products are fused differently, which moves roundings.
    bound = 1e-6 if policy == "float32" else 2e-3
    _equal(tf.function(plain)(batch), tf.function(remat)(batch), bound)


@pytest.mark.slow
def test_compiled_code_computes_the_layers_twice():
    plain, remat = (
        tf.function(_gradients(remat, "float32"), jit_compile=True) for remat in (False, True)
    )
    batch = _batch()
    _equal(plain(batch), remat(batch), 1e-6)

    def products(function):
        hlo = function.experimental_get_compiler_ir(batch)(stage="optimized_hlo")
        return hlo.count(" dot(")

    assert products(remat) - products(plain) == PRODUCTS * LAYERS


@pytest.mark.slow
def test_in_replica_context():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    batch = _batch()
    with strategy.scope():
        plain, remat = (_gradients(remat, "float32") for remat in (False, True))

        @tf.function
        def run(batch):
            return strategy.run(lambda b: (plain(b), remat(b)), args=(batch,))

        _equal(*run(batch), 1e-6)


@pytest.mark.slow
def test_with_accumulation_at_full_width():
    """TensorFlow's graph optimizer broke this, and only for large tensors."""
    config = BertConfig(30522, hidden_size=768, num_hidden_layers=1, num_attention_heads=12)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 1000, (8, 128), np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    batch |= {"masked_lm_positions": ids[:, :4] % 128, "masked_lm_ids": ids[:, :4]}
    batch |= {"masked_lm_weights": np.ones((8, 4), np.float32)}
    batch["next_sentence_labels"] = ids[:, :1] % 2

    def loss(remat):
        keras.utils.set_random_seed(1)
        model = BertPretrainer(config, remat=remat)
        model.build()
        settings = EngineSettings(1e-3, 10, 0, seed=1, accumulation_steps=2)
        step = make_train_step(model, PretrainingLosses(), settings)
        batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
        return [step.run(batches, 1)["loss"] for _ in range(3)]

    before = tf.config.optimizer.get_experimental_options()
    options = {"arithmetic_optimization": before.get("arithmetic_optimization", True)}
    losses = []
    for remat in (False, True):
        try:
            losses.append(loss(remat))
        finally:
            tf.config.optimizer.set_experimental_options(options)
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells peak memory")
def test_peak_memory_is_lower():
    def peak(kind):
        done = run("-c", MEMORY, kind)
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    # 24 layers: what the graph itself takes, 50 to 90 MB in both, stays small beside activations.
    plain, remat = peak("plain"), peak("remat")
    assert remat < 0.5 * plain, (remat, plain)
