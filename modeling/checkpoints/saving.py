"""Writing a model as a release: weights, configuration and vocabulary, complete or not at all."""

import functools
import os
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints import huggingface, names, tf1
from modeling.checkpoints.contents import (
    StoredWeight,
    Weight,
    dtype_of_weight,
    weights_as_float32,
)
from modeling.checkpoints.files import files_inside, join, staged, write_staged_text
from modeling.checkpoints.formats.keras_hub import KERAS_HUB
from modeling.checkpoints.formats.keras_hub_writing import (
    keras_hub_notes,
    preset_files,
    write_preset,
)
from modeling.checkpoints.heads import config_with_trained_head, fold_target_unit
from modeling.checkpoints.inspection.tokenizer_files import TOKENIZER_NAME, VOCABULARY_NAME
from modeling.checkpoints.vocabularies import TextFolding, tokenizer_config
from modeling.config import BertConfig
from modeling.errors import ModelingError

FORMATS = (names.TF1, names.HUGGINGFACE, KERAS_HUB)


def save(
    model: keras.Model,
    directory: str | os.PathLike,
    vocab_file: str | os.PathLike | None = None,
    format: str = names.TF1,
    folding: TextFolding | None = None,
) -> list[str]:
    """Saves a model's weights (no optimizer state) with its configuration and vocabulary.

    Format "tf1" writes what the original release consists of: bert_model.ckpt.index and
    .data-00000-of-00001 with the original's variable names and shapes, bert_config.json, and
    vocab.txt. "huggingface" writes model.safetensors, config.json and vocab.txt, which
    transformers' BERT classes load. "keras_hub" writes a preset, which KerasHub's BERT classes
    load; a head that they lack is left out with a warning.

    Args:
        model: Has a `config`, and weights that carry the original's names.
        directory: Made if absent. Files of the same names are replaced once all are complete.
        vocab_file: Copied as vocab.txt. Without it no vocab.txt is written.
        format: One of `FORMATS`.
        folding: How its texts are folded, for tokenizer_config.json, or tokenizer.json of a
            preset; without it none is written.

    Returns:
        The paths of the files written.

    Raises:
        ModelingError: The folder can't be written, the vocabulary can't be read or is larger
            than the configuration's, a weight has no name in the format, or KerasHub can't
            compute the model.
    """
    tensors = {name: _weight(variable) for name, variable in names.weights_by_name(model).items()}
    shapes = {name: weight.shape for name, weight in tensors.items()}
    config = config_with_trained_head(shapes, model.config, getattr(model, "head", None))
    tensors = fold_target_unit(tensors)
    if config.head == "next_sentence":
        # The other head of such a model is random, see `from_pretrained`.
        unused = getattr(model, "unused", ())
        tensors = {name: t for name, t in tensors.items() if not name.startswith(tuple(unused))}
    nameless = [name for name in tensors if names.to_huggingface(name) is None]
    if format != names.TF1 and nameless:
        raise ModelingError(
            f"The model's weights {', '.join(nameless)} have no name in the format {format!r}, so "
            f"nothing was written to {os.fspath(directory)}. Save with format='tf1'."
        )
    if format == names.HUGGINGFACE:
        left_out = sorted(set(tensors) - huggingface.huggingface_names(tensors, config.head))
        if left_out and config.head is None:
            logging.warning(
                "The configuration names no head, so that the encoder is written without %s; name "
                "it by config.with_head.",
                ", ".join(left_out),
            )
        elif left_out and config.head not in ("tags", "spans"):  # these never need a pooler
            logging.warning(
                "Hugging Face's class for a head of %s has no place for %s: left out.",
                config.head,
                ", ".join(left_out),
            )
    if format == KERAS_HUB:
        for note in keras_hub_notes(shapes, config, vocab_file is not None, folding):
            logging.warning("%s", note)
    return write_checkpoint(directory, tensors, config, vocab_file, format, folding)


def write_checkpoint(
    directory: str | os.PathLike,
    tensors: Mapping[str, Weight],
    config: BertConfig,
    vocab_file: str | os.PathLike | None = None,
    format: str = names.TF1,
    folding: TextFolding | None = None,
    beside: Mapping[str, str] | None = None,
) -> list[str]:
    """`save` for weights that are in no model: original name → array, or what reads one.

    Weights that the format has no name for are left out. `beside` are files that are copied with
    them, by the names that they get.
    """
    if format not in FORMATS:
        raise ModelingError(
            f"Unknown checkpoint format {format!r}; expected one of {', '.join(FORMATS)}."
        )
    directory = os.fspath(directory)
    vocab = None if vocab_file is None else _read_vocab(os.fspath(vocab_file), config)
    if format == KERAS_HUB:
        texts = preset_files(directory, tensors, config, vocab, folding)
    with staged(directory) as temporary:
        if format == KERAS_HUB:
            write_preset(temporary, tensors, config, texts)
        elif format == names.TF1:
            tf1.write_bundle(join(temporary, tf1.RELEASE_NAME), tensors)
            write_staged_text(join(temporary, "bert_config.json"), config.to_json_string())
        else:
            huggingface.write_huggingface(temporary, tensors, config)
        if format != KERAS_HUB and folding not in (None, TextFolding()):
            content = tokenizer_config(folding, config.max_position_embeddings)
            write_staged_text(join(temporary, TOKENIZER_NAME), content)
        if format != KERAS_HUB and vocab is not None:
            with tf.io.gfile.GFile(join(temporary, VOCABULARY_NAME), "wb") as file:
                file.write(vocab)
        for name, source in (beside or {}).items():
            tf.io.gfile.copy(source, join(temporary, name))
        written = [join(directory, name) for name in files_inside(temporary)]
    return written


def _weight(variable: keras.Variable) -> StoredWeight:
    dtype = dtype_of_weight(tf.as_dtype(variable.dtype))
    return StoredWeight(tuple(variable.shape), dtype, functools.partial(_array, variable))


def _array(variable: keras.Variable) -> np.ndarray:
    return weights_as_float32(np.asarray(variable.value))


def _read_vocab(path: str, config: BertConfig) -> bytes:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
    except tf.errors.OpError as error:
        raise ModelingError(
            f"The vocabulary file {path} can't be read: {error.message}."
        ) from error
    entries = len(content.rstrip().split(b"\n"))
    if entries > config.vocab_size:
        raise ModelingError(
            f"The vocabulary {path} has {entries} entries, but the configuration's vocab_size is "
            f"{config.vocab_size}: ids from {config.vocab_size} on have no embedding. Give the "
            f"vocabulary that the model was trained with."
        )
    return content
