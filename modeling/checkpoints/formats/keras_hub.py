"""KerasHub's files of BERT: presets, `.weights.h5` and `.keras`.

    A preset      model.weights.h5 (encoder), task.weights.h5 (head), config.json, task.json
    .keras        a zip archive of config.json and model.weights.h5
    .weights.h5   an HDF5 file; the encoder under layers/bert_backbone where a task holds it

Told by what lies inside. Names are those of layers by class and order:
layers/transformer_encoder_1/_self_attention_layer/query_dense/vars/0.
"""

import json
import os
import re
import zipfile
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import (
    Contents,
    checked_weight,
    dtype_of_weight,
    in_original_layout,
    original_shape,
)
from modeling.checkpoints.files import join
from modeling.checkpoints.formats.configs import KERAS_HUB_MASKED_LM
from modeling.checkpoints.formats.h5_file import H5File, is_h5
from modeling.checkpoints.huggingface import LocalFile
from modeling.errors import ModelingError

KERAS_HUB = "keras_hub"

_ZIP = b"PK\x03\x04"
_MODEL, _TASK = "model.weights.h5", "task.weights.h5"
_LARGEST_CONFIG = 10_000_000  # bytes
# What h5py raises on damage depends on where it is.
_READ_ERRORS = (OSError, RuntimeError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)
_READ_ERRORS += (NotImplementedError, tf.errors.OpError)
_WORDS = "layers/reversible_embedding/vars/0"

_NORM, _DENSE = ("gamma", "beta"), ("kernel", "bias")
_LAYER = {
    r"_self_attention_layer/_?query_dense": ("attention/self/query", _DENSE),
    r"_self_attention_layer/_?key_dense": ("attention/self/key", _DENSE),
    r"_self_attention_layer/_?value_dense": ("attention/self/value", _DENSE),
    r"_self_attention_layer/_?output_dense": ("attention/output/dense", _DENSE),
    r"_self_attention_layer_norm": ("attention/output/LayerNorm", _NORM),
    r"_feedforward_intermediate_dense": ("intermediate/dense", _DENSE),
    r"_feedforward_output_dense": ("output/dense", _DENSE),
    r"_feedforward_layer_norm": ("output/LayerNorm", _NORM),
}
_ENCODER = {
    r"layers/reversible_embedding": (names.WORD_EMBEDDINGS, ()),
    r"layers/position_embedding": ("bert/embeddings/position_embeddings", ()),
    r"layers/embedding": ("bert/embeddings/token_type_embeddings", ()),
    r"layers/layer_normalization": ("bert/embeddings/LayerNorm", _NORM),
    r"layers/dense": ("bert/pooler/dense", _DENSE),
}
_HEADS = {
    r"layers/masked_lm_head/_intermediate_dense": ("cls/predictions/transform/dense", _DENSE),
    r"layers/masked_lm_head/_intermediate_layer_norm": (
        "cls/predictions/transform/LayerNorm",
        _NORM,
    ),
    r"layers/masked_lm_head": (names.MASKED_LM_BIAS, ()),
    r"layers/dense": ("", ("output_weights", "output_bias")),
}


def keras_hub_file(path: str) -> str | None:
    """The file of KerasHub's BERT at `path`, a file or a folder; None if there is none.

    For a preset it is model.weights.h5; `keras_hub_contents` takes task.weights.h5 with it.

    Raises:
        ModelingError: An HDF5 file or zip archive that isn't whole, or a folder with several.
    """
    if not tf.io.gfile.isdir(path):
        return path if tf.io.gfile.exists(path) and _is_keras_hub(path) else None
    entries = [entry for entry in sorted(tf.io.gfile.listdir(path)) if not entry.endswith("/")]
    files = [join(path, entry) for entry in entries]
    files = [f for f in files if not tf.io.gfile.isdir(f) and _is_keras_hub_in_folder(f)]
    if len(files) > 1 and join(path, _MODEL) in files:
        return join(path, _MODEL)
    if len(files) > 1:
        raise ModelingError(
            f"The folder {path} holds several checkpoints: {', '.join(files)}. Give the one to "
            f"read instead of the folder."
        )
    return files[0] if files else None


