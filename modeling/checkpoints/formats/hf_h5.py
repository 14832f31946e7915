"""Hugging Face's TensorFlow classes in HDF5: tf_model.h5, as `save_pretrained` wrote it.

Each layer of the model has a group of its own, in which its weights lie under the names of their
variables, as `bert/tf_bert_model/bert/pooler/dense/kernel:0`. A weight that two layers share lies
in both groups.
"""

import os

import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import join
from modeling.checkpoints.formats.h5_file import H5File, is_h5
from modeling.checkpoints.huggingface import (
    equal_tensors,
    huggingface_contents,
    located_tensors,
)
from modeling.errors import ModelingError

HF_H5 = "huggingface_h5"
_FILE_NAME = "tf_model.h5"
_INDEX_NAME = "tf_model.h5.index.json"


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
    files = [file for file in files if not tf.io.gfile.isdir(file)]
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
    return is_h5(path) and any(
        "/bert/" in f"/{name}" and names.from_huggingface(name) for name in H5File(path).shapes
    )


def hf_h5_contents(file: str) -> Contents:
    """What a file or shard index holds, under the original's names; equal copies are ignored.

    Raises:
        ModelingError: A damaged file, or copies that differ.
    """
    if file.endswith(".json"):
        return huggingface_contents(file, HF_H5, located_tensors(file, ".h5", H5File))
    held = H5File(file)
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
