"""Which formats a path could be, what each would make of it, and why not.

for one in list_formats("bert-base-uncased"): print(one.format, one.file, one.verdict)
print(describe_release("bert-base-uncased"))
"""

import math
import os
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from modeling.checkpoints import huggingface, names, tf1
from modeling.checkpoints.configurations import check_computable, config_of_checkpoint
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import listing_of_names
from modeling.checkpoints.formats.garden import GARDEN
from modeling.checkpoints.formats.hf_h5 import HF_H5
from modeling.checkpoints.formats.hf_objects import HF_OBJECTS
from modeling.checkpoints.formats.hub import HUB
from modeling.checkpoints.formats.keras_hub import KERAS_HUB
from modeling.checkpoints.formats.torch_file import PYTORCH
from modeling.checkpoints.heads import checkpoint_heads
from modeling.checkpoints.inspection import releases
from modeling.checkpoints.inspection.tokenizer_files import source_of_vocabulary
from modeling.checkpoints.loading import FORMATS_OF_OTHERS, find
from modeling.checkpoints.vocabularies import describe_vocabulary, vocabulary_file
from modeling.errors import ModelingError

# What a format's files are, and how their names end.
_EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    names.TF1: ("bert_model.ckpt.index with its .data file, or a run's model.ckpt-N", (".index",)),
    names.HUGGINGFACE: (
        "model.safetensors, or model.safetensors.index.json with its shards",
        (".safetensors", ".safetensors.index.json"),
    ),
    PYTORCH: (
        "pytorch_model.bin, or pytorch_model.bin.index.json with its shards",
        (".bin", ".pt", ".pth", ".ckpt", ".bin.index.json"),
    ),
    HF_H5: ("tf_model.h5 of a TFBert… class", (".h5", ".h5.index.json")),
    HF_OBJECTS: ("the .index and .data of a tf.train.Checkpoint of a TFBert… class", (".index",)),
    GARDEN: ("the .index and .data of Model Garden's bert_model.ckpt or ckpt-N", (".index",)),
    HUB: ("saved_model.pb and variables/ of a BERT encoder", ("saved_model.pb",)),
    KERAS_HUB: ("model.weights.h5 of a preset, or a .keras archive", (".h5", ".keras")),
}


class PossibleFormat(NamedTuple):
    """What a path is as one of the formats that are read.

    Attributes:
        format: Its short name, as in a `LoadReport`.
        file: What a reader of this format would take; "" where there is nothing for it.
        verdict: What that holds, or why it isn't of this format, in words.
        is_read: Whether it can be.
    """

    format: str
    file: str
    verdict: str
    is_read: bool


def list_formats(path: str | os.PathLike) -> list[PossibleFormat]:
    """What each format makes of a file, a prefix or a folder; reads names and shapes only.

    Raises:
        ModelingError: There is nothing at `path`.
    """
    path = os.fspath(path)
    if not (tf.io.gfile.exists(path) or tf1.is_tf1_prefix(path)):
        find(path)  # It says what lies nearby.
    return [_one(format_, path) for format_ in _EXPECTED]


def _one(format_: str, path: str) -> PossibleFormat:
    file = ""
    try:
        file = _file_of(format_, path) or ""
        if not file:
            return PossibleFormat(format_, "", _why_nothing(format_, path), False)
        held = _contents_of(format_, file)
        check_computable(held)
        # A bundle of any names can be opened; only BERT's make a checkpoint.
        if not any(name.startswith("bert/") for name in held.shapes):
            held_names = sorted({*held.unmapped, *held.file_names.values(), *held.ignored})
            found = f"it holds {', '.join(held_names[:3])}" if held_names else "it holds nothing"
            return PossibleFormat(format_, file, f"none of BERT's weights: {found}", False)
        return PossibleFormat(format_, file, _what_it_holds(held), True)
    except ModelingError as error:
        return PossibleFormat(format_, file, f"damaged or refused: {error}", False)


def _file_of(format_: str, path: str) -> str | None:
    other = FORMATS_OF_OTHERS.get(format_)
    if other:
        return other[0](path)
    if not tf.io.gfile.isdir(path):
        if format_ == names.TF1:
            is_part = path.endswith(".index") or ".data-" in os.path.basename(path)
            return tf1.find_tf1_checkpoint(path) if tf1.is_tf1_prefix(path) or is_part else None
        return path if path.endswith(_EXPECTED[format_][1]) else None
    in_folder: Callable[[str], list[str]] = {
        names.TF1: tf1.tf1_prefixes_in,
        names.HUGGINGFACE: huggingface.huggingface_files,
    }[format_]
    found = in_folder(path)
    if len(found) > 1:
        raise ModelingError(f"several: {', '.join(map(os.path.basename, found))}")
    return found[0] if found else None


def _contents_of(format_: str, file: str) -> Contents:
    other = FORMATS_OF_OTHERS.get(format_)
    return (
        other[1](file)
        if other
        else {names.TF1: tf1, names.HUGGINGFACE: huggingface}[format_].contents(file)
    )


def _why_nothing(format_: str, path: str) -> str:
    expected, endings = _EXPECTED[format_]
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path) or "."
    entries = tf.io.gfile.listdir(folder) if path == folder else [os.path.basename(path)]
    alike = [entry for entry in sorted(entries) if entry.endswith(endings)]
    if not alike:
        return f"expected {expected}; there is none"
    verb = "isn't it" if len(alike) == 1 else "aren't it"
    return f"expected {expected}; by what is inside, {', '.join(alike[:3])} {verb}"


def _what_it_holds(held: Contents) -> str:
    layers = names.number_of_checkpoint_layers(held.shapes)
    words = held.shapes.get(names.WORD_EMBEDDINGS)
    parameters = sum(math.prod(shape) for shape in held.shapes.values())
    parts = [f"{layers} layers", f"{words[1]} wide, {words[0]:,} tokens" if words else "no words"]
    parts.append(f"{parameters:,} parameters")
    if held.unmapped:
        parts.append(f"{len(held.unmapped)} weights of no known meaning: {held.unmapped[0]}, …")
    try:
        config = config_of_checkpoint(held)
        heads = checkpoint_heads(held.shapes, config, held.head)
        parts.append(f"heads: {', '.join(heads)}" if heads else "no head")
        parts.append(f"configuration: {os.path.basename(config.file or '') or 'from its weights'}")
    except ModelingError as error:
        parts.append(f"without a usable configuration: {error}")
    return "; ".join(parts)


def describe_release(path: str | os.PathLike) -> list[str]:
    """Sentences on what would be read, its vocabulary, and which release they are.

    Compares checksums; the weights' is computed only where their size is a release's.

    Raises:
        ModelingError: Nothing or several can be read.
    """
    format_, file = find(path)
    lines = [f"Read as {format_}: {file}"]
    if format_ == names.TF1:
        released = releases.released_weights(file)
        if released:
            lines.append(f"Weights: those of {released.name}, as released, to the last bit.")
    vocabulary = vocabulary_file(format_, file)
    if not vocabulary:
        nearby = listing_of_names(os.path.dirname(file) or ".")
        return [*lines, f"No vocabulary among what lies there: {nearby}."]
    tokens = describe_vocabulary(vocabulary)["tokens"]
    of = ", ".join(one.name for one in releases.released_vocabulary(vocabulary))
    source = source_of_vocabulary(vocabulary)
    return [*lines, f"Vocabulary: {source}, {tokens:,} tokens" + (f", of {of}." if of else ".")]