def _is_keras_hub_in_folder(file: str) -> bool:
    try:
        return _is_keras_hub(file)
    except ModelingError:
        if file.endswith((".h5", ".keras")):
            raise
        return False  # What else lies beside a checkpoint may be broken.


def _is_keras_hub(file: str) -> bool:
    if file.endswith(".safetensors"):  # Their own reader says what is wrong with them.
        return False
    try:
        with tf.io.gfile.GFile(file, "rb") as opened:
            start = opened.read(len(_ZIP))
    except tf.errors.OpError:
        return False
    if start.startswith(_ZIP):
        try:
            with zipfile.ZipFile(tf.io.gfile.GFile(file, "rb")) as archive:
                if _MODEL not in archive.namelist():
                    return False
        except _READ_ERRORS as error:
            raise ModelingError(
                f"{file} begins as a zip archive does, as .keras files and PyTorch's do, but isn't "
                f"a whole one: {error}. Copy or download it again."
            ) from error
    elif not is_h5(file):
        return False
    stored = _weights_file(file)
    # The groups of layers are there in all of Keras's files; what BERT's hold no others do.
    return any(
        re.search(r"(^|/)layers/(transformer_encoder|masked_lm_head)/", name)
        for name in stored.shapes
    ) or (os.path.basename(file) == _TASK and bool(_other_part(file)))


def _other_part(file: str) -> str | None:
    """The other file of a preset that holds a task: the encoder's or the head's."""
    other = {_MODEL: _TASK, _TASK: _MODEL}.get(os.path.basename(file), "")
    beside = join(os.path.dirname(file), other)
    return beside if other and tf.io.gfile.exists(beside) else None


def _weights_file(path: str) -> H5File:
    return H5File(path, "" if is_h5(path) else _MODEL)


def keras_hub_contents(file: str) -> Contents:
    """What KerasHub's file holds, under the original's names.

    Raises:
        ModelingError: A damaged file, one with several encoders, or one of another model.
    """
    parts = [_weights_file(part) for part in (file, _other_part(file)) if part]
    config = keras_hub_config(file) or {}
    inner = config.get("config")
    backbone = inner.get("backbone", config) if isinstance(inner, dict) else config
    kind = backbone.get("class_name") if isinstance(backbone, dict) and backbone else "BertBackbone"
    if kind != "BertBackbone":
        raise ModelingError(
            f"{file} is of KerasHub's {str(kind)[:60]}; only BertBackbone, alone or in a task, is "
            f"read."
        )
    where: dict[str, tuple[H5File, str]] = {}
    unmapped, ignored = [], []
    for part in parts:
        roots = [n.removesuffix(_WORDS) for n in part.shapes if f"/{n}".endswith(f"/{_WORDS}")]
        if len(roots) > 1:
            raise ModelingError(
                f"{part.path} holds {len(roots)} encoders, under {', '.join(sorted(roots))}. It "
                f"must hold one."
            )
        for name, shape in part.shapes.items():
            inside = bool(roots) and name.startswith(f"{roots[0]}layers/")
            original = _original_name(name.removeprefix(roots[0]) if inside else name, inside)
            if name.startswith("optimizer/") or part.dtypes[name].kind in "iub" or not shape:
                ignored.append(name)
            elif original is None or original in where:
                unmapped.append(name)
            else:
                where[original] = (part, name)

    def read(name: str) -> np.ndarray:
        part, stored_name = where[name]
        array = checked_weight(part.read(stored_name), stored_name, part.path)
        return in_original_layout(name, array)

    own = {name: part.shapes[stored_name] for name, (part, stored_name) in where.items()}
    query = own.get("bert/encoder/layer_0/attention/self/query/kernel", ())
    return Contents(
        path=file,
        format=KERAS_HUB,
        shapes={name: original_shape(name, shape) for name, shape in sorted(own.items())},
        dtypes={name: dtype_of_weight(part.dtypes[n]) for name, (part, n) in where.items()},
        file_names={name: where[name][1] for name in sorted(where)},
        unmapped=sorted(unmapped),
        ignored=sorted(ignored),
        read=read,
        num_attention_heads=query[1] if len(query) == 3 else None,
        masked_lm=KERAS_HUB_MASKED_LM if names.MASKED_LM_BIAS in where else {},
    )


