"""The BiLSTM against a float64 NumPy oracle; padding, names, XLA; the classifier on it."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.layers.bilstm import BiLSTM
from modeling.models import BertClassifier

LENGTHS = [9, 4, 1]


def numpy_lstm(x, kernel, recurrent, bias):
    """One sequence [T, in] in float64, by the book → outputs [T, units]."""

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    units = len(recurrent)
    h, c = np.zeros(units), np.zeros(units)
    outputs = []
    for now in x:
        z = kernel.T @ now + recurrent.T @ h + bias
        i, f, g, o = (z[k * units : (k + 1) * units] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def numpy_bilstm(x, weights):
    """One sequence through all layers: (outputs [T, 2·units], final states [2·units])."""
    for index in range(len(weights) // 6):
        both = []
        for name, order in (("forward", slice(None)), ("backward", slice(None, None, -1))):
            scope = f"layer_{index}/{name}"
            parts = (weights[f"{scope}/{w}"] for w in ("kernel", "recurrent_kernel", "bias"))
            both.append(numpy_lstm(x[order], *parts)[order])
        x = np.concatenate(both, axis=1)
    units = x.shape[1] // 2
    return x, np.concatenate([x[-1, :units], x[0, units:]])


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    mask = (np.arange(9) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return rng.normal(size=(3, 9, 6)).astype(np.float32), mask


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_against_numpy(batch, num_layers, jit_compile):
    x, mask = batch
    lstm = BiLSTM(6, 5, num_layers)
    lstm.build()
    rng = np.random.default_rng(1)
    for weight in lstm.weights:
        weight.assign(rng.normal(size=weight.shape))
    named = {w.path.split("/", 1)[1]: np.float64(w.numpy()) for w in lstm.weights}
    assert len(named) == 6 * num_layers
    outputs, last = tf.function(lstm, jit_compile=jit_compile)(x, mask)
    assert outputs.shape == (3, 9, 10) and last.shape == (3, 10)
    for row, length in enumerate(LENGTHS):
        expected, final = numpy_bilstm(np.float64(x[row, :length]), named)
        np.testing.assert_allclose(outputs[row, :length], expected, atol=1e-6)
        np.testing.assert_allclose(last[row], final, atol=1e-6)
        assert not outputs[row, length:].numpy().any()


def test_weights_fit_keras_lstm(batch):
    x, _ = batch
    ours = BiLSTM(6, 5)
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(5))
    theirs.build(x.shape)
    ours.build()
    # A forget gate that starts open, as there; the rest of the bias is zero.
    biases = [w.numpy() for w in ours.weights if w.name == "bias"]
    np.testing.assert_array_equal(biases, [[0] * 5 + [1] * 5 + [0] * 10] * 2)
    theirs.set_weights([w.numpy() for w in ours.weights])
    np.testing.assert_allclose(ours(x, np.ones((3, 9)))[1], theirs(x), atol=1e-6)


def test_gradients_are_numerically_right_and_not_of_padding(batch):
    x, mask = (tf.constant(t) for t in batch)
    # Some weights have a slope so small that float32's rounding hides it.
    keras.utils.set_random_seed(0)
    lstm = BiLSTM(6, 5, 2)
    lstm.build()

    @tf.function
    def loss(x):
        outputs, last = lstm(x, mask)
        return tf.reduce_sum(tf.square(outputs)) + tf.reduce_sum(tf.sin(last))

    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x)
    gradient = tape.gradient(value, x).numpy()
    assert not gradient[batch[1] == 0].any() and (gradient[batch[1] == 1] != 0).all()
    direction = np.random.default_rng(2).normal(size=x.shape).astype(np.float32)
    slope = (loss(x + 1e-2 * direction) - loss(x - 1e-2 * direction)) / 2e-2
    np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=2e-3, atol=1e-3)


def _classifier(**settings):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
    return BertClassifier(BertConfig(**sizes), 3, bilstm=True, **settings)


def _inputs(length=9):
    ids = tf.random.stateless_uniform((3, length), [1, 2], 5, 40, tf.int32)
    mask = tf.constant(np.arange(length) < np.array(LENGTHS)[:, None], tf.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)}


def test_classifier_ignores_padding_and_reads_everything_else():
    model = _classifier()
    inputs = _inputs()
    before = model(inputs)["logits"].numpy()
    assert before.shape == (3, 3)
    padded = {name: tf.pad(t, [[0, 0], [0, 7]], constant_values=0) for name, t in inputs.items()}
    padded["input_ids"] += tf.pad(tf.zeros((3, 9), tf.int32), [[0, 0], [0, 7]], constant_values=3)
    np.testing.assert_allclose(model(padded)["logits"], before, atol=1e-6)
    whole = model({k: v for k, v in inputs.items() if k != "input_mask"})["logits"].numpy()
    np.testing.assert_allclose(whole[0], before[0], atol=1e-6)
    assert np.abs(whole[1:] - before[1:]).max() > 1e-4
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(inputs)["logits"]))
    weights = checkpoints.weights_by_name(model)
    gradients = tape.gradient(loss, {name: w.value for name, w in weights.items()})
    unused = {name for name, gradient in gradients.items() if gradient is None}
    assert unused == {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


def test_classifier_checkpoint_keeps_the_lstm(tmp_path):
    model, other = _classifier(), _classifier()
    inputs = _inputs()
    expected = model(inputs)["logits"]
    names = [n for n in checkpoints.weights_by_name(model) if n.startswith("bilstm/")]
    assert names == [
        f"bilstm/layer_0/{direction}/{weight}"
        for direction in ("backward", "forward")
        for weight in ("bias", "kernel", "recurrent_kernel")
    ]
    assert checkpoints.weights_by_name(model)["output_weights"].shape == (3, 32)
    checkpoints.save(model, tmp_path / "saved")
    report = checkpoints.load(other, tmp_path / "saved", required=("",))
    assert not report.left_over
    np.testing.assert_array_equal(other(inputs)["logits"], expected)
    plain = BertClassifier(model.config, 3)
    report = checkpoints.load(plain, tmp_path / "saved", required=("bert/",), skip=("output_",))
    assert set(names) < set(report.left_over)


@pytest.mark.slow
def test_training_pass_compiles_with_static_shapes():
    model = _classifier()
    inputs = _inputs()
    model(inputs)
    weights = [w.value for w in model.trainable_weights if "pooler" not in w.path]

    def gradients(inputs):
        with tf.GradientTape() as tape:
            outputs = model(inputs, dropout_key=tf.constant([1, 2, 3]))
            loss = tf.reduce_sum(tf.square(outputs["logits"]))
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]

    compiled = tf.function(gradients, jit_compile=True)
    for one, other in zip(compiled(inputs), gradients(inputs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    hlo = compiled.experimental_get_compiler_ir(inputs)(stage="hlo")
    assert "custom-call" not in hlo and "<=" not in hlo and "f64" not in hlo


def test_gradient_adds_no_three_tensors_in_its_loops(batch):
    """TensorFlow keeps such a sum in a temporary variable where memory seems short.

    In a loop within a loop, as the gradient of an LSTM in the loop over steps, it then finds that
    the variable is there already and fails; tensors must be large for that, graphs not.
    """
    x, mask = batch
    lstm = BiLSTM(6, 5, 2)
    lstm.build()

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            outputs, last = lstm(x, mask)
            loss = tf.reduce_sum(outputs) + tf.reduce_sum(last)
        return tape.gradient(loss, lstm.trainable_variables)

    functions = gradients.get_concrete_function(x).graph.as_graph_def().library.function
    bodies = [f for f in functions if re.search(r"while_body_\d+_grad", f.signature.name)]
    assert len(bodies) == 4  # layers and directions
    sums = [node for body in bodies for node in body.node_def if node.op == "AddN"]
    assert sums and max(node.attr["N"].i for node in sums) <= 2
