"""HDF5 files of weights, alone or inside an uncompressed zip archive (.keras).

Nothing outside the file is read, and nothing that isn't in it takes memory: links aren't followed,
and an array must stand in the file as it is, in bytes of its own.
"""

import contextlib
import io
import itertools
import os
import struct
import zipfile
from collections.abc import Iterator

import h5py
import numpy as np
import tensorflow as tf

from modeling.checkpoints.huggingface import LocalFile
from modeling.errors import ModelingError

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_DEEPEST = 32  # groups inside groups; these files have about ten
_LOCAL_HEADER = 30  # bytes of a zip archive's entry, before its name
# What h5py raises on damage depends on where it is.
_READ_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError)
_READ_ERRORS += (zipfile.BadZipFile, struct.error, NotImplementedError)


class H5File:
    """An HDF5 file, its names read, tensors read on demand.

    Attributes:
        path: As given; any path that tf.io.gfile knows.
        shapes: Path of a dataset inside the file → shape.
        dtypes: The same → dtype.

    Raises:
        ModelingError: It isn't whole, nests groups without end, or two names share bytes.
    """

    def __init__(self, path: str, entry: str = ""):
        self.path = path
        self._local = LocalFile(path)
        self._entry = entry
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        self._ranges: list[tuple[int, int, str]] = []
        try:
            with self._open() as file:
                self._walk(file)
        except ModelingError:
            raise
        except _READ_ERRORS as error:
            raise ModelingError(
                f"{path} is not a whole HDF5 file: {str(error)[:300]}. Copy or download it again."
            ) from error
        ranges = sorted(self._ranges)
        for (_, end, name), (start, _, other) in itertools.pairwise(ranges):
            if start < end:
                raise ModelingError(
                    f"{path} has the same bytes for {name} and for {other}; every weight has its "
                    f"own. It is damaged or was changed: copy or download it again."
                )

    @contextlib.contextmanager
    def _open(self) -> Iterator[h5py.File]:
        # For each use anew: HDF5 lets nobody write a file that is open.
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(self._part()) if self._entry else self._local.path
            yield stack.enter_context(h5py.File(source, "r"))

    @contextlib.contextmanager
    def _part(self) -> Iterator[io.RawIOBase]:
        with zipfile.ZipFile(self._local.path) as archive, open(self._local.path, "rb") as file:
            info = archive.getinfo(self._entry)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise ValueError(
                    f"{self._entry} inside of it is compressed, which Keras never does"
                )
            file.seek(info.header_offset)
            lengths = struct.unpack_from("<HH", file.read(_LOCAL_HEADER), 26)
            yield _Part(file, info.header_offset + _LOCAL_HEADER + sum(lengths), info.file_size)

    def _walk(self, file: h5py.File) -> None:
        groups, seen = [("", file, 0)], {h5py.h5o.get_info(file.id).addr}
        while groups:
            prefix, group, depth = groups.pop()
            if depth > _DEEPEST:
                raise ModelingError(
                    f"{self.path} has groups nested more than {_DEEPEST} deep, where a model's "
                    f"file has about ten: it is damaged, or no model. Download it again."
                )
            for key in group:
                name = f"{prefix}{key}"
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    continue  # it may lead to another file
                entry = group[key]
                address = h5py.h5o.get_info(entry.id).addr
                if isinstance(entry, h5py.Group) and address not in seen:
                    seen.add(address)
                    groups.append((f"{name}/", entry, depth + 1))
                elif isinstance(entry, h5py.Dataset):
                    self._add(name, entry)

    def _add(self, name: str, dataset: h5py.Dataset) -> None:
        self.shapes[name] = dataset.shape or ()
        self.dtypes[name] = dataset.dtype
        start, size = dataset.id.get_offset(), dataset.id.get_storage_size()
        if start is not None and size:
            self._ranges.append((start, start + size, name))

    def read(self, name: str) -> np.ndarray:
        """One tensor in its dtype; bfloat16 is what Keras marks so."""
        try:
            with self._open() as file:
                dataset = file[name]
                # Else a few bytes could stand for any number of them, or for another file's.
                size = (dataset.size or 0) * dataset.dtype.itemsize
                elsewhere = dataset.is_virtual or dataset.external
                if not elsewhere and dataset.id.get_storage_size() == size:
                    array = dataset[()]
                    if dataset.attrs.get("dtype") == "bfloat16" and array.dtype.itemsize == 2:
                        array = array.view(tf.bfloat16.as_numpy_dtype)
                    return array
        except _READ_ERRORS as error:
            raise ModelingError(
                f"Tensor {name} in {self.path} can't be read: {str(error)[:300]}. Copy or "
                f"download the file again."
            ) from error
        raise ModelingError(
            f"Tensor {name} in {self.path} is compressed, incomplete or stored in another file; "
            f"expected a plain array, as save_pretrained and save_weights write it. Save the model "
            f"again, or download the file again."
        )


class _Part(io.RawIOBase):
    """A run of bytes of a file; zipfile's own reads everything before the place that it seeks."""

    def __init__(self, file: io.BufferedIOBase, start: int, size: int):
        super().__init__()
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        self._file.seek(self._start + self._at)
        count = self._file.readinto(view)
        self._at += count
        return count


def is_h5(path: str) -> bool:
    """Whether a file begins as HDF5 does."""
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE
