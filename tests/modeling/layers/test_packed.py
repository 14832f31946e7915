"""Rows of several sequences give what the same sequences give in rows of their own."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from data.pretraining.batches.packed_rows import PackedRowLimits, packed_row_window
from modeling import checkpoints
from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.errors import ModelingError
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from tests.reference import numpy_bert

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_act": "gelu",
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
# Rows may be longer than there are positions, since these start again.
ROW = PackedRowLimits(pieces=24, predictions=12, sequences=6, padding=1)
LENGTHS = [16, 9, 8, 7, 12, 12, 3, 5, 16, 4, 4, 11]


def _single():
    """Instances of these lengths, each in a row of its own."""
    config = SIZES
    inputs = numpy_bert.random_inputs(config, len(LENGTHS), 16, 3, seed=1)
    mask = (np.arange(16) < np.array(LENGTHS)[:, None]).astype(np.int32)
    rng = np.random.default_rng(2)
    inputs["input_ids"] = rng.integers(1, 40, mask.shape).astype(np.int32) * mask
    inputs["input_mask"] = mask
    inputs["segment_ids"] = rng.integers(0, 2, mask.shape).astype(np.int32) * mask
    positions = [np.sort(rng.permutation(n)[:3]) for n in LENGTHS]
    inputs["masked_lm_positions"] = np.stack(positions).astype(np.int32)
    del inputs["next_sentence_labels"]
    return inputs


@pytest.fixture(scope="module")
def packed():
    inputs = _single() | {"index": np.arange(len(LENGTHS), dtype=np.int64)}
    rows, _ = packed_row_window(inputs, ROW, np.random.default_rng(0))
    assert rows["index"].max(1).min() >= 0 and (rows["index"][:, 2] >= 0).any()
    return rows


def _unpacked(rows):
    """Each sequence of the rows alone in one, and where it was: (row, slice)."""
    singles, places = [], []
    for r, numbers in enumerate(rows["sequence_ids"]):
        for number in range(1, numbers.max() + 1):
            (at,) = np.nonzero(numbers == number)
            here = slice(at[0], at[-1] + 1)
            where = rows["masked_lm_positions"][r]
            own = (rows["masked_lm_weights"][r] > 0) & (where >= here.start) & (where < here.stop)
            single = {"input_mask": np.zeros(16, np.int32)}
            single["input_mask"][: len(at)] = 1
            for name in ("input_ids", "segment_ids"):
                single[name] = np.zeros(16, np.int32)
                single[name][: len(at)] = rows[name][r, here]
            for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
                values = rows[name][r, own]
                single[name] = np.zeros(3, values.dtype)
                single[name][: len(values)] = values
            single["masked_lm_positions"][: own.sum()] -= here.start
            singles.append(single)
            places.append((r, here))
    return {name: np.stack([s[name] for s in singles]) for name in singles[0]}, places


def _model(direction="bidirectional", remat=False, **kwargs):
    config = BertConfig(**SIZES, attention_direction=direction)
    model = BertPretrainer(config, next_sentence=False, remat=remat, **kwargs)
    weights = numpy_bert.random_weights(SIZES, seed=3)
    for name, variable in checkpoints.weights_by_name(model).items():
        variable.assign(weights[name])
    return model


def _tensors(rows):
    return {name: tf.constant(values) for name, values in rows.items()}


@pytest.mark.parametrize(
    ("direction", "run"),
    [
        ("bidirectional", "eager"),
        (LEFT_TO_RIGHT, "eager"),
        (LEFT_TO_RIGHT, "graph"),
        ("bidirectional", "xla"),
    ],
)
def test_the_vectors_are_those_of_single_sequences(packed, direction, run):
    model = _model(direction)
    forward = {
        "eager": model,
        "graph": tf.function(model),
        "xla": tf.function(model, jit_compile=True),
    }[run]
    singles, places = _unpacked(packed)
    outputs, expected = forward(_tensors(packed)), forward(_tensors(singles))
    for name in ("embedding_output", "sequence_output"):
        together, alone = outputs[name].numpy(), expected[name].numpy()
        for number, (row, here) in enumerate(places):
            length = here.stop - here.start
            np.testing.assert_allclose(together[row, here], alone[number, :length], atol=1e-5)


def test_against_the_oracle(packed):
    want = numpy_bert.forward(numpy_bert.random_weights(SIZES, seed=3), SIZES, packed)
    got = _model()(packed)
    real = packed["input_mask"] == 1
    for ours, theirs in zip(got["encoder_outputs"], want["encoder_outputs"], strict=True):
        np.testing.assert_allclose(ours.numpy()[real], theirs[real], atol=1e-5)
    predicted = packed["masked_lm_weights"] > 0
    log_probs = tf.nn.log_softmax(got["masked_lm_logits"]).numpy()
    np.testing.assert_allclose(
        log_probs[predicted], want["masked_lm_log_probs"][predicted], atol=1e-5
    )
    for probabilities in want["attention_probs"]:  # the oracle itself keeps sequences apart
        other = packed["sequence_ids"][:, :, None] != packed["sequence_ids"][:, None, :]
        other &= real[:, :, None]
        assert not probabilities.transpose(0, 2, 3, 1)[other].any()


def _losses_and_gradients(model, batch):
    variables = [w.value for w in model.trainable_weights if "pooler" not in w.path]

    @tf.function
    def run(batch):
        with tf.GradientTape() as tape:
            losses, metrics = PretrainingLosses(next_sentence=False)(model(batch), batch)
            loss = losses["masked_lm_loss"].result()
        gradients = tape.gradient(loss, variables)
        return losses, metrics, [tf.convert_to_tensor(g) for g in gradients]

    return run(_tensors(batch))


@pytest.mark.parametrize(("direction", "remat"), [("bidirectional", False), (LEFT_TO_RIGHT, True)])
def test_loss_and_gradients_are_those_of_single_sequences(packed, direction, remat):
    model = _model(direction, remat)
    singles, _ = _unpacked(packed)
    losses, metrics, gradients = _losses_and_gradients(model, packed)
    expected, wanted_metrics, wanted = _losses_and_gradients(model, singles)
    assert float(losses["masked_lm_loss"].weight) == packed["masked_lm_weights"].sum()
    for found, want in (
        (losses["masked_lm_loss"], expected["masked_lm_loss"]),
        (metrics["masked_lm_accuracy"], wanted_metrics["masked_lm_accuracy"]),
    ):
        np.testing.assert_allclose(found.result(), want.result(), rtol=1e-5)
        np.testing.assert_allclose(found.weight, want.weight)
    for found, want in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(found, want, atol=2e-6)
    assert tf.linalg.global_norm(gradients) > 0.1


def test_without_cuts_the_loss_is_that_of_the_instances():
    """Not by way of the packed rows: the very instances that went in."""
    inputs = _single()
    few = {name: values[[0, 1, 2, 4, 5]] for name, values in inputs.items()}  # 16+8, 9, 12+12
    rows, _ = packed_row_window(few, PackedRowLimits(24, 8, 6, 15), np.random.default_rng(0))
    assert rows["input_ids"].shape == (3, 24)
    assert sorted(rows["sequence_ids"].max(1)) == [1, 2, 2]
    model = _model()
    losses, metrics, gradients = _losses_and_gradients(model, rows)
    expected, _, wanted = _losses_and_gradients(model, few)
    np.testing.assert_allclose(
        losses["masked_lm_loss"].result(), expected["masked_lm_loss"].result(), rtol=1e-5
    )
    for found, want in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(found, want, atol=2e-6)
    np.testing.assert_allclose(metrics["sequences_per_row"].result(), 5 / 3, rtol=1e-6)
    rows["is_real_example"] = np.ones(4, np.float32)
    rows = {name: np.concatenate([v, 0 * v[:1]]) if len(v) == 3 else v for name, v in rows.items()}
    rows["is_real_example"][3] = 0
    _, metrics, _ = _losses_and_gradients(model, rows)
    np.testing.assert_allclose(metrics["sequences_per_row"].result(), 5 / 3, rtol=1e-6)


def test_one_sequence_per_row_is_the_plain_model():
    """Up to rounding, and exactly so in the embeddings."""
    inputs = _single()
    plain = _model()(inputs)
    given = dict(inputs, sequence_ids=inputs["input_mask"])
    given["position_ids"] = np.tile(np.arange(16, dtype=np.int32), (len(LENGTHS), 1))
    outputs = _model()(given)
    np.testing.assert_array_equal(outputs["embedding_output"], plain["embedding_output"])
    real = inputs["input_mask"] == 1
    np.testing.assert_allclose(
        outputs["sequence_output"].numpy()[real], plain["sequence_output"].numpy()[real], atol=1e-6
    )
    del given["input_mask"]  # the numbers tell padding as well
    again = _model()(given)
    np.testing.assert_array_equal(again["sequence_output"], outputs["sequence_output"])


def test_half_precision(packed):
    expected = _model()(packed)["masked_lm_logits"].numpy()
    outputs = _model(dtype="mixed_bfloat16")(packed)
    assert outputs["sequence_output"].dtype == tf.bfloat16
    predicted = packed["masked_lm_weights"] > 0
    difference = np.abs(outputs["masked_lm_logits"].numpy() - expected)[predicted]
    assert 0 < difference.max() < 0.25


@pytest.mark.parametrize("bad", [16, -1])
@pytest.mark.parametrize("graph", [False, True])
def test_positions_out_of_range_raise(packed, bad, graph):
    model = _model()
    rows = dict(packed, position_ids=packed["position_ids"].copy())
    rows["position_ids"][1, 2] = bad
    forward = tf.function(model) if graph else model
    with pytest.raises(tf.errors.InvalidArgumentError, match="position_ids must be from 0 to 15"):
        forward(_tensors(rows))


def test_next_sentences_need_rows_of_their_own(packed):
    model = BertPretrainer(BertConfig(**SIZES))
    with pytest.raises(ModelingError, match="--objective=mlm"):
        model(packed)


def test_dropout_is_that_of_the_row(packed):
    """Dropout still draws by place in the batch; a key gives the same numbers again."""
    config = dataclasses.replace(BertConfig(**SIZES), hidden_dropout_prob=0.5)
    model = BertPretrainer(config, next_sentence=False)
    key = tf.constant([1, 2, 3])
    one, other = (model(packed, dropout_key=key)["masked_lm_logits"] for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert np.abs(one - model(packed)["masked_lm_logits"]).max() > 1e-3
