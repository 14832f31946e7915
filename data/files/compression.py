"""The bytes of corpus files, compressed or not, in blocks: memory stays constant.

gzip, bzip2 (as WikiExtractor's --compress writes it) and Zstandard are told by a file's first
bytes, whatever its name. Files of several members or frames in a row, as `cat` and parallel
compressors make them, are one text. Zstandard needs the package `zstandard`.

    for block in read_blocks(path, compression_of(read_head(path))):
        …
"""

import bz2
import gzip
import itertools
import re
import zlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from data.errors import DataError

BLOCK_BYTES = 2**21
"""What one block has at most, unless decompression yields more at once."""

_SMALL_BLOCK_BYTES = 2**16
_PACKED_BYTES = 2**9  # Zstandard may turn these into 16 MB.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # Frames before the data, as pzstd's
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|" + _SKIPPABLE.pattern),
}


def read_head(path: str, size: int = 16) -> bytes:
    """The first bytes of a file, for telling what it is.

    Raises:
        DataError: If the file can't be read.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        return _read(file, size, path)


def stored_bytes(path: str) -> int:
    """The size of a file as it is stored.

    Raises:
        DataError: If the file can't be read.
    """
    try:
        return tf.io.gfile.stat(path).length
    except tf.errors.OpError as error:
        raise DataError(f"{path} can't be read: {error.message}.") from None


def compression_of(head: bytes) -> str | None:
    """The compression of a file that begins with `head`: "gzip", "bzip2", "zstd" or None."""
    return next((name for name, magic in _MAGIC.items() if magic.match(head)), None)


def read_blocks(
    path: str,
    compression: str | None = None,
    begin: int = 0,
    end: int | None = None,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[bytes]:
    """Streams a file's uncompressed bytes.

    Args:
        path: Anything that `tf.io.gfile` opens.
        compression: What `compression_of` said.
        begin: The first byte wanted; must be 0 if the file is compressed.
        end: A hint where reading is likely to stop: around it blocks are small, so that little
            is read in vain. Blocks go on to the end of the file nevertheless.
        on_read: Called with a number of bytes each time that so many more have been read, as
            they lie on disk (compressed, if they are; what decompression read ahead included).

    Yields:
        Blocks, none of them empty, the first one small.

    Raises:
        DataError: For a file that can't be read or is damaged, and if the package that
            decompresses it is missing.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        if compression is None:
            for block in _read_plain(file, path, begin, end):
                if on_read:
                    on_read(len(block))
                yield block
            return
        unpack = {"gzip": _unpack_gzip, "bzip2": _unpack_bzip2, "zstd": _unpack_zstd}[compression]
        reported = 0
        for block in itertools.chain(unpack(file, path), [b""]):
            if on_read and (place := file.tell()) > reported:
                on_read(place - reported)
                reported = place
            if block:
                yield block


def _read(file: tf.io.gfile.GFile, size: int, path: str) -> bytes:
    try:
        return file.read(size)
    except tf.errors.OpError as error:
        raise DataError(f"{path} can't be read: {error.message}.") from None


def _read_plain(file: tf.io.gfile.GFile, path: str, begin: int, end: int | None) -> Iterator[bytes]:
    position = begin
    if begin:
        file.seek(begin)
    small = min(_SMALL_BLOCK_BYTES, BLOCK_BYTES)
    while True:
        if position == begin or (end is not None and position >= end):
            size = small
        else:
            size = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
        block = _read(file, size, path)
        if not block:
            return
        yield block
        position += len(block)


def _unpack_gzip(file: tf.io.gfile.GFile, path: str) -> Iterator[bytes]:
    stream = gzip.GzipFile(fileobj=_Reader(file, path), mode="rb")
    yield from _unpacked(stream, path, "gzip", (EOFError, zlib.error, gzip.BadGzipFile))


def _unpack_bzip2(file: tf.io.gfile.GFile, path: str) -> Iterator[bytes]:
    stream = bz2.BZ2File(_Reader(file, path), mode="rb")
    yield from _unpacked(stream, path, "bzip2", (EOFError, OSError))


def _unpacked(
    stream: gzip.GzipFile | bz2.BZ2File, path: str, name: str, errors: tuple[type, ...]
) -> Iterator[bytes]:
    size = min(_SMALL_BLOCK_BYTES, BLOCK_BYTES)
    while True:
        try:
            block = stream.read(size)
        except errors as error:
            raise _damaged(path, name, error) from None
        if not block:
            return
        yield block
        size = BLOCK_BYTES


def _unpack_zstd(file: tf.io.gfile.GFile, path: str) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            f"{path}: reading Zstandard needs the package zstandard, which can't be imported"
            f" ({error}). Install it (pip install zstandard) or decompress the file."
        ) from None
    # `zstd --long=31` asks for the largest window. The stream reader of the package takes a
    # truncated file for a whole one; its lower layer tells where frames end.
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**31)
    frame, parts, held = None, [], 0
    wanted = min(_SMALL_BLOCK_BYTES, BLOCK_BYTES)
    while block := _read(file, _SMALL_BLOCK_BYTES, path):
        for at in range(0, len(block), _PACKED_BYTES):
            packed = block[at : at + _PACKED_BYTES]
            while packed:
                frame = frame or unpacker.decompressobj()
                try:
                    part = frame.decompress(packed)
                except zstandard.ZstdError as error:
                    raise _damaged(path, "Zstandard", error) from None
                packed = b""
                if frame.eof:
                    packed, frame = frame.unused_data, None
                parts.append(part)
                held += len(part)
            if held >= wanted:
                yield b"".join(parts)
                parts, held, wanted = [], 0, BLOCK_BYTES
    if held:
        yield b"".join(parts)
    if frame is not None:
        raise _damaged(path, "Zstandard", "it ends within a frame")


def _damaged(path: str, name: str, error: object) -> DataError:
    return DataError(
        f"{path} is a damaged or truncated {name} file ({error}). Restore it or leave it out."
    )


class _Reader:
    """Lets the standard library read a file whose errors have become DataErrors."""

    def __init__(self, file: tf.io.gfile.GFile, path: str):
        self._file = file
        self._path = path

    def read(self, size: int = -1) -> bytes:
        return _read(self._file, size, self._path)
