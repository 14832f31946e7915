"""Object-based TensorFlow checkpoints: tensors by their path through a program's objects.

The path that is a tensor's key is only the shortest one (tied word embeddings may lie under the
masked-LM head), so tensors are identified by what else the stored graph of objects tells: each
variable's own name, and which attributes lead to it.
"""

import dataclasses
import re

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from modeling.checkpoints import tf1
from modeling.errors import ModelingError

_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"


@dataclasses.dataclass(frozen=True)
class ObjectVariable:
    """A variable of an object-based checkpoint.

    Attributes:
        node: Its number in the graph of objects.
        key: The tensor's key.
        name: The variable's name in the program, such as word_embeddings/embeddings.
        shape: Of the tensor.
        dtype: Of the tensor.
    """

    node: int
    key: str
    name: str
    shape: tuple[int, ...]
    dtype: tf.DType


class ObjectCheckpoint:
    """Graph and tensors of an object-based checkpoint; tensors are read on demand.

    Attributes:
        prefix: Of the bundle, as `tf1.find_tf1_checkpoint` gives it.
        variables: All variables but those of an optimizer.
        ignored: Keys of all other tensors, sorted.

    Raises:
        ModelingError: A damaged file.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
            dtypes = self._reader.get_variable_to_dtype_map()
            graph = TrackableObjectGraph.FromString(self._reader.get_tensor(_GRAPH_KEY))
        except (*tf1.READ_ERRORS, DecodeError) as error:
            raise self._damaged("", error) from error
        self._children = [{c.local_name: c.node_id for c in node.children} for node in graph.nodes]
        self.variables = []
        for number, node in enumerate(graph.nodes):
            for stored in node.attributes:
                key = stored.checkpoint_key
                # Slots carry the names of the variables that they belong to.
                if stored.name == _VALUE and key in shapes and "optimizer" not in key.lower():
                    self.variables.append(
                        ObjectVariable(
                            node=number,
                            key=key,
                            name=stored.full_name.removesuffix(":0"),
                            shape=tuple(shapes[key]),
                            dtype=dtypes[key],
                        )
                    )
        self.ignored = sorted(shapes.keys() - {v.key for v in self.variables} - {_GRAPH_KEY})

    def child(self, name: str) -> int | None:
        """The number of the object under this attribute of the root, None if there is none."""
        return self._children[0].get(name) if self._children else None

    def under(self, attribute: str) -> set[int]:
        """Numbers of all objects that can be reached through an attribute of this name."""
        waiting = [names[attribute] for names in self._children if attribute in names]
        reached: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number not in reached and 0 <= number < len(self._children):
                reached.add(number)
                waiting += self._children[number].values()
        return reached

    def read(self, key: str) -> np.ndarray:
        """One tensor as it is stored."""
        try:
            return self._reader.get_tensor(key)
        except tf1.READ_ERRORS as error:
            raise self._damaged(f"Tensor {key} of ", error) from error

    def _damaged(self, tensor: str, error: Exception) -> ModelingError:
        return ModelingError(
            f"{tensor}{'t' if tensor else 'T'}he object-based checkpoint {self.prefix} can't be "
            f"read: {error}. Its .index and .data files must both be whole and belong together; "
            f"copy them again."
        )


def bundles_at(path: str) -> list[str]:
    """Prefixes of the bundles that a path means: a prefix, one of its files, or a folder."""
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if tf1.is_tf1_prefix(prefix):
        return [prefix]
    return tf1.tf1_prefixes_in(path) if tf.io.gfile.isdir(path) else []


def is_object_checkpoint(prefix: str) -> bool:
    """Whether a bundle is object-based; False where it can't even be opened."""
    try:
        return tf.train.load_checkpoint(prefix).has_tensor(_GRAPH_KEY)
    except tf1.READ_ERRORS:
        return False
