"""Reads the pickle of a PyTorch file without Python's pickle: nothing in it is ever called.

A pickle is a program for a small machine with a stack. This one knows the instructions that
`torch.save` of a dictionary of tensors needs, and builds dictionaries, lists, tuples, numbers,
strings and descriptions of tensors. What else a pickle names, it refuses by name.
"""

import dataclasses
import io
import math
import pickletools
from collections.abc import Callable
from typing import Any

from modeling.errors import ModelingError

MOST_BYTES = 1 << 20
"""The longest pickle that is read; that of a BERT-large has a twentieth of it."""

_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
_STORAGES = {f"torch {storage}": dtype for storage, dtype in _DTYPES.items()}
_LARGEST = 1 << 48  # numbers and strides; more is no file of this world


@dataclasses.dataclass(frozen=True)
class StoredNumbers:
    """A run of numbers in a PyTorch file, which tensors are cut from.

    Attributes:
        key: Its name in the file.
        dtype: Name of a NumPy dtype, or "bfloat16".
        size: How many numbers.
    """

    key: str
    dtype: str
    size: int


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where a tensor's numbers stand, in numbers and not in bytes; all inside its storage."""

    storage: StoredNumbers
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """How many numbers lie from its first to its last one, both counted."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))


@dataclasses.dataclass(frozen=True)
class _Named:
    """A function or class that the pickle names."""

    name: str


class _BadPickleError(Exception):
    """Not what torch.save writes."""


def _natural(value: object) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise _BadPickleError("a size, offset or stride is no whole number from 0")
    return value


def _tensor(storage, offset, shape, strides, *_) -> StoredTensor:
    if not isinstance(storage, StoredNumbers) or not len(shape) == len(strides) <= 8:
        raise _BadPickleError("a tensor has no storage, or its shape and strides don't fit")
    tensor = StoredTensor(
        storage, _natural(offset), tuple(map(_natural, shape)), tuple(map(_natural, strides))
    )
    # A stride of 0 repeats a number, so that a few bytes could stand for any amount of memory.
    count = math.prod(tensor.shape)
    if count > storage.size or tensor.offset + tensor.span > storage.size:
        raise _BadPickleError(
            f"a tensor of shape {list(tensor.shape)} reaches out of its storage, which holds "
            f"{storage.size:,} numbers"
        )
    return tensor


def _parameter(tensor, *_) -> StoredTensor:
    if not isinstance(tensor, StoredTensor):
        raise _BadPickleError("a parameter is no tensor")
    return tensor


def _dictionary() -> dict:  # from nothing, which is all that PyTorch asks for
    return {}


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": _dictionary,
    "torch._utils _rebuild_tensor": _tensor,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": _parameter,
}


def _storage(described: object) -> StoredNumbers:
    kind, storage, key, _, size, *view = described  # type: ignore[misc]
    if kind != "storage" or not isinstance(key, str) or any(part is not None for part in view):
        raise _BadPickleError("a tensor's storage is described in another way than PyTorch's")
    if not isinstance(storage, _Named) or storage.name not in _STORAGES:
        raise _BadPickleError("a tensor's storage is of no known type")
    return StoredNumbers(key, _STORAGES[storage.name], _natural(size))


def read_torch_pickle(data: bytes, path: str) -> tuple[Any, int]:
    """Runs one pickle.

    Args:
        data: Bytes that begin with it.
        path: For messages.

    Returns:
        The object, tensors as `StoredTensor`; and how many bytes the pickle has.

    Raises:
        ModelingError: It names something that isn't on the list, or isn't what torch.save writes.
    """
    file = io.BytesIO(data[:MOST_BYTES])
    try:
        return _run(file, path), file.tell()
    except ModelingError:
        raise
    except (_BadPickleError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelingError(
            f"{path} is not a dictionary of tensors as torch.save writes it: {str(error)[:300]}. "
            f"Copy or download it again; if it holds more than weights, save the model's "
            f"state_dict alone."
        ) from error


def _run(file: io.BytesIO, path: str) -> Any:
    stack: list[Any] = []
    marks: list[list[Any]] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        nonlocal stack
        items, stack = stack, marks.pop()
        return items

    for opcode, argument, _ in pickletools.genops(file):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                marks.append(stack)
                stack = []
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case (
                "BININT"
                | "BININT1"
                | "BININT2"
                | "LONG1"
                | "BINUNICODE"
                | "SHORT_BINUNICODE"
                | "BINSTRING"
                | "SHORT_BINSTRING"
                | "BINFLOAT"
            ):
                stack.append(argument)
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "TUPLE":
                items = since_mark()
                stack.append(tuple(items))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(opcode.name[-1])
                items = [stack.pop() for _ in range(count)]
                stack.append(tuple(items[::-1]))
            case "APPEND" | "APPENDS":
                items = since_mark() if opcode.name == "APPENDS" else [stack.pop()]
                _of(list, stack[-1]).extend(items)
            case "SETITEM" | "SETITEMS":
                if opcode.name == "SETITEMS":
                    items = since_mark()
                else:
                    items = [stack.pop(), stack.pop()][::-1]
                keys = [_of((str, int), key) for key in items[::2]]
                _of(dict, stack[-1]).update(zip(keys, items[1::2], strict=True))
            case "GLOBAL" | "STACK_GLOBAL":
                if opcode.name == "STACK_GLOBAL":
                    last, module = stack.pop(), stack.pop()
                    argument = f"{_of(str, module)} {_of(str, last)}"
                stack.append(_allowed(argument, path))
            case "BINPERSID":
                stack.append(_storage(_of(tuple, stack.pop())))
            case "REDUCE":
                arguments, function = _of(tuple, stack.pop()), _of(_Named, stack.pop())
                stack.append(_FUNCTIONS[function.name](*arguments))
            case "BUILD":  # attributes, such as the versions of a state dict's modules
                stack.pop()
                _of(dict, stack[-1])
            case "STOP":
                return stack.pop()
            case _:
                raise _BadPickleError(f"its pickle has the instruction {opcode.name}")
    raise _BadPickleError("its pickle has no end")


def _of(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise _BadPickleError(f"a {type(value).__name__} stands where it can't")
    return value


def _allowed(name: str, path: str) -> _Named:
    if name in _FUNCTIONS or name in _STORAGES:
        return _Named(name)
    raise ModelingError(
        f"{path} asks for {name.replace(' ', '.')[:200]!r} to be called or made. A PyTorch file "
        f"is a program; of it nothing is carried out here but what tensors are made of. Save the "
        f"model's state_dict alone, or as safetensors; if the file is not from a source that you "
        f"trust, don't open it with PyTorch either."
    )
