"""Spans against brute force over all of them, their losses in float64, models put together."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.answers.spans import SpanLogits, SpanSearch, _row_spans, merge_span_arrays
from modeling.config import BertConfig
from modeling.losses import SpanLosses
from modeling.models import BertQuestionAnswering

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    type_vocab_size=2,
)


def make_rows(rng, count: int, length: int, whole_numbers: bool) -> dict[str, np.ndarray]:
    """Random logits, with ties if they're whole numbers, and rows [CLS] … [SEP] … [SEP]."""
    first = rng.integers(2, length - 1, count)
    total = np.array([rng.integers(f + 1, length + 1) for f in first])
    total[0] = first[0] + 1  # no context at all
    place = np.arange(length)
    begin = rng.integers(first, total)
    mask = (place < total[:, np.newaxis]).astype(np.int32)
    logits = rng.normal(0, 3, (2, count, length))
    if whole_numbers:
        logits = np.round(logits / 2)
    return {
        "start_logits": logits[0].astype(np.float32),
        "end_logits": logits[1].astype(np.float32),
        "input_mask": mask,
        "segment_ids": mask * (place >= first[:, np.newaxis]),
        "start_range": np.stack([begin, rng.integers(begin, total)], 1).astype(np.int32),
    }


def all_spans(rows, row: int, longest: int) -> list[tuple]:
    """(start logit, end logit, start, end) of all that is allowed, the best first."""
    inside = np.flatnonzero(rows["segment_ids"][row])[:-1]
    low, high = rows["start_range"][row]
    starts, ends = rows["start_logits"][row], rows["end_logits"][row]
    spans = [
        (starts[i], ends[j], i, j)
        for i in inside
        for j in inside
        if low <= i < high and i <= j < i + longest
    ]
    return sorted(spans, key=lambda span: -(span[0] + span[1]))  # stable


def found_spans(rows, n_best: int, longest: int) -> np.ndarray:
    names = ("start_logits", "end_logits", "input_mask", "segment_ids", "start_range")
    return _row_spans(*(tf.constant(rows[name]) for name in names), n_best, longest).numpy()


@pytest.mark.parametrize(
    ("length", "n_best", "longest", "ties"),
    [(12, 5, 4, False), (12, 5, 4, True), (7, 60, 30, False), (12, 1, 1, True), (5, 20, 2, True)],
)
def test_all_spans_are_compared(length, n_best, longest, ties):
    rng = np.random.default_rng(length + n_best)
    rows = make_rows(rng, 40, length, ties)
    found = found_spans(rows, n_best, longest)
    assert found.shape == (40, n_best + 1, 4)
    full = 0
    for row in range(40):
        wanted = all_spans(rows, row, longest)[:n_best]
        np.testing.assert_array_equal(found[row, : len(wanted)], np.reshape(wanted, (-1, 4)))
        # What is lacking can't be taken for a span, and points into the row.
        lacking = found[row, len(wanted) : n_best]
        assert (lacking[:, :2].sum(1) < -5e8).all()
        assert (lacking[:, 2:] >= 0).all() and (lacking[:, 2:] < length).all()
        null = rows["start_logits"][row, 0], rows["end_logits"][row, 0], 0, 0
        np.testing.assert_array_equal(found[row, n_best], null)
        full += len(wanted) == n_best
    assert full > 0 or n_best >= 20


@pytest.mark.parametrize(("n_best", "ties"), [(4, False), (4, True), (25, True), (1, False)])
def test_windows_of_a_question_together(n_best, ties):
    rng = np.random.default_rng(n_best)
    counts = np.array([1, 3, 1, 5, 2, 1, 4])
    rows = make_rows(rng, counts.sum(), 9, ties)
    impossible = np.repeat(np.arange(len(counts)) == 4, counts)
    rows["start_range"][impossible] = 3
    merged = merge_span_arrays(found_spans(rows, n_best, 3), counts)
    assert all(len(values) == len(counts) for values in merged)
    row = 0
    for question, count in enumerate(counts):
        of_question = range(row, row + count)
        spans = [(*span, r) for r in of_question for span in all_spans(rows, r, 3)[:n_best]]
        spans.sort(key=lambda span: -(span[0] + span[1]))
        wanted = spans[:n_best]
        possible = merged.possible[question]
        assert possible.sum() == len(wanted) and possible[: len(wanted)].all()
        for number, span in enumerate(wanted):
            got = (
                merged.start_logits[question, number],
                merged.end_logits[question, number],
                merged.starts[question, number],
                merged.ends[question, number],
                merged.rows[question, number],
            )
            assert got == span
        assert set(merged.rows[question]) <= set(of_question)  # of what is lacking, too
        nulls = [(rows["start_logits"][r, 0], rows["end_logits"][r, 0]) for r in of_question]
        null = merged.null_starts[question], merged.null_ends[question]
        assert null == min(nulls, key=sum)
        row += count
    assert not merged.possible[4].any()


def reference_losses(starts, ends, labels, mask, real):
    """(mean loss, share of rows with both places right) in float64, places of padding removed."""
    losses, right = [], []
    for row in np.flatnonzero(real):
        there = mask[row] == 1
        parts = []
        for logits, label in ((starts, labels[row, 0]), (ends, labels[row, 1])):
            values = logits[row, there].astype(np.float64)
            parts.append(np.log(np.exp(values - values.max()).sum()) + values.max() - values[label])
        losses.append(sum(parts) / 2)
        hits = [np.where(there, x[row], -np.inf).argmax() for x in (starts, ends)]
        right.append(hits == labels[row].tolist())
    return np.mean(losses), np.mean(right)


