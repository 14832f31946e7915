"""Checkpoints of the original release: TF1 bundles, tensors by name in `.index` and `.data`.

`bert_model.ckpt` is a prefix, not a file: the bundle is `bert_model.ckpt.index` and
`bert_model.ckpt.data-00000-of-00001`.
"""

import functools
import math
import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents, Weight, checked_weight, dtype_of_weight
from modeling.checkpoints.files import join
from modeling.errors import ModelingError
from modeling.logs import counted

RELEASE_NAME = "bert_model.ckpt"

# TensorFlow's reader turns status codes into whichever Python exception sounds alike: a cut data
# file is an IndexError.
READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, LookupError, OSError)

# TF2's object-based checkpoints are bundles too, but their keys are paths through Python objects.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def is_tf1_prefix(path: str) -> bool:
    """Whether a bundle has exactly this prefix."""
    return tf.io.gfile.exists(f"{path}.index")


def tf1_prefixes_in(directory: str) -> list[str]:
    """The bundles that a folder offers.

    That is `bert_model.ckpt`, the release, else the one that its `checkpoint` file names, else
    every bundle in the folder. A `checkpoint` file that names a folder which has moved is followed
    to the same name in this folder.
    """
    release = join(directory, RELEASE_NAME)
    if is_tf1_prefix(release):
        return [release]
    latest = _latest(directory)
    if latest:
        return [latest]
    entries = sorted(tf.io.gfile.listdir(directory))
    found = [entry.removesuffix(".index") for entry in entries if entry.endswith(".index")]
    # Other programs' indices end so, too (Faiss). Of bundles that all lost their data one is named.
    whole = [name for name in found if any(e.startswith(f"{name}.data-") for e in entries)]
    return [join(directory, name) for name in whole or found]


def is_run_checkpoint(prefix: str) -> bool:
    """Whether a bundle has the name of those that training leaves on its way."""
    return bool(re.fullmatch(r"model\.ckpt-\d+", os.path.basename(prefix)))


def _latest(directory: str) -> str | None:
    if not tf.io.gfile.exists(join(directory, "checkpoint")):
        return None
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError as error:
        raise ModelingError(
            f"{join(directory, 'checkpoint')} doesn't name a checkpoint ({error}). Remove it, or "
            f"name the checkpoint itself."
        ) from error
    if state is None or not state.model_checkpoint_path:
        return None
    moved = join(directory, os.path.basename(state.model_checkpoint_path))
    for prefix in (moved, state.model_checkpoint_path):
        if is_tf1_prefix(prefix):
            return prefix
    return None


def find_tf1_checkpoint(path: str | os.PathLike) -> str:
    """The prefix of the bundle that `path` means: a prefix, or one of its files.

    Raises:
        ModelingError: There is no bundle.
    """
    path = os.fspath(path)
    for prefix in (path, re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)):
        if is_tf1_prefix(prefix):
            return prefix
    raise ModelingError(
        f"There is no TF1 checkpoint at {path}: expected the file {path}.index beside its data."
    )


class Bundle:
    """The tensors of the bundle with a prefix, read on demand.

    Attributes:
        path: The prefix.
        shapes: Name → shape.
        dtypes: Name → dtype.

    Raises:
        ModelingError: It is damaged.
    """

    def __init__(self, prefix: str):
        self.path = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
            self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()
        except READ_ERRORS as error:
            raise ModelingError(
                f"The TF1 checkpoint {prefix} can't be opened: {error}. Its .index and .data files "
                f"must both be whole and belong together; copy them again."
            ) from error
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored shape and dtype."""
        try:
            # TensorFlow makes room for what the index says before it looks at the data.
            if math.prod(self.shapes[name]) * self.dtypes[name].size > self._length:
                raise ValueError(f"it has {list(self.shapes[name])} numbers, more than the data")
            return self._reader.get_tensor(name)
        except READ_ERRORS as error:
            raise ModelingError(
                f"Tensor {name} of the TF1 checkpoint {self.path} can't be read: {error}. Its "
                f".index and .data files must both be whole and belong together; copy them again."
            ) from error

    @functools.cached_property
    def _length(self) -> int:
        folder, name = os.path.split(self.path)
        files = [f for f in tf.io.gfile.listdir(folder or ".") if f.startswith(f"{name}.data-")]
        return sum(tf.io.gfile.stat(join(folder, file)).length for file in files)


def read_bundle(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the tensors of a TF1 bundle in their stored shapes and dtypes.

    Args:
        path: A prefix such as `…/bert_model.ckpt`, or one of its files.

    Returns:
        Tensors by name, sorted by name.

    Raises:
        ModelingError: No bundle, or a damaged one.
    """
    bundle = Bundle(find_tf1_checkpoint(path))
    return {name: bundle.read(name) for name in sorted(bundle.shapes)}


def write_bundle(prefix: str | os.PathLike, tensors: Mapping[str, Weight]) -> None:
    """Writes a TF1 bundle (one index, one data file) as the original release's Saver did.

    A reader may meet it half-written; `files.staged` is against that.

    Args:
        prefix: For example `…/bert_model.ckpt`; its folder is made if absent.
        tensors: Name → array. Dtypes are kept.
    """
    ordered = sorted(tensors)
    # Takes arrays as they are, where convert_to_tensor would leave two copies of them.
    as_tensor = tf.raw_ops.Identity
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=os.fspath(prefix),
            tensor_names=ordered,
            shape_and_slices=[""] * len(ordered),
            tensors=[
                as_tensor(input=np.asarray(tensors[name]))
                for name in counted("Collecting what is written", "weights", ordered)
            ],
        )


def contents(path: str | os.PathLike) -> Contents:
    """What the bundle at `path` holds. Nothing but names and shapes is read yet."""
    prefix = find_tf1_checkpoint(path)
    bundle = Bundle(prefix)
    shapes = bundle.shapes
    if OBJECT_GRAPH in shapes:
        raise ModelingError(
            f"{prefix} is an object-based TensorFlow 2 checkpoint, whose tensors are stored by "
            f"their place in a Python program, not by name. Expected the original release's "
            f"format with names such as {names.WORD_EMBEDDINGS}; export it in that format from "
            f"the program that wrote it."
        )
    weights = sorted(name for name in shapes if not names.is_bookkeeping(name))
    return Contents(
        path=prefix,
        format=names.TF1,
        shapes={name: shapes[name] for name in weights},
        dtypes={name: dtype_of_weight(bundle.dtypes[name]) for name in weights},
        file_names={name: name for name in weights},
        unmapped=[name for name in weights if names.to_huggingface(name) is None],
        ignored=sorted(set(shapes) - set(weights)),
        read=lambda name: checked_weight(bundle.read(name), name, prefix),
    )
