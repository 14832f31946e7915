"""Reading and writing one .safetensors file: tensors by name."""

import os
import tempfile
from collections.abc import Mapping

import numpy as np
import safetensors.numpy
import tensorflow as tf

from modeling.errors import ModelingError


class SafetensorsFile:
    """One file, header read and checked, tensors read on demand.

    Attributes:
        path: As given; any path that tf.io.gfile knows.
        shapes: Name → shape.

    Raises:
        ModelingError: It isn't whole, or no such file.
    """

    def __init__(self, path: str):
        self.path = path
        local = path
        if "://" in path:  # The package reads local files only.
            self._folder = tempfile.TemporaryDirectory()
            local = os.path.join(self._folder.name, "copy.safetensors")
            tf.io.gfile.copy(path, local)
        try:
            self._file = safetensors.safe_open(local, "numpy")
        except (safetensors.SafetensorError, OSError) as error:
            raise ModelingError(
                f"{path} is not a whole safetensors file: {error}. Copy or download it again."
            ) from error
        names = self._file.keys()
        self.shapes = {name: tuple(self._file.get_slice(name).get_shape()) for name in names}

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored dtype."""
        try:
            return self._file.get_tensor(name)
        except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
            dtype = self._file.get_slice(name).get_dtype()
            raise ModelingError(
                f"Tensor {name} in {self.path} has dtype {dtype}, which can't be read here "
                f"({error}). Expected numbers that NumPy has, or bfloat16."
            ) from error


def write(path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes a file with `metadata` in its header; the same tensors give the same bytes."""
    # The package stores a transposed view's memory as it lies, hence the copies.
    whole = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    content = safetensors.numpy.save(whole, metadata=dict(metadata))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)
