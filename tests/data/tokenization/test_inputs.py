"""[CLS] A [SEP] B [SEP] against the original's recorded features and its loop."""

import json

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.tokenization import Tokenizer, build_inputs
from data.tokenization.inputs import _truncated_lengths

NAMES = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture(scope="module")
def tokenizer(shared_data) -> Tokenizer:
    return Tokenizer(str(shared_data / "vocab/bert-uncased-en/vocab.txt"))


@pytest.fixture(scope="module")
def recorded(golden) -> dict:
    return json.loads((golden / "classifier_features_50.json").read_text(encoding="utf-8"))


def test_recorded_features(tokenizer, recorded):
    cases = recorded["cases"]
    assert len(cases) == 50
    inputs = build_inputs(
        tokenizer,
        [case["text_a"] for case in cases],
        [case["text_b"] or "" for case in cases],
        recorded["max_seq_length"],
    )
    for name in NAMES:
        assert inputs[name].dtype == tf.int32
        assert inputs[name].numpy().tolist() == [case[name] for case in cases]


def test_recorded_truncation(recorded):
    table = np.array(recorded["truncate_to_9"])
    keep_a, keep_b = _truncated_lengths(tf.constant(table[:, 0]), tf.constant(table[:, 1]), 9)
    assert np.array_equal(np.stack([keep_a, keep_b], 1), table[:, 2:])


def test_truncation_equals_the_loop():
    lengths = np.array([(a, b) for a in range(30) for b in range(30)])
    for limit in range(31):
        keep = _truncated_lengths(tf.constant(lengths[:, 0]), tf.constant(lengths[:, 1]), limit)
        for (a, b), kept in zip(lengths.tolist(), np.stack(keep, 1).tolist(), strict=True):
            while a + b > limit:
                if a > b:
                    a -= 1
                else:
                    b -= 1
            assert kept == [a, b]


def test_single_texts(tokenizer):
    text = "one two three four five six seven"
    ids = tokenizer.tokenize(text).numpy().tolist()
    inputs = build_inputs(tokenizer, [text, ""], max_seq_length=6)
    assert inputs["input_ids"].numpy().tolist() == [[101, *ids[:4], 102], [101, 102, 0, 0, 0, 0]]
    assert inputs["input_mask"].numpy().tolist() == [[1] * 6, [1, 1, 0, 0, 0, 0]]
    assert not inputs["segment_ids"].numpy().any()


@pytest.mark.parametrize("second", ["", " ", "\u0301 \u200b"])
def test_second_text_without_pieces(tokenizer, second):
    """Then it is a single sentence, with the limit of one."""
    text = "one two three four five six seven"
    pair = build_inputs(tokenizer, [text], [second], 8)
    single = build_inputs(tokenizer, [text], None, 8)
    assert single["input_ids"][0, -2].numpy() == tokenizer.tokenize("six")[0]
    for name in NAMES:
        assert pair[name].numpy().tolist() == single[name].numpy().tolist()


def test_pad_to_longest_and_scalars(tokenizer):
    short = build_inputs(tokenizer, ["hi", "hi there"], ["you", ""], 16, pad_to="longest")
    full = build_inputs(tokenizer, ["hi", "hi there"], ["you", ""], 16)
    for name in NAMES:
        assert short[name].shape == (2, 5)
        assert full[name].shape == (2, 16)
        assert np.array_equal(short[name], full[name][:, :5])
        assert not full[name][:, 5:].numpy().any()
    one = build_inputs(tokenizer, "hi", "you", 16)
    assert one["input_ids"].shape == (16,)
    assert np.array_equal(one["input_ids"], full["input_ids"][0])


def test_static_shape_in_a_graph(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def build(text_a, text_b):
        inputs = build_inputs(tokenizer, text_a, text_b, 12)
        assert inputs["input_ids"].shape.as_list() == [None, 12]
        return inputs

    assert build(tf.constant(["a"] * 3), tf.constant(["b"] * 3))["segment_ids"].shape == (3, 12)
    assert build(tf.constant([], tf.string), tf.constant([], tf.string))["input_ids"].shape[0] == 0


def test_refused_arguments(tokenizer):
    with pytest.raises(DataError, match="max_seq_length is 2"):
        build_inputs(tokenizer, ["a"], max_seq_length=2)
    with pytest.raises(ValueError, match="longest"):
        build_inputs(tokenizer, ["a"], pad_to="short")
