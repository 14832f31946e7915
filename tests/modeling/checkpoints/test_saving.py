"""Saving: the original's file set, all or nothing, and bit-exact round trips."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints import saving, tf1
from modeling.checkpoints.formats import keras_hub_writing
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertPretrainer
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 13,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}
RELEASE = ["bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"]


@pytest.fixture
def model():
    model = BertPretrainer(BertConfig(**CONFIG))
    weights = numpy_bert.random_weights(CONFIG)
    for name, variable in checkpoints.weights_by_name(model).items():
        variable.assign(weights[name])
    return model


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("[PAD]\r\n[UNK]\né\n".encode())
    return path


def _names(folder):
    return sorted(os.listdir(folder))


def test_release_is_the_original_s_file_set(model, vocab, tmp_path):
    out = tmp_path / "out"
    written = checkpoints.save(model, out, vocab_file=vocab)
    assert _names(out) == [*RELEASE, "vocab.txt"]
    assert written == [str(out / name) for name in _names(out)]
    assert (out / "vocab.txt").read_bytes() == vocab.read_bytes()
    stored = dict(tf.train.list_variables(str(out / "bert_model.ckpt")))
    shapes = numpy_bert.variable_shapes(CONFIG)
    assert stored == {name: list(shape) for name, shape in shapes.items()}
    text = (out / "bert_config.json").read_text("utf-8")
    assert text == model.config.to_json_string()


def test_golden_release_comes_back_byte_by_byte(golden, tmp_path):
    model = BertPretrainer(BertConfig.from_json_file(golden / "tiny/bert_config.json"))
    checkpoints.load(model, golden / "tiny")
    checkpoints.save(model, tmp_path)
    assert _names(tmp_path) == RELEASE
    for name in RELEASE[1:]:
        assert (tmp_path / name).read_bytes() == (golden / "tiny" / name).read_bytes()
    ours, theirs = (
        json.loads((p / RELEASE[0]).read_text("utf-8")) for p in (tmp_path, golden / "tiny")
    )
    assert ours == theirs


def test_saved_twice_gives_the_same_bytes(model, tmp_path):
    for format in checkpoints.FORMATS:
        one, other = tmp_path / f"{format}1", tmp_path / f"{format}2"
        checkpoints.save(model, one, format=format)
        checkpoints.save(model, other, format=format)
        assert _names(one) == _names(other)
        for name in _names(one):
            assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("head", ["pretraining", "classifier"])
def test_round_trip_tf1_huggingface_tf1(tmp_path, head):
    weights = numpy_bert.random_weights(CONFIG, heads=(head,), labels=3)

    def make():
        config = BertConfig(**CONFIG)
        return BertPretrainer(config) if head == "pretraining" else BertClassifier(config, 3)

    tf1.write_bundle(tmp_path / "first/bert_model.ckpt", weights)
    one, other = make(), make()
    checkpoints.load(one, tmp_path / "first", required=("",))
    checkpoints.save(one, tmp_path / "second", format="huggingface")
    report = checkpoints.load(other, tmp_path / "second", required=("",))
    assert not report.left_over
    checkpoints.save(other, tmp_path / "third")
    for name in RELEASE[1:]:
        first, third = (tmp_path / folder / name for folder in ("first", "third"))
        assert first.read_bytes() == third.read_bytes()


def test_a_pooler_without_a_place_is_told_of(tmp_path, caplog):
    """Hugging Face's class of a masked-LM head has none."""
    model = BertPretrainer(BertConfig(**CONFIG).with_head("masked_lm"), next_sentence=False)
    model.build()
    checkpoints.save(model, tmp_path / "a", format="huggingface")
    assert "has no place for bert/pooler/dense/bias, bert/pooler/dense/kernel" in caplog.text
    caplog.clear()
    checkpoints.save(model, tmp_path / "b")
    assert "no place" not in caplog.text
    bare = BertPretrainer(BertConfig(**CONFIG))
    bare.build()
    checkpoints.save(bare, tmp_path / "c", format="huggingface")
    assert "names no head" in caplog.text and "config.with_head" in caplog.text


def test_saving_over_an_older_release(model, vocab, tmp_path):
    out = tmp_path / "out"
    checkpoints.save(model, out, vocab_file=vocab)
    weight = checkpoints.weights_by_name(model)["bert/pooler/dense/bias"]
    weight.assign(weight + 1)
    checkpoints.save(model, out, vocab_file=out / "vocab.txt")
    stored = tf1.read_bundle(checkpoints.find(out)[1])["bert/pooler/dense/bias"]
    np.testing.assert_array_equal(stored, weight.numpy())
    assert _names(out) == [*RELEASE, "vocab.txt"]


@pytest.mark.parametrize("format", checkpoints.FORMATS)
def test_failed_save_leaves_the_old_files(model, tmp_path, monkeypatch, format):
    checkpoints.save(model, tmp_path, format=format)
    before = {name: (tmp_path / name).read_bytes() for name in _names(tmp_path)}
    weight = checkpoints.weights_by_name(model)["bert/pooler/dense/bias"]
    weight.assign(weight + 1)

    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    # The last thing written, so that the weights are already in the temporary folder.
    last = {
        "tf1": (BertConfig, "to_json_string"),
        "huggingface": (BertConfig, "to_huggingface_dict"),
        "keras_hub": (keras_hub_writing, "write_staged_text"),
    }
    monkeypatch.setattr(*last[format], full)
    with pytest.raises(ModelingError, match="No space left"):
        checkpoints.save(model, tmp_path, format=format)
    assert {name: (tmp_path / name).read_bytes() for name in _names(tmp_path)} == before


def test_vocabulary_that_cannot_be(model, tmp_path):
    with pytest.raises(ModelingError, match=r"nowhere\.txt can't be read"):
        checkpoints.save(model, tmp_path / "out", vocab_file=tmp_path / "nowhere.txt")
    long = tmp_path / "long.txt"
    long.write_text("".join(f"w{i}\n" for i in range(14)))
    with pytest.raises(ModelingError, match="14 entries, but the configuration's vocab_size is 13"):
        checkpoints.save(model, tmp_path / "out", vocab_file=long)
    assert not (tmp_path / "out").exists()


def test_target_that_is_a_file(model, vocab):
    with pytest.raises(ModelingError, match="Can't write to the folder"):
        checkpoints.save(model, vocab)


def test_unknown_format(model, tmp_path):
    with pytest.raises(ModelingError, match="'keras'; expected one of tf1, huggingface"):
        checkpoints.save(model, tmp_path, format="keras")


def test_weight_without_a_huggingface_name(model, tmp_path, monkeypatch):
    named = checkpoints.weights_by_name(model)
    named["tagger/kernel"] = named["bert/pooler/dense/kernel"]
    monkeypatch.setattr(saving.names, "weights_by_name", lambda _: named)
    with pytest.raises(ModelingError, match="tagger/kernel have no name"):
        checkpoints.save(model, tmp_path / "out", format="huggingface")
    assert not (tmp_path / "out").exists()
    checkpoints.save(model, tmp_path / "out")
    assert "tagger/kernel" in tf1.read_bundle(checkpoints.find(tmp_path / "out")[1])


def test_half_precision_model_is_saved_in_float32(tmp_path):
    model = BertPretrainer(BertConfig(**CONFIG), dtype="bfloat16")
    checkpoints.save(model, tmp_path)
    assert {
        str(array.dtype) for array in tf1.read_bundle(checkpoints.find(tmp_path)[1]).values()
    } == {"float32"}
