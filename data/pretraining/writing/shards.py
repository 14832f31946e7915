"""Record files that are there whole or not at all: writing, and joining pieces to a shard."""

import gzip
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from data.errors import DataError

GZIP = "gzip"
COMPRESSIONS = ("none", GZIP)
_COPY_BYTES = 2**20
# zlib's own default is three times slower and saves 4 % more.
_LEVEL = 4


class ShardWriters:
    """Writes records round-robin to several files that appear only when all are complete.

    As a context manager: a clean exit gives the files their names, an exception removes what
    was written and leaves files that were there before untouched. Missing folders are made.
    """

    def __init__(self, files: Sequence[str]):
        """Args: files: paths, none twice (DataError otherwise)."""
        self.files = [os.fspath(path) for path in files]
        check_output_files(self.files)
        self.counts = [0] * len(self.files)
        self._next = 0

    def __enter__(self) -> "ShardWriters":
        self._temporary = [temporary_name(path) for path in self.files]
        self._writers = []
        try:
            for path in self._temporary:
                make_folder(path)
                self._writers.append(tf.io.TFRecordWriter(path))
        except tf.errors.OpError as error:
            self._remove()
            raise unwritable(self.files[len(self._writers)], error) from None
        return self

    def write(self, records: Sequence[bytes]) -> None:
        """Appends records, each to the next file in turn."""
        n = len(self._writers)
        for k, writer in enumerate(self._writers):
            mine = records[(k - self._next) % n :: n]
            try:
                for record in mine:
                    writer.write(record)
            except tf.errors.OpError as error:
                raise unwritable(self.files[k], error) from None
            self.counts[k] += len(mine)
        self._next = (self._next + len(records)) % n

    def __exit__(self, kind: type | None, *_: Any) -> None:
        if kind is not None:
            self._remove()
            return
        try:
            for writer in self._writers:
                writer.close()
            for temporary, path in zip(self._temporary, self.files, strict=True):
                tf.io.gfile.rename(temporary, path, overwrite=True)
        except tf.errors.OpError as error:
            self._remove()
            raise unwritable(self.files[0], error) from None

    def _remove(self) -> None:
        for writer in self._writers:
            try:
                writer.close()
            except tf.errors.OpError:
                continue
        for path in self._temporary:
            if tf.io.gfile.exists(path):
                tf.io.gfile.remove(path)


def join_pieces(
    pieces: Sequence[str], temporary: str, path: str, compression: str = "none"
) -> dict[str, Any]:
    """Joins TFRecord files to one; the caller gives it its name with `appear`.

    Args:
        pieces: Uncompressed TFRecord files, in order.
        temporary: Where to write.
        path: The shard to be, for messages; its folder is made.
        compression: One of `COMPRESSIONS`; gzip has no time stamp, so equal records are equal
            bytes.

    Returns:
        bytes and sha256 of the file.
    """
    try:
        make_folder(path)
        with tf.io.gfile.GFile(temporary, "wb") as file:
            digest = _Digest(file)
            with _compressed(digest, compression) as target:
                for piece in pieces:
                    with tf.io.gfile.GFile(piece, "rb") as source:
                        shutil.copyfileobj(source, target, _COPY_BYTES)
    except tf.errors.OpError as error:
        raise unwritable(path, error) from None
    return {"bytes": digest.size, "sha256": digest.sha.hexdigest()}


def appear(temporary: str, path: str) -> None:
    """Gives a finished file its name."""
    try:
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except tf.errors.OpError as error:
        raise unwritable(path, error) from None


def sha256(path: str) -> str:
    """Checksum of a file, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_COPY_BYTES):
            digest.update(block)
    return digest.hexdigest()


def size_of(path: str) -> int:
    """Bytes of a file, -1 if it isn't there."""
    return tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else -1


def name_shards(output_file: str, num_shards: int = 0) -> tuple[str, list[str]]:
    """What --output_file and --num_shards mean: the name of the whole, and its files.

    Args:
        output_file: Paths, separated by commas; with `num_shards` a single one.
        num_shards: Number of files to make of it; 0: the paths as they are.
    """
    files = [path.strip() for path in output_file.split(",") if path.strip()]
    check_output_files(files)
    if num_shards == 0:
        return files[0], files
    if num_shards < 0 or len(files) > 1:
        raise DataError(
            f"--num_shards is {num_shards} and --output_file names {len(files)} files, but a "
            f"number of files is made of one name: NAME-00000-of-{max(num_shards, 1):05d} and so "
            f"on. Give one name, or leave --num_shards out."
        )
    stem, extension = os.path.splitext(files[0])
    numbered = [f"{stem}-{n:05d}-of-{num_shards:05d}{extension}" for n in range(num_shards)]
    return files[0], numbered


def check_output_files(files: Sequence[str]) -> None:
    """Raises DataError if there is none, or one is named twice."""
    if not files or len(set(files)) != len(files):
        raise DataError(f"Output files must be named, each once; received {','.join(files)!r}.")


def make_folder(path: str) -> None:
    """Makes the folder that `path` lies in."""
    folder = os.path.dirname(path)
    if folder:
        tf.io.gfile.makedirs(folder)


def unwritable(path: str, error: tf.errors.OpError) -> DataError:
    """What is raised where a file can't be written."""
    return DataError(
        f"The output file {path} can't be written: {error.message}. Name a folder that you may"
        f" write to, with room enough."
    )


def temporary_name(path: str) -> str:
    """A name to write under."""
    # Unlike a fixed name, it can't be written by two processes at a time: a killed run's workers
    # may live on for a second.
    return f"{path}.{uuid.uuid4().hex[:12]}.partial"


class _Digest:
    """A file that counts and hashes what is written to it."""

    def __init__(self, file):
        self._file = file
        self.size = 0
        self.sha = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self.sha.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """For gzip."""


@contextmanager
def _compressed(target: _Digest, compression: str) -> Iterator[Any]:
    if compression != GZIP:
        yield target
        return
    with gzip.GzipFile("", "wb", _LEVEL, target, mtime=0) as file:
        yield file
