"""PyTorch's files of Hugging Face models: pytorch_model.bin, one or several, without PyTorch.

Since PyTorch 1.6 such a file is an uncompressed zip archive with a pickle and one entry for each
storage; before that, pickles one after the other with the storages behind them. Only the numbers
are taken; see `torch_pickle` for what the pickle may say. The tensors may stand in a dictionary
inside the file's, as PyTorch Lightning's {"state_dict": …}.
"""

import os
import struct
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import tensorflow as tf

from modeling.checkpoints.contents import Contents, read_bytes
from modeling.checkpoints.files import join
from modeling.checkpoints.formats.torch_pickle import (
    MOST_BYTES,
    StoredNumbers,
    StoredTensor,
    read_torch_pickle,
)
from modeling.checkpoints.huggingface import huggingface_contents, located_tensors
from modeling.checkpoints.names import from_huggingface
from modeling.errors import ModelingError

PYTORCH = "pytorch"
_FILE_NAMES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_ENDINGS = (".bin", ".pt", ".pth")
# What transformers' Trainer puts beside a model.
_OF_TRAINER = ("training_args.", "optimizer.", "scheduler.", "scaler.", "rng_state")
_ZIP = b"PK\x03\x04"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of PyTorch's magic number
_READ_ERRORS = (zipfile.BadZipFile, OSError, EOFError, ValueError, struct.error, tf.errors.OpError)
_READ_ERRORS += (LookupError, TypeError, RuntimeError)


class TorchFile:
    """One file, its pickle read and checked, tensors read on demand.

    Attributes:
        path: As given; any path that tf.io.gfile knows.
        shapes: Name → shape.
        dtypes: Name → stored dtype.

    Raises:
        ModelingError: It isn't whole, or holds something else than tensors by name.
    """

    def __init__(self, path: str):
        self.path = path
        self._places: dict[str, Callable[[], IO[bytes]]] = {}  # storage → file, at its beginning
        try:
            self._file: Any = (
                tf.io.gfile.GFile(path, "rb") if "://" in path else open(path, "rb")  # noqa: SIM115
            )
            self._length = self._file.seek(0, os.SEEK_END) or self._file.tell()
            self._file.seek(0)
            head = self._file.read(len(_LEGACY))
            if head.startswith(_ZIP):
                state = self._open_zip()
            elif head == _LEGACY:
                state = self._open_legacy()
            else:
                raise ModelingError(
                    f"{path} is no file of PyTorch's: it begins with {head[:8]!r}. Copy or "
                    f"download it again, with Git LFS if it comes from a repository."
                )
        except ModelingError:
            raise
        except _READ_ERRORS as error:
            raise self._damaged(error) from error
        self._tensors = _state_dict(state, path)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self.dtypes = {name: _dtype(tensor.storage) for name, tensor in self._tensors.items()}
        for name, tensor in self._tensors.items():
            if tensor.storage.key not in self._places:
                raise self._damaged(f"the storage of {name} is absent")

    def _damaged(self, what: object) -> ModelingError:
        return ModelingError(
            f"{self.path} is not a whole PyTorch file: {str(what)[:300]}. Copy or download it "
            f"again."
        )

    def _open_zip(self) -> Any:
        archive = zipfile.ZipFile(self._file)
        entries = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise self._damaged(f"it has {len(pickles)} entries data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        for name, info in entries.items():
            # A size that lies, or packed zeros, could ask for any amount of memory.
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise self._damaged(f"its entry {name[:200]} is compressed")
            if info.header_offset + info.file_size > self._length:
                raise self._damaged(f"its entry {name[:200]} reaches beyond its end")
        order = entries.get(f"{root}byteorder")
        if order and archive.open(order).read(16) != b"little":
            raise ModelingError(
                f"{self.path} was written on a big-endian machine. Save it on another one."
            )
        with archive.open(entries[pickles[0]]) as file:
            state, _ = read_torch_pickle(file.read(MOST_BYTES), self.path)
        for storage in _storages(state):
            info = entries.get(f"{root}data/{storage.key}")
            if info is None or info.file_size != _bytes(storage):
                raise self._damaged(
                    f"its storage {storage.key[:200]} has another size, or is absent"
                )
            self._places[storage.key] = lambda info=info: archive.open(info)
        return state

    def _open_legacy(self) -> Any:
        at, parts = 0, []
        for _ in range(5):  # magic number, version, machine, state, keys of the storages
            self._file.seek(at)
            part, length = read_torch_pickle(self._file.read(MOST_BYTES), self.path)
            parts.append(part)
            at += length
        machine, state, keys = parts[2:]
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise self._damaged("it doesn't say that its numbers are little-endian")
        storages = {storage.key: storage for storage in _storages(state)}
        for key in keys:
            storage = storages[key]
            self._file.seek(at)
            if struct.unpack("<q", self._file.read(8)) != (storage.size,):
                raise self._damaged(f"its storage {key[:200]} has another size")
            self._places[key] = lambda start=at + 8: self._at(start)
            at += 8 + _bytes(storage)
        if at > self._length:
            raise self._damaged(f"it has {self._length:,} bytes instead of {at:,}")
        return state

    def _at(self, start: int) -> Any:
        self._file.seek(start)
        return self._file

    def read(self, name: str) -> np.ndarray:
        """One tensor in its stored dtype; of its storage no more than its part is read."""
        tensor = self._tensors[name]
        dtype = self.dtypes[name]
        try:
            file = self._places[tensor.storage.key]()
            if tensor.offset:
                file.seek(tensor.offset * dtype.itemsize, os.SEEK_CUR)
            data = read_bytes(file, tensor.span * dtype.itemsize)
        except _READ_ERRORS as error:
            raise self._damaged(f"{name} can't be read ({error})") from error
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        return np.ndarray(tensor.shape, dtype, data, strides=strides)


def _state_dict(state: Any, path: str) -> dict[str, StoredTensor]:
    """The model's tensors by name: the file's dictionary itself, or the one inside of it."""
    held = state if isinstance(state, dict) else {}
    found = {
        key: {str(n): t for n, t in part.items() if isinstance(t, StoredTensor)}
        for key, part in [("", held), *held.items()]
        if isinstance(part, dict)
    }
    found = {key: tensors for key, tensors in found.items() if tensors}
    if len(found) > 1:  # a generator's state, moving averages
        of_bert = [key for key, tensors in found.items() if any(map(from_huggingface, tensors))]
        found = {key: found[key] for key in of_bert or found}
    if len(found) > 1:
        keys = ", ".join(repr(str(key)[:40]) for key in [*found][:6] if key)
        raise ModelingError(
            f"{path} holds several dictionaries of tensors, under {keys}, and it can't be told "
            f"which one is the model. Save the state_dict of one alone."
        )
    if not found:
        holds = ", ".join(str(n)[:40] for n in list(held)[:6]) or "nothing"
        raise ModelingError(
            f"{path} holds no tensors by name, but {holds}. It may be another program's state "
            f"of a training; save the model's state_dict alone."
        )
    return next(iter(found.values()))


def _storages(state: Any) -> set[StoredNumbers]:
    waiting, seen = [state], set()
    storages: set[StoredNumbers] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, StoredTensor):
            storages.add(value.storage)
        elif isinstance(value, dict | list | tuple):
            waiting += value.values() if isinstance(value, dict) else value
    if len({storage.key for storage in storages}) < len(storages):
        raise ValueError("one storage has two sizes or types")
    return storages


