"""Hugging Face checkpoints: model.safetensors beside config.json and vocab.txt.

Reads single files and sharded ones (model.safetensors.index.json), of the PyTorch classes and of
the TensorFlow ones. Writes what transformers writes for its PyTorch BERT classes: dense kernels
transposed, the masked-LM output matrix left out because it is tied to the word embeddings,
`{"format": "pt"}` in the metadata. What their other formats have in common stands here too.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import safetensors
import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import (
    Contents,
    Weight,
    checked_weight,
    dtype_of_weight,
    read_bytes,
    weights_as_float32,
)
from modeling.checkpoints.files import join, refuse_lfs_pointer, write_staged_text
from modeling.checkpoints.heads import checkpoint_head
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.logs import counted

FILE_NAME = "model.safetensors"
SHARD_INDEX_NAME = "model.safetensors.index.json"
_DTYPES = {
    code: np.dtype(f"{code[0].lower()}{int(code[1:]) // 8}")
    for code in ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
} | {"BF16": np.dtype(tf.bfloat16.as_numpy_dtype), "BOOL": np.dtype(bool)}
_WRITTEN_AT_ONCE = 1 << 22  # bytes
_LONGEST_HEADER = 1 << 22  # bytes; that of a BERT-large has 50,000
# No path, neither up nor absolute nor of another file system.
_SHARD = re.compile(r"[^/\\:\0]+")

# What belongs to each head besides the encoder, by the beginnings of original names. Of those of
# several classes nothing else may be in a file, and of some not the pooler either.
_OF_HEAD = {
    "pretraining": ("cls/predictions/", "cls/seq_relationship/"),
    "masked_lm": ("cls/predictions/",),
    "next_sentence": ("cls/seq_relationship/",),
    "spans": ("cls/squad/",),
    None: (),
}
_OUTPUTS = ("output_",)
_WITHOUT_POOLER = ("masked_lm", "spans", "tags")


class TensorFile(Protocol):
    """An open file of named tensors.

    Attributes:
        path: For messages.
        shapes: Name → shape.
        dtypes: Name → stored dtype.
    """

    path: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: Mapping[str, Any]

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored dtype."""


class LocalFile:
    """A file for packages that read local files only; another file system's is copied.

    Attributes:
        path: The file itself or its copy, which is there as long as this object is.
    """

    def __init__(self, path: str):
        self.path = path
        if "://" in path:
            self._folder = tempfile.TemporaryDirectory()
            self.path = os.path.join(self._folder.name, "copy")
            tf.io.gfile.copy(path, self.path)


