"""Checkpoints that `tf.train.Checkpoint` wrote of Hugging Face's TensorFlow classes.

On disk the tensors are called after their place in the program that wrote them. The object graph
beside them says what each variable is called, and those are the names of tf_model.h5.
"""

import re

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from modeling.checkpoints import names, tf1
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.huggingface import huggingface_contents
from modeling.errors import ModelingError

HF_OBJECTS = "huggingface_objects"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Optimizer variables, of the old classes and of the new ones.
_OPTIMIZER = ("/.OPTIMIZER_SLOT/", "/_variables/")


class _Variables:
    """An object-based checkpoint, tensors read on demand.

    Attributes:
        path: The prefix.
        shapes: Key in the file → shape.
        variable_names: Key in the file → what the program called the variable.

    Raises:
        ModelingError: It isn't whole.
    """

    def __init__(self, prefix: str):
        self.path = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except tf1.READ_ERRORS as error:
            raise self._damaged("it", error) from error
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        try:
            graph = TrackableObjectGraph.FromString(self.read(_OBJECT_GRAPH))
        except (DecodeError, TypeError) as error:
            raise self._damaged("its object graph", error) from error
        attributes = (attribute for node in graph.nodes for attribute in node.attributes)
        self.variable_names = {
            attribute.checkpoint_key: attribute.full_name
            for attribute in attributes
            if attribute.checkpoint_key in self.shapes
        }

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored dtype."""
        try:
            return self._reader.get_tensor(name)
        except tf1.READ_ERRORS as error:
            raise self._damaged(f"its tensor {name}", error) from error

    def _damaged(self, part: str, error: Exception) -> ModelingError:
        return ModelingError(
            f"{self.path} is a TensorFlow checkpoint, but {part} can't be read: {error}. Its "
            f".index and .data files must both be whole and belong together; copy them again."
        )


def hf_objects_file(path: str) -> str | None:
    """The prefix of a Hugging Face object checkpoint at a prefix, one of its files or a folder.

    Raises:
        ModelingError: A damaged object checkpoint, several of these in the folder, or a
            `checkpoint` file that isn't one.
    """
    if tf.io.gfile.isdir(path):
        prefixes = tf1.tf1_prefixes_in(path)
    else:
        prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
        prefixes = [prefix] if tf1.is_tf1_prefix(prefix) else []
    found = [prefix for prefix in prefixes if _is_huggingface(prefix)]
    if len(found) > 1:
        raise ModelingError(
            f"The folder {path} holds several checkpoints of Hugging Face's TensorFlow classes: "
            f"{', '.join(found[:6])}. Give the one to read instead of the folder."
        )
    return found[0] if found else None


def _is_huggingface(prefix: str) -> bool:
    try:
        if not tf.train.load_checkpoint(prefix).has_tensor(_OBJECT_GRAPH):
            return False
    except tf1.READ_ERRORS:  # which the original's reader describes
        return False
    variable_names = _Variables(prefix).variable_names.values()
    return any("/layer_._" in name and names.from_huggingface(name) for name in variable_names)


def hf_objects_contents(file: str) -> Contents:
    """What the checkpoint holds, under the original's names.

    Raises:
        ModelingError: A damaged checkpoint, or two models in it.
    """
    held = _Variables(file)
    ignored = [
        key
        for key, shape in held.shapes.items()
        if shape == () or any(part in key for part in _OPTIMIZER)
    ]
    return huggingface_contents(
        file,
        HF_OBJECTS,
        dict.fromkeys(held.shapes, held),
        translate=lambda key: names.from_huggingface(held.variable_names.get(key) or key),
        ignored=ignored,
    )
