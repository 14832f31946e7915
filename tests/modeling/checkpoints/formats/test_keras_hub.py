"""KerasHub's files, made layer by layer as Keras lays them out, whole and damaged."""

import dataclasses
import json
import re
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from modeling import checkpoints
from modeling.checkpoints.formats import keras_hub
from modeling.checkpoints.vocabularies import TextFolding, text_folding
from modeling.errors import ModelingError
from modeling.models import BertPretrainer

HEADS, SIZE, INNER, WORDS = 2, 3, 5, 11
WIDTH = HEADS * SIZE
ATTENTION = "_self_attention_layer"
LAYER = {
    f"{ATTENTION}/query_dense": [(WIDTH, HEADS, SIZE), (HEADS, SIZE)],
    f"{ATTENTION}/key_dense": [(WIDTH, HEADS, SIZE), (HEADS, SIZE)],
    f"{ATTENTION}/value_dense": [(WIDTH, HEADS, SIZE), (HEADS, SIZE)],
    f"{ATTENTION}/output_dense": [(HEADS, SIZE, WIDTH), (WIDTH,)],
    f"{ATTENTION}_norm": [(WIDTH,), (WIDTH,)],
    "_feedforward_intermediate_dense": [(WIDTH, INNER), (INNER,)],
    "_feedforward_output_dense": [(INNER, WIDTH), (WIDTH,)],
    "_feedforward_layer_norm": [(WIDTH,), (WIDTH,)],
}
ENCODER = {
    "reversible_embedding": [(WORDS, WIDTH)],
    "position_embedding": [(7, WIDTH)],
    "embedding": [(2, WIDTH)],
    "layer_normalization": [(WIDTH,), (WIDTH,)],
    "dense": [(WIDTH, WIDTH), (WIDTH,)],
    **{f"transformer_encoder/{part}": shapes for part, shapes in LAYER.items()},
    **{f"transformer_encoder_1/{part}": shapes for part, shapes in LAYER.items()},
}
MASKED_LM = {
    "masked_lm_head": [(WORDS,)],
    "masked_lm_head/_intermediate_dense": [(WIDTH, WIDTH), (WIDTH,)],
    "masked_lm_head/_intermediate_layer_norm": [(WIDTH,), (WIDTH,)],
}
IN_TASK = "layers/bert_backbone/"
CONFIG = {
    "class_name": "BertBackbone",
    "config": {
        "vocabulary_size": WORDS,
        "num_layers": 2,
        "num_heads": HEADS,
        "hidden_dim": WIDTH,
        "intermediate_dim": INNER,
        "dropout": 0.2,
        "max_sequence_length": 7,
        "num_segments": 2,
    },
}


def _write(path, layers, root="", mode="w"):
    random = np.random.default_rng(0)
    with h5py.File(path, mode) as file:
        for layer, shapes in layers.items():
            for number, shape in enumerate(shapes):
                values = random.normal(size=shape).astype(np.float32)
                file[f"{root}layers/{layer}/vars/{number}"] = values
    return path


def _of(path, name):
    with h5py.File(path) as file:
        return file[name][()]


