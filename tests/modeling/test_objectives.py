"""The models of the paper's ablations: without next sentences, and left to right."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.losses import PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer

LENGTH, VOCAB = 12, 40
LENGTHS = [12, 7, 1]


def _config(**changes):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": VOCAB, "intermediate_size": 32, "max_position_embeddings": 24}
    return BertConfig(**(sizes | {"initializer_range": 0.5} | changes))


def _left_to_right(**changes):
    return _config(attention_direction="left_to_right", **changes)


def _inputs():
    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(5, VOCAB, (3, LENGTH)).astype(np.int32),
        "input_mask": (np.arange(LENGTH) < np.array(LENGTHS)[:, None]).astype(np.int32),
        "segment_ids": (np.arange(LENGTH) > np.array([[5], [3], [0]])).astype(np.int32),
    }


def _prefix(inputs, length):
    return {name: values[:, :length] for name, values in inputs.items()}


def _same_weights(model, other):
    model.build()
    other.build()
    for weight, theirs in zip(model.weights, other.weights, strict=True):
        weight.assign(theirs)


def test_one_layer_is_the_bidirectional_one_on_every_prefix():
    model = BertPretrainer(_left_to_right(num_hidden_layers=1))
    oracle = BertPretrainer(_config(num_hidden_layers=1))
    _same_weights(model, oracle)
    inputs = _inputs()
    inputs["input_mask"][:] = 1
    states = model(inputs)["sequence_output"]
    for i in range(1, LENGTH):
        expected = oracle(_prefix(inputs, i + 1))["sequence_output"][:, i]
        np.testing.assert_allclose(states[:, i], expected, atol=2e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_position_sees_what_comes_after_it(jit_compile):
    model = BertPretrainer(_left_to_right(num_hidden_layers=3))
    inputs = _inputs()
    inputs["input_mask"][:] = 1
    forward = tf.function(lambda x: model(x)["sequence_output"], jit_compile=jit_compile)
    states = forward(inputs)
    for i in range(LENGTH - 1):
        other = {name: values.copy() for name, values in inputs.items()}
        other["input_ids"][:, i + 1] = 1 + other["input_ids"][:, i + 1] % (VOCAB - 1)
        changed = np.abs(forward(other) - states).max((0, 2))
        assert not changed[: i + 1].any()
        assert (changed[i + 1 :] > 1e-4).all()


def test_right_to_left_sees_only_what_comes_after_it():
    model = BertPretrainer(_config(attention_direction="right_to_left", num_hidden_layers=3))
    inputs = _inputs()
    states = model(inputs)["sequence_output"].numpy()
    pooled = model(inputs)["pooled_output"].numpy()
    for i in range(LENGTH):
        other = {name: values.copy() for name, values in inputs.items()}
        other["input_ids"][:, i] = 1 + other["input_ids"][:, i] % (VOCAB - 1)
        changed = np.abs(model(other)["sequence_output"] - states).max(2)
        assert not changed[:, i + 1 :].any()
        for row, length in enumerate(LENGTHS):
            # Padding, too, sees itself, but nobody sees it.
            seen = changed[row, : i + 1] > 1e-4
            assert seen.all() if i < length else seen.tolist() == [False] * i + [True]
        # The first token has seen the whole text.
        touched = np.abs(model(other)["pooled_output"] - pooled).max(1) > 1e-4
        assert touched.tolist() == [i < length for length in LENGTHS]


def test_one_right_to_left_layer_is_the_bidirectional_one_on_every_end():
    config = _config(attention_direction="right_to_left", num_hidden_layers=1)
    model, oracle = BertPretrainer(config), BertPretrainer(_config(num_hidden_layers=1))
    _same_weights(model, oracle)
    inputs = _inputs()
    inputs["input_mask"][:] = 1
    states = model(inputs)["sequence_output"]
    for i in range(LENGTH):
        end = dict(inputs, input_mask=np.tile(np.arange(LENGTH) >= i, (3, 1)).astype(np.int32))
        expected = oracle(end)["sequence_output"][:, i]
        np.testing.assert_allclose(states[:, i], expected, atol=2e-6)


def test_left_to_right_gradient_stops_at_the_future():
    model = BertPretrainer(_left_to_right())
    model.build()
    inputs = _inputs()
    positions = model.encoder.embeddings.position_embeddings.value
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(inputs)["sequence_output"][:, 4]))
    gradient = np.abs(tf.convert_to_tensor(tape.gradient(loss, positions))).max(1)
    assert (gradient[:5] > 0).all() and not gradient[5:].any()


def test_left_to_right_padding_reaches_nothing_real():
    model = BertPretrainer(_left_to_right())
    inputs = _inputs()
    # Padding in front too: what sees no real token must not see the future instead.
    inputs["input_mask"][0, :3] = 0
    real = inputs["input_mask"] == 1
    other = dict(inputs, input_ids=np.where(real, inputs["input_ids"], 3))
    states, changed = (model(x)["sequence_output"].numpy() for x in (inputs, other))
    np.testing.assert_allclose(states[real], changed[real], atol=1e-6)
    alone = np.abs(states[0, :3] - model(_prefix(inputs, 3))["sequence_output"][0])
    assert alone.max() < 1e-5


def test_left_to_right_pools_the_last_real_token():
    model = BertPretrainer(_left_to_right())
    inputs = _inputs()
    pooled = model(inputs)["pooled_output"]
    dense = model.encoder.pooler
    for row, length in enumerate(LENGTHS):
        state = model(inputs)["sequence_output"].numpy()[row, length - 1]
        expected = np.tanh(state @ dense.kernel.numpy() + dense.bias.numpy())
        np.testing.assert_allclose(pooled[row], expected, atol=1e-5)
    # So every real token counts, and padding doesn't.
    for i in range(LENGTH):
        other = dict(inputs, input_ids=inputs["input_ids"].copy())
        other["input_ids"][:, i] = 1 + other["input_ids"][:, i] % (VOCAB - 1)
        changed = np.abs(model(other)["pooled_output"] - pooled).max(1)
        assert ((changed > 1e-4) == [i < length for length in LENGTHS]).all()
    nothing_real = dict(inputs, input_mask=np.zeros_like(inputs["input_mask"]))
    assert np.isfinite(model(nothing_real)["pooled_output"]).all()


def test_bidirectional_pools_the_first():
    model = BertPretrainer(_config())
    outputs = model(_inputs())
    dense = model.encoder.pooler
    first = outputs["sequence_output"].numpy()[:, 0]
    expected = np.tanh(first @ dense.kernel.numpy() + dense.bias.numpy())
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-5)


def test_direction_survives_saving(tmp_path):
    model = BertClassifier(_left_to_right(), 2)
    expected = model(_inputs())["logits"]
    checkpoints.save(model, tmp_path / "saved")
    config = BertConfig.from_json_file(tmp_path / "saved/bert_config.json")
    again = BertClassifier(config, 2)
    checkpoints.load(again, tmp_path / "saved", required=("",))
    np.testing.assert_array_equal(again(_inputs())["logits"], expected)
    with pytest.raises(ModelingError, match="attention_direction 'left_to_right'"):
        checkpoints.save(model, tmp_path / "theirs", format="huggingface")
    assert not (tmp_path / "theirs/config.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("config", [_config(), _left_to_right()])
@pytest.mark.parametrize("remat", [False, True])
def test_without_next_sentences_it_learns_and_compiles(config, remat):
    """Every position of the batch is predicted, so left to right this is a language model."""
    model = BertPretrainer(config, next_sentence=False, remat=remat)
    names = list(checkpoints.weights_by_name(model))
    assert not any("seq_relationship" in name for name in names)
    batch = {name: tf.constant(values) for name, values in _inputs().items()}
    batch["masked_lm_positions"] = tf.tile(tf.range(LENGTH - 1)[None], [3, 1])
    batch["masked_lm_ids"] = batch["input_ids"][:, 1:]
    batch["masked_lm_weights"] = tf.cast(batch["input_mask"][:, 1:], tf.float32)
    batch["next_sentence_labels"] = tf.zeros((3, 1), tf.int32)
    outputs = model(batch)
    assert "next_sentence_logits" not in outputs
    assert outputs["masked_lm_logits"].shape == (3, LENGTH - 1, VOCAB)
    variables = [w.value for w in model.trainable_weights if "pooler" not in w.path]

    def step(batch):
        with tf.GradientTape() as tape:
            outputs = model(batch, dropout_key=tf.constant([1, 2, 3]))
            losses, _ = PretrainingLosses(next_sentence=False)(outputs, batch)
            loss = tf.add_n([mean.result() for mean in losses.values()])
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
        return loss

    compiled = tf.function(step, jit_compile=True)
    first = compiled(batch)
    for _ in range(30):
        last = compiled(batch)
    assert last < 0.7 * first
    hlo = compiled.experimental_get_compiler_ir(batch)(stage="hlo")
    assert "custom-call" not in hlo and "<=" not in hlo and "f64" not in hlo
