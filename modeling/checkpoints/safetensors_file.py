"""Reading and writing one .safetensors file: tensors by name behind a JSON header.

Reading is done here instead of by the safetensors package because that reads local files only
and, in NumPy, not every version of it reads bfloat16. Format: eight bytes (little-endian length
of the header), the header (name → dtype, shape, offsets), then the tensors' bytes.
"""

import json
import math
from collections.abc import Mapping

import numpy as np
import safetensors.numpy
import tensorflow as tf

from modeling.errors import ModelingError

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # The bits; widened below.
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
# The format's own limit, which keeps a file of another kind from being taken for a huge header.
_LONGEST_HEADER = 100_000_000


class SafetensorsFile:
    """One file, header read, tensors read on demand.

    Attributes:
        path: As given; any path that tf.io.gfile knows.
        shapes: Name → shape.
    """

    def __init__(self, path: str):
        self.path = path
        with tf.io.gfile.GFile(path, "rb") as file:
            size = file.size()
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > min(size - 8, _LONGEST_HEADER):
                raise self._damaged("its header doesn't fit in the file")
            try:
                header = json.loads(file.read(length))
                header.pop("__metadata__", None)
                self._entries = {
                    name: (e["dtype"], tuple(map(int, e["shape"])), *map(int, e["data_offsets"]))
                    for name, e in header.items()
                }
            except (ValueError, AttributeError, KeyError, TypeError) as error:
                raise self._damaged("its header isn't the JSON object of that format") from error
        self._start = 8 + length
        for name, (dtype, shape, begin, end) in self._entries.items():
            if not 0 <= begin <= end <= size - self._start:
                raise self._damaged(f"tensor {name} reaches beyond its end")
            if dtype in _DTYPES and end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
                raise self._damaged(f"the size of tensor {name} doesn't fit its shape {shape}")
        self.shapes = {name: entry[1] for name, entry in self._entries.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor; float16 and bfloat16 are widened to float32, which is exact."""
        dtype, shape, begin, end = self._entries[name]
        if dtype not in _DTYPES:
            raise ModelingError(
                f"Tensor {name} in {self.path} has dtype {dtype}, which can't be read here. "
                f"Expected one of {', '.join(_DTYPES)}."
            )
        with tf.io.gfile.GFile(self.path, "rb") as file:
            file.seek(self._start + begin)
            # A plain read(0) would read to the end.
            content = file.read(end - begin) if end > begin else b""
        array = np.frombuffer(content, _DTYPES[dtype]).reshape(shape)
        if dtype == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32) if dtype == "F16" else array

    def _damaged(self, reason: str) -> ModelingError:
        return ModelingError(
            f"{self.path} is not a whole safetensors file: {reason}. Copy or download it again."
        )


def write(path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes a file with `metadata` in its header; the same tensors give the same bytes."""
    # The package stores a transposed view's memory as it lies, hence the copies.
    whole = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    content = safetensors.numpy.save(whole, metadata=dict(metadata))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)
