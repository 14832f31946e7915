"""Hugging Face's TensorFlow classes in HDF5: tf_model.h5, as `save_pretrained` wrote it.

Each layer of the model has a group of its own, in which its weights lie under the names of their
variables, as `bert/tf_bert_model/bert/pooler/dense/kernel:0`. A weight that two layers share lies
in both groups.
"""

import os

import h5py
import numpy as np
import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import join
from modeling.checkpoints.huggingface import (
    LocalFile,
    equal_tensors,
    huggingface_contents,
    located_tensors,
)
from modeling.errors import ModelingError

HF_H5 = "huggingface_h5"
_FILE_NAME = "tf_model.h5"
_INDEX_NAME = "tf_model.h5.index.json"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_DEEPEST = 32  # groups inside groups; these files have about ten
_READ_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError)


class _H5File:
    """An HDF5 file, its names read, tensors read on demand. Links aren't followed.

    Attributes:
        path: As given; any path that tf.io.gfile knows.
        shapes: Path of a dataset inside the file → shape.

    Raises:
        ModelingError: It isn't whole, or nests groups without end.
    """

    def __init__(self, path: str):
        self.path = path
        self._local = LocalFile(path)
        self.shapes: dict[str, tuple[int, ...]] = {}
        try:
            with self._open() as file:
                self._walk(file)
        except ModelingError:
            raise
        except _READ_ERRORS as error:
            raise ModelingError(
                f"{path} is not a whole HDF5 file: {str(error)[:300]}. Copy or download it again."
            ) from error

    def _open(self) -> h5py.File:
        # For each use anew: HDF5 lets nobody write a file that is open.
        return h5py.File(self._local.path, "r")

    def _walk(self, file: h5py.File) -> None:
        groups, seen = [("", file, 0)], {h5py.h5o.get_info(file.id).addr}
        while groups:
            prefix, group, depth = groups.pop()
            if depth > _DEEPEST:
                raise ModelingError(
                    f"{self.path} has groups nested more than {_DEEPEST} deep, where a model's "
                    f"file has about ten: it is damaged, or no model. Download it again."
                )
            for key in group:
                name = f"{prefix}{key}"
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    continue  # it may lead to another file
                entry = group[key]
                address = h5py.h5o.get_info(entry.id).addr
                if isinstance(entry, h5py.Group) and address not in seen:
                    seen.add(address)
                    groups.append((f"{name}/", entry, depth + 1))
                elif isinstance(entry, h5py.Dataset):
                    self.shapes[name] = entry.shape or ()

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored dtype; its bytes must stand in this file as they are."""
        try:
            with self._open() as file:
                dataset = file[name]
                # Else a few bytes could stand for any number of them, or for another file's.
                size = (dataset.size or 0) * dataset.dtype.itemsize
                elsewhere = dataset.is_virtual or dataset.external
                if not elsewhere and dataset.id.get_storage_size() == size:
                    return dataset[()]
        except _READ_ERRORS as error:
            raise ModelingError(
                f"Tensor {name} in {self.path} can't be read: {str(error)[:300]}. Copy or "
                f"download the file again."
            ) from error
        raise ModelingError(
            f"Tensor {name} in {self.path} is compressed, incomplete or stored in another file; "
            f"expected a plain array, as save_pretrained and save_weights write it. Save the model "
            f"again, or download the file again."
        )


def _is_h5(path: str) -> bool:
    """Whether a file begins as HDF5 does."""
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE


def hf_h5_file(path: str) -> str | None:
    """The HDF5 file of Hugging Face's TensorFlow classes at a file's or folder's path.

    Raises:
        ModelingError: A damaged HDF5 file, or several of these in the folder.
    """
    if not tf.io.gfile.isdir(path):
        if not tf.io.gfile.exists(path):
            return None
        return path if path.endswith(".h5.index.json") or _is_huggingface(path) else None
    entries = sorted(tf.io.gfile.listdir(path))
    if _INDEX_NAME in entries and _FILE_NAME not in entries:
        return join(path, _INDEX_NAME)
    files = [join(path, entry) for entry in entries if entry.endswith(".h5")]
    if _FILE_NAME in entries:
        files = [join(path, _FILE_NAME)]
    found = [file for file in files if _is_huggingface(file)]
    if len(found) > 1:
        raise ModelingError(
            f"The folder {path} holds several HDF5 files of Hugging Face's: "
            f"{', '.join(os.path.basename(file) for file in found)}. Give the one to read."
        )
    return found[0] if found else None


def _is_huggingface(path: str) -> bool:
    return _is_h5(path) and any(
        "/bert/" in f"/{name}" and names.from_huggingface(name) for name in _H5File(path).shapes
    )


def hf_h5_contents(file: str) -> Contents:
    """What a file or shard index holds, under the original's names; equal copies are ignored.

    Raises:
        ModelingError: A damaged file, or copies that differ.
    """
    if file.endswith(".json"):
        return huggingface_contents(file, HF_H5, located_tensors(file, ".h5", _H5File))
    held = _H5File(file)
    first: dict[str, str] = {}
    ignored = [name for name in held.shapes if name.startswith("optimizer_weights/")]
    for name in sorted(held.shapes.keys() - set(ignored)):
        variable = name.removeprefix("model_weights/").partition("/")[2]
        other = first.setdefault(variable, name)
        if other == name:
            continue
        if not equal_tensors(held, name, held, other):
            raise ModelingError(
                f"{file} holds {variable} twice, as {other} and as {name}, and the two differ; "
                f"layers that share a weight hold equal copies of it. The file is damaged or put "
                f"together from two models: save the model again."
            )
        ignored.append(name)
    where = dict.fromkeys(held.shapes, held)
    return huggingface_contents(file, HF_H5, where, ignored=ignored)
