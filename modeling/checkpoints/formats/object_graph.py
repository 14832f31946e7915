"""Object-based TensorFlow checkpoints: tensors by their path through a program's objects.

The path that is a tensor's key is only the shortest one (tied word embeddings may lie under the
masked-LM head), so tensors are identified by what else the stored graph of objects tells: each
variable's own name, and which attributes lead to it.
"""

import dataclasses
import re

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from modeling.checkpoints import tf1
from modeling.errors import ModelingError

_VALUE, _ATTRIBUTES = "VARIABLE_VALUE", "/.ATTRIBUTES/"


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


class ObjectCheckpoint(tf1.Bundle):
    """Graph and tensors of an object-based checkpoint; tensors are read on demand.

    Attributes:
        variables: All variables but those of an optimizer.
        ignored: Keys of all other tensors, sorted.

    Raises:
        ModelingError: A damaged file, or a graph that leads elsewhere than its keys say.
    """

    def __init__(self, prefix: str):
        super().__init__(prefix)
        try:
            graph = TrackableObjectGraph.FromString(self.read(tf1.OBJECT_GRAPH))
        except (DecodeError, TypeError) as error:
            raise ModelingError(
                f"The object graph of the TensorFlow checkpoint {prefix} can't be read: {error}. "
                f"Copy or download it again."
            ) from error
        self._children = [{c.local_name: c.node_id for c in node.children} for node in graph.nodes]
        self.variables = []
        for number, node in enumerate(graph.nodes):
            for stored in node.attributes:
                key = stored.checkpoint_key
                # Slots carry the names of the variables that they belong to.
                if stored.name != _VALUE or key not in self.shapes or "optimizer" in key.lower():
                    continue
                if self._at(key.partition(_ATTRIBUTES)[0]) != number:
                    raise ModelingError(
                        f"The object graph of the TensorFlow checkpoint {prefix} takes the tensor "
                        f"{key} for {stored.full_name}, but leads to another variable on that way. "
                        f"It is damaged or was changed; copy or download it again."
                    )
                name = stored.full_name.removesuffix(":0")
                self.variables.append(
                    ObjectVariable(number, key, name, self.shapes[key], self.dtypes[key])
                )
        self.ignored = sorted(
            self.shapes.keys() - {v.key for v in self.variables} - {tf1.OBJECT_GRAPH}
        )

    def _at(self, path: str) -> int | None:
        """The number of the object at the end of a way from the root, None if there is none."""
        number: int | None = 0
        for part in path.split("/"):
            name = part.replace(".S", "/").replace("..", ".")  # as TensorFlow escapes attributes
            inside = number is not None and 0 <= number < len(self._children)
            number = self._children[number].get(name) if inside else None
        return number

    def child(self, name: str) -> int | None:
        """The number of the object under this attribute of the root, None if there is none."""
        return self._children[0].get(name) if self._children else None

    def under(self, attribute: str) -> set[int]:
        """Numbers of all objects that can be reached through an attribute of this name."""
        waiting = self._called(attribute)
        reached: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number not in reached and 0 <= number < len(self._children):
                reached.add(number)
                waiting += self._children[number].values()
        return reached

    def parts_of(self, attribute: str) -> set[int]:
        """Numbers of the objects that are attributes of what an attribute of this name holds."""
        held = [n for n in self._called(attribute) if 0 <= n < len(self._children)]
        return {part for number in held for part in self._children[number].values()}

    def _called(self, attribute: str) -> list[int]:
        return [names[attribute] for names in self._children if attribute in names]


def bundles_at(path: str) -> list[str]:
    """Prefixes of the bundles that a path means: a prefix, one of its files, or a folder."""
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if tf1.is_tf1_prefix(prefix):
        return [prefix]
    return tf1.tf1_prefixes_in(path) if tf.io.gfile.isdir(path) else []


def is_object_checkpoint(prefix: str) -> bool:
    """Whether a bundle is object-based; False where it can't even be opened."""
    try:
        return tf1.OBJECT_GRAPH in tf1.Bundle(prefix).shapes
    except ModelingError:  # which the original's reader describes
        return False