def _archive(path, weights, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("config.json", json.dumps(CONFIG))
        archive.write(weights, "model.weights.h5")
    return path


def test_backbone_without_a_configuration(tmp_path):
    file = _write(tmp_path / "any.name", ENCODER)
    held = checkpoints.open_contents(tmp_path)
    assert (held.path, held.format, held.unmapped) == (str(file), "keras_hub", [])
    assert len(held.shapes) == 39
    query = _of(file, f"layers/transformer_encoder_1/{ATTENTION}/query_dense/vars/0")
    read = held.read("bert/encoder/layer_1/attention/self/query/kernel")
    np.testing.assert_array_equal(read, query.reshape(WIDTH, WIDTH))
    config = checkpoints.config_of_checkpoint(held)
    assert (config.num_attention_heads, config.num_hidden_layers) == (HEADS, 2)
    assert config.max_position_embeddings == 7


def test_masked_lm_head_has_its_own_activation_and_epsilon(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda message, *parts: warnings.append(parts[0]))
    file = _write(tmp_path / "mlm.weights.h5", ENCODER, IN_TASK)
    _write(file, MASKED_LM, mode="a")
    held = checkpoints.open_contents(file)
    assert len(held.shapes) == 39 + 5
    assert not held.unmapped
    config = checkpoints.config_of_checkpoint(held)
    assert (config.hidden_act, config.layer_norm_eps) == ("gelu", 1e-12)
    assert config.masked_lm_form == ("gelu_erf", 1e-5)
    encoder = dataclasses.replace(config, masked_lm_hidden_act=None, masked_lm_layer_norm_eps=None)
    for of_model, warned in ((config, 0), (encoder, 1)):
        checkpoints.load(BertPretrainer(of_model), file)
        assert len(warnings) == warned
    words = "computes gelu_erf and adds 1e-05 .* computes gelu and adds 1e-12"
    assert re.search(words, warnings[0])
    for format in checkpoints.FORMATS:
        out = tmp_path / format
        result = checkpoints.convert(file, out, format)
        noted = any(re.search(words, note) for note in result.notes)
        assert noted == (format != "keras_hub")  # which computes the same
        again = checkpoints.config_of_checkpoint(checkpoints.open_contents(out))
        assert again.masked_lm_form == config.masked_lm_form


def test_classifier_preset_in_two_files(tmp_path):
    _write(tmp_path / "model.weights.h5", ENCODER)
    task = _write(tmp_path / "task.weights.h5", {"dense": [(WIDTH, 3), (3,)]})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tokenizer = {"lowercase": True, "strip_accents": False}
    tokenizer = {"class_name": "BertTokenizer", "config": tokenizer}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    vocabulary = tmp_path / "assets" / "tokenizer" / "vocabulary.txt"
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text("[PAD]\n" * WORDS)
    for path in (tmp_path, task):
        held = checkpoints.open_contents(path)
        assert len(held.shapes) == 39 + 2
        kernel = _of(task, "layers/dense/vars/0")
        np.testing.assert_array_equal(held.read("output_weights"), kernel.T)
        assert checkpoints.config_of_checkpoint(held).hidden_dropout_prob == 0.2
        assert keras_hub.keras_hub_folding(held.path) == (True, False)
        assert text_folding(path) == TextFolding(True, False)
    assert checkpoints.convert(tmp_path, tmp_path / "out", "tf1").config.hidden_size == WIDTH
    assert (tmp_path / "out" / "vocab.txt").read_text() == vocabulary.read_text()


def test_bfloat16(tmp_path):
    file = _write(tmp_path / "a.weights.h5", ENCODER)
    name = "layers/dense/vars/1"
    values = tf.constant(np.arange(WIDTH), tf.bfloat16).numpy()
    with h5py.File(file, "a") as opened:
        del opened[name]
        opened.create_dataset(name, data=values).attrs["dtype"] = "bfloat16"
    read = checkpoints.open_contents(file).read("bert/pooler/dense/bias")
    np.testing.assert_array_equal(read, np.arange(WIDTH, dtype=np.float32))


def test_archive(tmp_path):
    weights = _write(tmp_path / "weights", ENCODER)
    archive = _archive(tmp_path / "a.keras", weights)
    held = checkpoints.open_contents(archive)
    assert len(held.shapes) == 39
    assert checkpoints.config_of_checkpoint(held).attention_probs_dropout_prob == 0.2
    with pytest.raises(ModelingError, match=r"several checkpoints: .*a\.keras, .*weights"):
        checkpoints.open_contents(tmp_path)
    packed = _archive(tmp_path / "b.keras", weights, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelingError, match=r"compressed"):
        checkpoints.open_contents(packed)


def test_other_broken_files_in_the_folder_do_no_harm(tmp_path):
    file = _write(tmp_path / "model.weights.h5", ENCODER)
    archive = _archive(tmp_path / "logs.zip", file)
    archive.write_bytes(archive.read_bytes()[:100])
    assert checkpoints.open_contents(tmp_path).path == str(file)
    with pytest.raises(ModelingError, match=r"logs\.zip begins as a zip archive"):
        checkpoints.open_contents(archive)


def test_other_models_are_refused_by_name(tmp_path):
    _write(tmp_path / "model.weights.h5", ENCODER)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "class_name": "ElectraBackbone"}))
    with pytest.raises(ModelingError, match="ElectraBackbone"):
        checkpoints.open_contents(tmp_path)
    (tmp_path / "config.json").unlink()
    file = _write(tmp_path / "two", ENCODER, "layers/one/")
    _write(file, ENCODER, "layers/other/", mode="a")
    with pytest.raises(ModelingError, match="2 encoders"):
        keras_hub.keras_hub_contents(str(file))
    assert keras_hub.keras_hub_file(str(_write(tmp_path / "c", {"dense": [(2, 2)]}))) is None


def test_hostile(tmp_path):
    """Links to other files, and few bytes that claim to be many."""
    secret = _write(tmp_path / "secret", {"dense": [(WIDTH, WIDTH), (WIDTH,)]})
    encoder = {name: shapes for name, shapes in ENCODER.items() if name != "dense"}
    file = _write(tmp_path / "hostile.h5", encoder)
    with h5py.File(file, "a") as opened:
        opened["layers/dense/vars/0"] = h5py.ExternalLink(str(secret), "layers/dense/vars/0")
        del opened["layers/embedding/vars/0"]
        opened.create_dataset(
            "layers/embedding/vars/0", (2**40, WIDTH), np.float32, chunks=(1, WIDTH)
        )
        raw = [(str(secret), 0, 4 * WIDTH)]
        opened.create_dataset("layers/dense/vars/1", (WIDTH,), np.float32, external=raw)
    held = checkpoints.open_contents(file)
    assert "bert/pooler/dense/kernel" not in held.shapes
    for name in ("bert/pooler/dense/bias", "bert/embeddings/token_type_embeddings"):
        with pytest.raises(ModelingError, match="stored in another file"):
            held.read(name)


@pytest.mark.parametrize("kind", ["weights", "archive"])
@pytest.mark.parametrize("damage", ["truncated", "shuffled"])
def test_damaged(tmp_path, kind, damage):
    file = _write(tmp_path / "a", ENCODER)
    if kind == "archive":
        file = _archive(tmp_path / "a.keras", file)
    content = file.read_bytes()
    third = len(content) // 3
    blocks = content[:third], content[third : 2 * third], content[2 * third :]
    file.write_bytes(blocks[0] if damage == "truncated" else blocks[0] + blocks[2] + blocks[1])
    with pytest.raises(ModelingError, match=rf"{file.name}.* again") as raised:
        held = checkpoints.open_contents(file)
        for name in held.shapes:
            held.read(name)
    assert "\n\n" not in str(raised.value)