def loss_case():
    rng = np.random.default_rng(4)
    lengths = np.array([9, 5, 7, 3, 9, 0])
    mask = (np.arange(9) < lengths[:, np.newaxis]).astype(np.int32)
    starts, ends = rng.normal(0, 3, (2, 6, 9)).astype(np.float32)
    labels = np.array([[2, 4], [0, 0], [6, 6], [1, 2], [8, 8], [0, 0]], np.int32)
    starts[[1, 2], [0, 6]] = ends[[1, 2], [0, 6]] = 20
    starts[1, 7] = 50  # padding
    return starts, ends, labels, mask, np.array([1, 1, 1, 1, 1, 0.0])


def given_losses(starts, ends, labels, mask, real=None):
    batch = {"label_ids": tf.constant(labels), "input_mask": tf.constant(mask)}
    if real is not None:
        batch["is_real_example"] = tf.constant(real, tf.float32)
    outputs = {"start_logits": tf.constant(starts), "end_logits": tf.constant(ends)}
    losses, metrics = SpanLosses()(outputs, batch)
    weight = SpanLosses().weights(batch)
    assert list(losses) == list(weight) == ["loss"] and list(metrics) == ["accuracy"]
    np.testing.assert_array_equal(weight["loss"], losses["loss"].weight)
    return losses["loss"], metrics["accuracy"]


def test_losses_against_float64():
    case = loss_case()
    wanted_loss, wanted_accuracy = reference_losses(*case)
    loss, accuracy = given_losses(*case)
    np.testing.assert_allclose(loss.result(), wanted_loss, rtol=1e-6)
    np.testing.assert_allclose(accuracy.result(), wanted_accuracy, rtol=1e-6)
    assert 0 < wanted_accuracy < 1 and loss.weight == 5
    # Parts of a batch add up.
    parts = [given_losses(*(x[rows] for x in case))[0] for rows in (slice(2), slice(2, 6))]
    np.testing.assert_allclose(sum(p.total for p in parts), loss.total, rtol=1e-6)
    # Without is_real_example all rows count.
    loss, _ = given_losses(*(x[:5] for x in case[:4]))
    np.testing.assert_allclose(loss.result(), wanted_loss, rtol=1e-6)


def test_losses_do_not_depend_on_padding():
    starts, ends, labels, mask, real = loss_case()

    def gradients(width):
        rng = np.random.default_rng(width)
        more = rng.normal(0, 30, (2, 6, width)).astype(np.float32)
        logits = [tf.constant(np.concatenate(p, 1)) for p in zip((starts, ends), more, strict=True)]
        wider = np.pad(mask, [[0, 0], [0, width]])
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = given_losses(*logits, labels, wider, real)[0].result()
        return loss.numpy(), [g.numpy() for g in tape.gradient(loss, logits)]

    loss, found = gradients(0)
    for width in (1, 12):
        wider_loss, wider = gradients(width)
        np.testing.assert_allclose(wider_loss, loss, rtol=1e-6)
        for narrow, wide in zip(found, wider, strict=True):
            np.testing.assert_allclose(wide[:, :9], narrow, rtol=1e-5, atol=1e-7)
            assert not wide[:, 9:].any() and not wide[:, :9][mask == 0].any()


def make_model(seed: int, **changes) -> BertQuestionAnswering:
    model = BertQuestionAnswering(BertConfig(**(CONFIG.to_dict() | changes)))
    model.build()
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    return model


def test_logits_of_several_models_are_averaged():
    rng = np.random.default_rng(0)
    rows = make_rows(rng, 6, 12, False)
    batch = {name: tf.constant(rows[name]) for name in ("input_mask", "segment_ids")}
    batch["input_ids"] = tf.constant(rng.integers(0, 20, (6, 12)), tf.int32)
    batch["start_range"] = tf.constant(rows["start_range"])
    models = [make_model(1), make_model(2, hidden_size=4, num_hidden_layers=2)]
    each = [model(batch) for model in models]
    found = SpanLogits(models)(batch)
    for place, name in enumerate(("start_logits", "end_logits")):
        wanted = (np.asarray(each[0][name]) + np.asarray(each[1][name])) / 2
        assert np.abs(each[0][name] - each[1][name]).max() > 0.1
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["span_logits"][..., place], found[name])
        alone = SpanLogits(models[:1])(batch)[name]
        np.testing.assert_array_equal(alone, each[0][name])
    searched = SpanSearch(models, 3, 4)(batch)["spans"]
    averaged = rows | {name: found[name].numpy() for name in ("start_logits", "end_logits")}
    np.testing.assert_array_equal(searched, found_spans(averaged, 3, 4))


def test_the_originals_weights(golden):
    """Those of a checkpoint with a SQuAD head; logits are a product with the last layer."""
    path = str(golden / "tiny2" / "model.ckpt")
    model = BertQuestionAnswering(BertConfig.from_json_file(golden / "tiny2" / "bert_config.json"))
    report = checkpoints.load(model, path, required=("",))
    assert {"cls/squad/output_weights", "cls/squad/output_bias"} <= set(report.loaded)
    reader = tf.train.load_checkpoint(path)
    weights, bias = (reader.get_tensor(f"cls/squad/output_{n}") for n in ("weights", "bias"))
    assert weights.shape == (2, model.config.hidden_size)
    rng = np.random.default_rng(1)
    ids = rng.integers(0, model.config.vocab_size, (2, 10)).astype(np.int32)
    outputs = model({"input_ids": tf.constant(ids)})
    logits = np.asarray(outputs["sequence_output"]) @ weights.T + bias
    for place, name in enumerate(("start_logits", "end_logits")):
        assert outputs[name].shape == (2, 10) and outputs[name].dtype == tf.float32
        np.testing.assert_allclose(outputs[name], logits[..., place], rtol=1e-5, atol=1e-6)