class SafetensorsFile:
    """One file, header read and checked, tensors read on demand.

    The package checks the file, but reading is done here: it maps the file into memory, all of
    which would count as this process's, and whose end would be the process's if the file is cut.

    Attributes:
        path: As given; any path that tf.io.gfile knows.
        shapes: Name → shape.
        dtypes: Name → stored dtype; one that NumPy lacks is absent.

    Raises:
        ModelingError: It isn't whole, or no such file.
    """

    def __init__(self, path: str):
        self.path = path
        self._local = LocalFile(path)
        try:
            with open(self._local.path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = file.read(min(length, _LONGEST_HEADER))
            refuse_lfs_pointer(path)
            if length > _LONGEST_HEADER:
                raise ValueError(f"its header would have {length:,} bytes")
            with safetensors.safe_open(self._local.path, "numpy"):
                self._header = json.loads(header)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ModelingError(
                f"{path} is not a whole safetensors file: {error}. Copy or download it again."
            ) from error
        self._header.pop("__metadata__", None)
        self._start = 8 + length
        self.shapes = {name: tuple(entry["shape"]) for name, entry in self._header.items()}
        kinds = {name: entry["dtype"] for name, entry in self._header.items()}
        self.dtypes = {name: _DTYPES[kind] for name, kind in kinds.items() if kind in _DTYPES}

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored dtype."""
        if name not in self.dtypes:
            raise ModelingError(
                f"Tensor {name} in {self.path} has dtype {self._header[name]['dtype']}, which "
                f"can't be read here. Expected numbers that NumPy has, or bfloat16."
            )
        start, end = self._header[name]["data_offsets"]
        try:
            with open(self._local.path, "rb") as file:
                file.seek(self._start + start)
                data = read_bytes(file, end - start)
        except (OSError, EOFError) as error:
            raise ModelingError(
                f"Tensor {name} in {self.path} can't be read: {error}. Copy or download it again."
            ) from error
        return data.view(self.dtypes[name]).reshape(self.shapes[name])


def huggingface_files(directory: str) -> list[str]:
    """The checkpoints that a folder offers: model.safetensors, a shard index, or other files."""
    entries = sorted(tf.io.gfile.listdir(directory))
    for usual in (FILE_NAME, SHARD_INDEX_NAME):
        if usual in entries:
            return [join(directory, usual)]
    return [join(directory, entry) for entry in entries if entry.endswith(".safetensors")]


def contents(path: str) -> Contents:
    """What a file or shard index holds, under the original's names. No weights are read yet.

    Raises:
        ModelingError: A damaged file, or two names for one weight.
    """
    where = located_tensors(path, ".safetensors", SafetensorsFile)
    return huggingface_contents(path, names.HUGGINGFACE, where)


def huggingface_contents(
    path: str,
    format: str,
    where: Mapping[str, TensorFile],
    translate: Callable[[str], Any] = names.from_huggingface,
    ignored: Iterable[str] = (),
) -> Contents:
    """The contents of files that hold Hugging Face's weights.

    A `cls.predictions.decoder.weight` that equals the word embeddings is the tie, not a weight;
    one that differs is left unmapped and flagged as `untied_decoder`.

    Args:
        path, format: As in `Contents`.
        where: Tensor name → the file that holds it.
        translate: Name → original name and whether it is transposed, or None.
        ignored: Names in `where` that are known to be no weights.

    Raises:
        ModelingError: Two names for one weight.
    """
    file_names: dict[str, str] = {}
    transposed: set[str] = set()
    unmapped, ignored = [], [*ignored]
    ties = {}
    for name in sorted(where.keys() - set(ignored)):
        original = translate(name)
        if names.is_bookkeeping(name):
            ignored.append(name)
        elif original and original.name in file_names:
            raise ModelingError(
                f"{path} holds the weight {original.name} twice, as {file_names[original.name]} "
                f"and as {name}. It must hold one model; remove one of them."
            )
        elif original:
            file_names[original.name] = name
            if original.transposed:
                transposed.add(original.name)
        elif names.plain_huggingface(name) in names.TIED:
            ties[name] = names.TIED[names.plain_huggingface(name)]
        else:
            unmapped.append(name)
    untied = False
    for name, original in ties.items():
        if original not in file_names:
            file_names[original] = name
        elif equal_tensors(where[name], name, where[file_names[original]], file_names[original]):
            ignored.append(name)
        else:
            unmapped.append(name)
            untied = True

    def read(name: str) -> np.ndarray:
        file = where[file_names[name]]
        array = checked_weight(file.read(file_names[name]), file_names[name], file.path)
        return array.T if name in transposed else array

    shapes = {name: where[file_names[name]].shapes[file_names[name]] for name in sorted(file_names)}
    shapes |= {name: shapes[name][::-1] for name in transposed}
    stored = {
        name: where[file_names[name]].dtypes.get(file_names[name], np.float32) for name in shapes
    }
    return Contents(
        path=path,
        format=format,
        shapes=shapes,
        dtypes={name: dtype_of_weight(dtype) for name, dtype in stored.items()},
        file_names=file_names,
        unmapped=sorted(unmapped),
        ignored=sorted(ignored),
        read=read,
        untied_decoder=untied,
    )


def equal_tensors(file: TensorFile, name: str, other_file: TensorFile, other: str) -> bool:
    """Whether two tensors hold the same numbers; only one of them is in memory at a time."""
    if file.shapes[name] != other_file.shapes[other]:
        return False
    one, two = (
        hashlib.blake2b(np.ascontiguousarray(weights_as_float32(f.read(n)))).digest()
        for f, n in ((file, name), (other_file, other))
    )
    return one == two


def located_tensors(
    path: str, ending: str, open_file: Callable[[str], TensorFile]
) -> dict[str, TensorFile]:
    """Tensor name → the file that holds it, following a shard index.

    Args:
        path: A file, or a shard index, which ends in .json.
        ending: What the names of shards must end in.
        open_file: Opens one file.

    Raises:
        ModelingError: An index that names what isn't beside it, or is none.
    """
    if not path.endswith(".json"):
        whole = open_file(path)
        return dict.fromkeys(whole.shapes, whole)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(_LONGEST_HEADER)
    try:
        shard_of = dict(json.loads(content)["weight_map"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelingError(
            f"{path} is not an index of {ending} files: expected a JSON object with the key "
            f"weight_map, and in it a file's name for each tensor's."
        ) from error
    wrong = [
        shard
        for shard in shard_of.values()
        if not (_SHARD.fullmatch(str(shard)) and str(shard).endswith(ending))
    ]
    if wrong:
        raise ModelingError(
            f"{path} names {str(wrong[0])[:200]!r} for a tensor, where the name of a {ending} "
            f"file beside it was expected. Nothing outside its folder is read; put the files "
            f"beside it and write their names alone."
        )
    directory = os.path.dirname(path)
    shards = {}
    for shard in sorted(set(shard_of.values())):
        shard_path = join(directory, shard)
        if not tf.io.gfile.exists(shard_path):
            raise ModelingError(f"{path} names the file {shard}, which is not beside it.")
        shards[shard] = open_file(shard_path)
    where: dict[str, TensorFile] = {}
    for name, shard in shard_of.items():
        held = shards[shard].shapes
        # TensorFlow's classes write their own name before each in the index alone.
        stored = name if name in held else name.partition("/")[2]
        if stored not in held:
            raise ModelingError(f"{path} says that {shard} holds {name}, which it doesn't.")
        if stored in where:
            raise ModelingError(f"{path} names {stored} of {shard} twice; it must be of one model.")
        where[stored] = shards[shard]
    return where


def huggingface_weights(tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Original name → weight, renamed and laid out as in a file; what has no name is left out."""
    renamed = {}
    for name, array in tensors.items():
        translated = names.to_huggingface(name)
        if translated is not None:
            renamed[translated.name] = array.transpose() if translated.transposed else array
    return renamed


def huggingface_names(names_held: Iterable[str], head: str | None) -> set[str]:
    """Those of a set of original names that the class for a head has a place for."""
    parts = ("bert/", *_OF_HEAD.get(head, _OUTPUTS))
    poolerless = head in _WITHOUT_POOLER
    return {
        name
        for name in names_held
        if name.startswith(parts) and not (poolerless and name.startswith("bert/pooler/"))
    }


def _config_dict(config: BertConfig, tensors: Mapping[str, Weight]) -> dict[str, Any]:
    """The contents of config.json for these weights of the configuration's head.

    Adds what transformers builds its model from and our configuration doesn't hold: the number of
    labels, which it derives from the length of `id2label`, and the numbers' format.
    """
    values = config.to_huggingface_dict()
    values.pop("torch_dtype", None)
    values["dtype"] = str(np.result_type(*(tensor.dtype for tensor in tensors.values())))
    if config.head in ("classes", "multi_label", "regression", "tags"):
        labels = tensors["output_weights"].shape[0]
        if len(values.get("id2label", ())) != labels:
            values["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
            values["label2id"] = {f"LABEL_{i}": i for i in range(labels)}
    return values


def write_huggingface(directory: str, tensors: Mapping[str, Weight], config: BertConfig) -> None:
    """Writes model.safetensors and config.json into a folder that exists.

    Args:
        directory: The folder.
        tensors: Original name → weight; what the class has no place for is left out.
        config: Of the model; its `head` decides where the weights leave the class open.
    """
    head = checkpoint_head({name: array.shape for name, array in tensors.items()}, config)
    config = dataclasses.replace(config, head=head)
    kept = huggingface_names(tensors, config.head)
    tensors = {name: array for name, array in tensors.items() if name in kept}
    if config.head == "choices":  # The class has a bias, though it is the same for all choices.
        tensors.setdefault("output_bias", np.zeros(1, tensors["output_weights"].dtype))
    _write_safetensors(join(directory, FILE_NAME), huggingface_weights(tensors))
    content = json.dumps(_config_dict(config, tensors), indent=2, sort_keys=True) + "\n"
    write_staged_text(join(directory, "config.json"), content)


def _write_safetensors(path: str, tensors: Mapping[str, Weight]) -> None:
    """Writes the bytes that safetensors.numpy.save gives, one tensor after the other."""
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    code = {dtype: code for code, dtype in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        start, shape, dtype = end, tensors[name].shape, tensors[name].dtype
        end += math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": code[dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in counted(f"Writing {FILE_NAME}", "weights", order):
            data = np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8)
            for at in range(0, data.size, _WRITTEN_AT_ONCE):
                file.write(data[at : at + _WRITTEN_AT_ONCE].tobytes())
