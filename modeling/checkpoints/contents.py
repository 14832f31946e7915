"""What a checkpoint holds, whatever its format: names, shapes, and a way to read each tensor.

Model Garden and KerasHub store weights as Keras's layers do. Attention kernels are [H, heads, size]
and [heads, size, H] there, their biases [heads, size]; a head's kernel is [in, outputs], which the
original stores the other way round.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from modeling.errors import ModelingError

_SELF, _OUTPUT_KERNEL = "/attention/self/", "/attention/output/dense/kernel"
_STEP = 1 << 20  # bytes


@dataclasses.dataclass(frozen=True)
class StoredWeight:
    """A weight that isn't in memory: it is read when `np.asarray` asks for it, each time anew.

    Attributes:
        shape: As an array's.
        dtype: As an array's.
        read: Gives the array of that shape and dtype.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.read(), dtype)

    def transpose(self) -> "StoredWeight":
        """The same with its axes in reverse order."""
        return StoredWeight(self.shape[::-1], self.dtype, lambda: self.read().T)


Weight = np.ndarray | StoredWeight


@dataclasses.dataclass
class Contents:
    """The weights of one checkpoint under the original's names; tensors are read on demand.

    Attributes:
        path: The file (or TF1 prefix) for messages.
        format: Short name of the format, such as "tf1" or "huggingface".
        shapes: Original name → shape as the original stores it (kernels are [in, out]).
        dtypes: Original name → dtype that `read` gives, see `dtype_of_weight`.
        file_names: Original name → the name in the file.
        unmapped: Names in the file that stand for no known BERT weight.
        ignored: Names in the file that are no weights: optimizer slots, step, position buffers.
        read: Original name → tensor in that shape, see `checked_weight`.
        untied_decoder: The file has a masked-LM output matrix that differs from its word
            embeddings, which no model here can hold; its name is among `unmapped`.
        num_attention_heads: Heads per layer where the file's own shapes tell them.
        head: The kind of head, one of `config.HEADS`, where the format's own names tell it.
        masked_lm: Fields of `BertConfig` that tell how the file's library computes its masked-LM
            head, where no configuration of that library does.
    """

    path: str
    format: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    file_names: dict[str, str]
    unmapped: list[str]
    ignored: list[str]
    read: Callable[[str], np.ndarray]
    untied_decoder: bool = False
    num_attention_heads: int | None = None
    head: str | None = None
    masked_lm: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def weight(self, name: str) -> StoredWeight:
        """One of the weights, to be read later."""
        return StoredWeight(
            self.shapes[name], self.dtypes[name], functools.partial(self.read, name)
        )


def checked_weight(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """A weight as it comes from a file, in the dtype that `dtype_of_weight` tells.

    Raises:
        ModelingError: It holds NaN or infinity, so that such a model answers nothing but NaN; or
            something else than floating-point numbers.
    """
    if array.dtype.name != "bfloat16" and (array.dtype.kind != "f" or array.itemsize > 8):
        raise ModelingError(
            f"Tensor {name} in {path} is of {array.dtype.name}; a weight is a floating-point "
            f"number. The file is damaged or quantised: copy or download it again, or another."
        )
    array = array.astype(dtype_of_weight(array.dtype), copy=False)
    # Both are NaN where one number is, and take no memory. What float64 has beyond float32 would
    # be infinite in the model.
    largest = np.finfo(np.float32).max
    if not all(abs(n) <= largest for n in (array.min(initial=0), array.max(initial=0))):
        bad = np.count_nonzero(~(np.abs(array) <= largest))
        raise ModelingError(
            f"Tensor {name} in {path} isn't finite: {bad:,} of its {array.size:,} numbers are NaN "
            f"or infinite, and so would the model's answers be. The run that wrote it has "
            f"diverged, or the file is damaged: take an earlier checkpoint, or copy or download "
            f"it again."
        )
    return array


def dtype_of_weight(dtype: Any) -> np.dtype:
    """What a weight is read as that a file stores in this dtype, NumPy's or TensorFlow's.

    That is float64 for float64, and float32 for all others, which are widened or refused.
    """
    dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    is_double = dtype.newbyteorder("=") == np.float64
    return np.dtype(np.float64 if is_double else np.float32)


def read_bytes(file: IO[bytes], size: int) -> np.ndarray:
    """The next bytes of a file, uint8 [size], in memory once.

    Raises:
        EOFError: It ends before.
    """
    array = np.empty(size, np.uint8)
    for start in range(0, size, _STEP):
        part = file.read(min(_STEP, size - start))
        if len(part) < min(_STEP, size - start):
            raise EOFError(f"it ends {size - start - len(part):,} bytes too early")
        array[start : start + len(part)] = np.frombuffer(part, np.uint8)
    return array


def weights_as_float32(array: np.ndarray) -> np.ndarray:
    """Widens half precision (float16, bfloat16) to float32, which is exact; leaves the rest."""
    if array.dtype == np.float16 or array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array


def original_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a weight in the original's layout.

    Args:
        name: Its original name.
        shape: Its shape in Keras's layout.
    """
    if name.endswith("output_weights"):
        return shape[::-1]
    if len(shape) == 3 and name.endswith(_OUTPUT_KERNEL):
        return (shape[0] * shape[1], shape[2])
    if _SELF in name and len(shape) > 1:
        inputs = 1 if name.endswith("/kernel") else 0
        return (*shape[:inputs], math.prod(shape[inputs:]))
    return shape


def in_original_layout(name: str, array: np.ndarray) -> np.ndarray:
    """The weight of this original name, laid out as the original does; see `original_shape`."""
    if name.endswith("output_weights"):
        return array.T
    return array.reshape(original_shape(name, array.shape))


def in_keras_layout(name: str, array: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `in_original_layout`, for attention with so many heads."""
    if name.endswith("output_weights"):
        return array.T
    if name.endswith(_OUTPUT_KERNEL):
        return array.reshape(heads, -1, array.shape[-1])
    if _SELF in name:
        return array.reshape(*array.shape[:-1], heads, -1)
    return array
