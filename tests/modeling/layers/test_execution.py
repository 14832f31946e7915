"""Compiled chains give what the plain functions give: values, gradients, and masks of dropout."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.layers.dense import ACTIVATIONS, activate, dropout_add_norm, layer_norm
from modeling.layers.execution import Execution, compiled_chain
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from tests.modeling.test_models import pretraining_batch


def results(function, arguments, on):
    """(value, gradients of the float arguments) for an upstream gradient that is not all ones."""

    @tf.function
    def run(*arguments):
        floats = [a for a in arguments if a.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            y = function(*arguments, compiled=on)
        upstream = tf.cast(
            tf.cos(tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)), "float32")), y.dtype
        )
        return y, tape.gradient(y, floats, output_gradients=upstream)

    value, gradients = run(*arguments)
    return [value.numpy(), *(g.numpy() for g in gradients)]


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


KEY = tf.constant([1, 2, 3], tf.int32)
CASES = {
    **{
        f"activate {name}": (
            lambda x, b, compiled, name=name: activate(x, b, name=name, compiled=compiled),
            (normal(6, 10), normal(10, seed=1)),
        )
        for name in ACTIVATIONS
    },
    "layer_norm": (
        functools.partial(layer_norm, epsilon=1e-12),
        (normal(6, 10), normal(10, seed=1), normal(10, seed=2)),
    ),
    "dropout_add_norm": (
        lambda *tensors, compiled: dropout_add_norm(
            *tensors, 4, rate=0.3, epsilon=1e-12, compiled=compiled
        ),
        (normal(6, 10), normal(10, seed=3), normal(6, 10, seed=4), normal(10), normal(10), KEY),
    ),
    "no dropout": (
        lambda *tensors, compiled: dropout_add_norm(
            *tensors, None, 4, rate=0.3, epsilon=1e-12, compiled=compiled
        ),
        (normal(6, 10), normal(10, seed=3), normal(6, 10, seed=4), normal(10), normal(10)),
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_xla_calls_nothing_from_outside(name):
    compiled = tf.function(ACTIVATIONS[name], jit_compile=True)
    hlo = compiled.experimental_get_compiler_ir(normal(2, 3))(stage="hlo")
    assert "custom-call" not in hlo and "f64[" not in hlo


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_plain(name):
    function, arguments = CASES[name]
    plain, compiled = (results(function, arguments, on) for on in (False, True))
    for expected, found in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_float32_inside(name):
    """Compiled, rounding is only at the ends, not at each of the steps."""
    function, arguments = CASES[name]
    half = [tf.cast(a, tf.bfloat16) if a.dtype.is_floating else a for a in arguments]
    exact = [tf.cast(a, tf.float32) if a.dtype.is_floating else a for a in half]
    value = results(function, half, True)[0]
    assert value.dtype == tf.bfloat16.as_numpy_dtype
    expected = results(function, exact, False)[0]
    np.testing.assert_allclose(value.astype(np.float32), expected, rtol=2**-8, atol=1e-6)


def test_a_chain_within_a_chain_is_a_part_of_it():
    @compiled_chain
    def inner(x):
        return x + 1

    @compiled_chain
    def outer(x):
        return inner(x) * 2

    programs = tf.function(lambda x: outer(x, compiled=True), autograph=False)
    graph = programs.get_concrete_function(tf.constant(1.0)).graph.as_graph_def()
    assert float(programs(tf.constant(1.0))) == 4
    compiled = [f for f in graph.library.function if "_XlaMustCompile" in f.attr]
    nodes = [node.op for function in compiled for node in function.node_def]
    assert "AddV2" in nodes and "StatefulPartitionedCall" not in nodes


@pytest.fixture
def model_of():
    def make(dtype, **changes):
        keras.utils.set_random_seed(3)
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        sizes |= {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
        sizes |= {"initializer_range": 0.3}
        keras.config.set_dtype_policy(dtype)
        model = BertPretrainer(BertConfig(**(sizes | changes)))
        model.build()
        return model

    yield make
    keras.config.set_dtype_policy("float32")


def loss_and_gradients(model, batch, on):
    losses = PretrainingLosses()

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            outputs = model(batch, dropout_key=KEY, execution=Execution(compile_chains=on))
            means, _ = losses(outputs, batch)
            loss = tf.add_n([mean.result() for mean in means.values()])
        variables = [weight.value for weight in model.trainable_weights]
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    loss, gradients = run()
    return float(loss), {
        w.path: g.numpy() for w, g in zip(model.trainable_weights, gradients, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_direction": "left_to_right"},
        {"hidden_dropout_prob": 0.0},
        {"attention_probs_dropout_prob": 0.0, "hidden_act": "gelu_erf"},
    ],
    ids=lambda changes: " ".join(map(str, changes)) or "as it is",
)
def test_a_whole_model_with_dropout(model_of, changes):
    """Same masks, same loss, same gradient of every weight, attention's written-out one too."""
    model = model_of("float32", **changes)
    batch = pretraining_batch()
    plain, expected = loss_and_gradients(model, batch, False)
    compiled, found = loss_and_gradients(model, batch, True)
    assert compiled == pytest.approx(plain, rel=1e-6)
    for path, gradient in expected.items():
        if path.endswith("/key/bias"):
            # It adds the same to all scores of a query, so both gradients are rounded zeros.
            assert np.abs([gradient, found[path]]).max() < 2e-7, path
            continue
        size = np.abs(gradient).max()
        np.testing.assert_allclose(found[path], gradient, atol=1e-5 * size + 1e-7, err_msg=path)


@pytest.mark.slow
def test_bfloat16_keeps_to_float32(model_of):
    """Directions of the gradients; single numbers have three digits at best."""
    batch = pretraining_batch()
    model = model_of("mixed_bfloat16")
    loss, found = loss_and_gradients(model, batch, True)
    exact = model_of("float32")
    for weight, other in zip(exact.weights, model.weights, strict=True):
        weight.assign(other)
    plain, expected = loss_and_gradients(exact, batch, False)
    assert loss == pytest.approx(plain, rel=0.02)
    one, other = (np.concatenate([g.ravel() for g in part.values()]) for part in (found, expected))
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.999