def _original_name(name: str, in_encoder: bool) -> str | None:
    path, _, number = name.rpartition("/vars/")
    table, scope = _ENCODER if in_encoder else _HEADS, ""
    layer = re.fullmatch(r"layers/transformer_encoder(?:_(\d+))?/(.+)", path)
    if in_encoder and layer:
        table, scope = _LAYER, f"bert/encoder/layer_{layer.group(1) or 0}/"
        path = layer.group(2)
    for pattern, (original, variables) in table.items():
        if re.fullmatch(pattern, path):
            if not variables:
                return f"{scope}{original}" if number == "0" else None
            if number in ("0", "1"):
                return f"{scope}{original}/{variables[int(number)]}".removeprefix("/")
    return None


def keras_hub_name(original: str) -> str | None:
    """The name in KerasHub's files of the weight of this original name; None if it has none.

    Those that begin with bert/ are in the encoder's file, the others in the task's.
    """
    layer = re.fullmatch(r"bert/encoder/layer_(\d+)/(.+)", original)
    table, scope = _ENCODER if original.startswith("bert/") else _HEADS, ""
    if layer:
        table, original = _LAYER, layer.group(2)
        scope = f"layers/transformer_encoder{f'_{layer.group(1)}' if int(layer.group(1)) else ''}/"
    for pattern, (ours, variables) in table.items():
        for number, variable in enumerate(variables or ("",)):
            if original == f"{ours}/{variable}".strip("/"):
                return f"{scope}{pattern.replace('_?', '')}/vars/{number}"
    return None


def keras_hub_config(file: str) -> dict[str, Any] | None:
    """KerasHub's configuration that belongs to a file: inside of it, or beside; None if none is.

    Raises:
        ModelingError: It isn't JSON.
    """
    config = None
    if not is_h5(file):
        local = LocalFile(file)
        try:
            with zipfile.ZipFile(local.path) as archive:
                if "config.json" in archive.namelist():
                    config = _json(archive.open("config.json").read(_LARGEST_CONFIG))
        except _READ_ERRORS as error:
            raise ModelingError(
                f"The config.json inside of {file} can't be read: {error}. Copy or download it "
                f"again."
            ) from error
    if config is None:
        config = _config_file(join(os.path.dirname(file), "config.json"))
    return config if config and "class_name" in config else None


def keras_hub_vocabulary(file: str) -> str | None:
    """Path of a preset's vocabulary, None if the file is of no preset or it has none."""
    folder = join(os.path.dirname(file), "assets")
    vocabulary = join(join(folder, "tokenizer"), "vocabulary.txt")
    return vocabulary if tf.io.gfile.exists(vocabulary) else None


def keras_hub_folding(file: str) -> tuple[bool | None, bool | None]:
    """Whether a preset's texts are lower-cased, and whether accents are stripped.

    That is what its tokenizer.json says; None where it says nothing.

    Raises:
        ModelingError: tokenizer.json isn't JSON.
    """
    told = _config_file(join(os.path.dirname(file), "tokenizer.json"))
    given = told.get("config") if told else None
    given = given if isinstance(given, dict) else {}
    lower, stripped = given.get("lowercase"), given.get("strip_accents")
    if not isinstance(lower, bool):
        return None, None
    return lower, stripped if isinstance(stripped, bool) else None


def _config_file(path: str) -> dict[str, Any] | None:
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as opened:
        content = opened.read(_LARGEST_CONFIG)
    try:
        return _json(content)
    except ValueError as error:
        raise ModelingError(
            f"{path} is no JSON object in UTF-8: {error}. Copy or download it again."
        ) from error


def _json(content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(values, dict):
        raise ValueError(f"expected an object, not a {type(values).__name__}")
    return values
