"""Record files that are there whole or not at all: writing, and joining pieces to a shard."""

import contextlib
import dataclasses
import gzip
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.pretraining.records.record_files import FRAME_BYTES, first_record
from data.pretraining.records.shard_marks import ShardMark, mark_record

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
        check_output_shards(self.files)
        self.counts = [0] * len(self.files)
        self._next = 0

    def __enter__(self) -> "ShardWriters":
        with contextlib.ExitStack() as stack:
            for path in self.files:
                atomic.make_folder(path)
            # All are complete before the first gets its name.
            temporaries = [stack.enter_context(atomic.replacing(path)) for path in self.files]
            self._writers = []
            for path, temporary in zip(self.files, temporaries, strict=True):
                stack.enter_context(atomic.name_failing_file(path))
                writer = contextlib.closing(tf.io.TFRecordWriter(temporary))
                self._writers.append(stack.enter_context(writer))
            self._stack = stack.pop_all()
        return self

    def write(self, records: Sequence[bytes]) -> None:
        """Appends records, each to the next file in turn."""
        n = len(self._writers)
        for k, writer in enumerate(self._writers):
            mine = records[(k - self._next) % n :: n]
            with atomic.name_failing_file(self.files[k]):
                for record in mine:
                    writer.write(record)
            self.counts[k] += len(mine)
        self._next = (self._next + len(records)) % n

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def join_shard_pieces(
    pieces: Sequence[str], file: Any, compression: str = "none", mark: ShardMark | None = None
) -> dict[str, Any]:
    """Joins TFRecord files to one.

    Args:
        pieces: Uncompressed TFRecord files, in order.
        file: Open for writing.
        compression: One of `COMPRESSIONS`; gzip has no time stamp, so equal records are equal
            bytes.
        mark: For the first record; its `bytes_behind` is found here.

    Returns:
        bytes and sha256 of what was written.
    """
    pieces = [piece for piece in pieces if shard_size(piece)]
    target = digest = _Digest(file)
    with contextlib.ExitStack() as stack:
        if compression == GZIP:
            target = stack.enter_context(gzip.GzipFile("", "wb", _LEVEL, digest, mtime=0))
        skipped = 0
        if mark and pieces:
            record = first_record(pieces[0])
            skipped = FRAME_BYTES + len(record)
            behind = sum(map(shard_size, pieces)) - skipped
            record = mark_record(record, dataclasses.replace(mark, bytes_behind=behind))
            target.write(_framed(record))
        for piece in pieces:
            with tf.io.gfile.GFile(piece, "rb") as source:
                source.seek(skipped)
                shutil.copyfileobj(source, target, _COPY_BYTES)
            skipped = 0
    return {"bytes": digest.size, "sha256": digest.sha.hexdigest()}


def _framed(record: bytes) -> bytes:
    """The bytes of a TFRecord file that holds one record; TensorFlow only writes such to files."""
    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            writer.write(record)
        return file.read()


def shard_sha256(path: str) -> str:
    """Checksum of a file, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_COPY_BYTES):
            digest.update(block)
    return digest.hexdigest()


def shard_size(path: str) -> int:
    """Bytes of a file, -1 if it isn't there."""
    there = tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
    return tf.io.gfile.stat(path).length if there else -1


def name_shards(output_file: str, num_shards: int = 0) -> tuple[str, list[str]]:
    """What --output_file and --num_shards mean: the name of the whole, and its files.

    Args:
        output_file: Paths, separated by commas; with `num_shards` a single one.
        num_shards: Number of files to make of it; 0: the paths as they are.
    """
    files = [path.strip() for path in output_file.split(",") if path.strip()]
    check_output_shards(files)
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


def check_output_shards(files: Sequence[str]) -> None:
    """Raises DataError if there is none, one is twice or a folder, or remote ones lie apart."""
    if not files or len(set(files)) != len(files):
        raise DataError(f"Output files must be named, each once; received {','.join(files)!r}.")
    for path in files:
        if tf.io.gfile.isdir(path):
            raise DataError(f"The output file {path} is a folder. Give a name in it.")
    if "://" in files[0] and len(set(map(os.path.dirname, files))) > 1:
        raise DataError(
            f"The output files {', '.join(files)} lie in several folders, but the manifest beside"
            " the first names the others by their way from there, which object stores don't know."
            " Give files of one folder."
        )


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