def _dtype(storage: StoredNumbers) -> np.dtype:
    bfloat16 = storage.dtype == "bfloat16"  # which NumPy itself doesn't have
    return np.dtype(tf.bfloat16.as_numpy_dtype if bfloat16 else storage.dtype)


def _bytes(storage: StoredNumbers) -> int:
    return storage.size * _dtype(storage).itemsize


def torch_file(path: str) -> str | None:
    """The PyTorch file, or the index of several, at a file's or folder's path.

    In a folder the usual names go before others, and what a Trainer saved of itself isn't looked
    at. Nothing is read but the first bytes.

    Raises:
        ModelingError: Several PyTorch files under other names.
    """
    if not tf.io.gfile.isdir(path):
        if not tf.io.gfile.exists(path):
            return None
        return path if path.endswith(".bin.index.json") or _is_torch(path) else None
    entries = sorted(tf.io.gfile.listdir(path))
    for usual in _FILE_NAMES:
        if usual in entries:
            return join(path, usual)
    others = [e for e in entries if e.endswith(_ENDINGS) and not e.startswith(_OF_TRAINER)]
    others = [e for e in others if not tf.io.gfile.isdir(join(path, e))]
    found = [entry for entry in others if _is_torch(join(path, entry))]
    if len(found) > 1:
        raise ModelingError(
            f"The folder {path} holds several PyTorch files: {', '.join(found[:6])}. Give the one "
            f"to read instead of the folder."
        )
    return join(path, found[0]) if found else None


def _is_torch(path: str) -> bool:
    with tf.io.gfile.GFile(path, "rb") as file:
        head = file.read(512)
    # An archive's first entry, whose name begins at byte 30, is the pickle.
    return head.startswith(_LEGACY) or (head.startswith(_ZIP) and b"/data.pkl" in head[30:])


def torch_contents(file: str) -> Contents:
    """What a file or shard index holds, under the original's names. No weights are read yet.

    Raises:
        ModelingError: A damaged file, one that names what is refused, or two names for one weight.
    """
    where = located_tensors(file, ".bin", TorchFile)
    return huggingface_contents(file, PYTORCH, where)
