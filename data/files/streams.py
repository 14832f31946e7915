"""The bytes of files, compressed or not, in blocks: memory stays constant.

gzip, bzip2 (as WikiExtractor's --compress writes it), xz and Zstandard are told by the first
bytes, whatever a file's name. Files of several members or frames in a row, as `cat` and parallel
compressors make them, are one text. Zstandard needs the package `zstandard`.

    for block in read_blocks(path, file_compression(read_file_head(path))):
        …
"""

import bz2
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from data.errors import DataError, did_you_mean

BLOCK_BYTES = 2**21
"""What one block has at most, unless decompression yields more at once."""
READABLE = "Check the name and that the file is readable."

_SMALL_BLOCK_BYTES = 2**16
_MOST_NAMES = 10_000  # that a missing file's is compared with
_PACKED_BYTES = 2**9  # Zstandard may turn these into 16 MB.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # Frames before the data, as pzstd's
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|" + _SKIPPABLE.pattern),
}


def read_file_head(path: str) -> bytes:
    """The first bytes of a file, for telling what it is; DataError if it can't be read."""
    with tf.io.gfile.GFile(path, "rb") as file:
        return read(file, 16, path)


def stored_file_bytes(path: str) -> int:
    """The size of a file as it is stored; DataError if it can't be read."""
    try:
        return tf.io.gfile.stat(path).length
    except tf.errors.OpError as error:
        raise unreadable(path, error) from None


def file_compression(head: bytes) -> str | None:
    """The compression of what begins so: "gzip", "bzip2", "xz", "zstd" or None."""
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
        compression: What `file_compression` said.
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
    small = min(_SMALL_BLOCK_BYTES, BLOCK_BYTES)

    def stored(file: tf.io.gfile.GFile) -> Iterator[bytes]:
        position = begin
        if begin:
            file.seek(begin)
        while True:
            if compression or position == begin or (end is not None and position >= end):
                size = small
            else:
                size = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
            block = read(file, size, path)
            if not block:
                return
            if on_read:
                on_read(len(block))
            yield block
            position += len(block)

    with tf.io.gfile.GFile(path, "rb") as file:
        blocks = stored(file)
        yield from decompressed_stream(blocks, compression, path) if compression else blocks


def read(file: Any, size: int, name: str) -> bytes:
    """At most so many bytes of an open file; DataError if they can't be read."""
    try:
        return file.read(size)
    except (tf.errors.OpError, OSError) as error:
        raise unreadable(name, error) from error


def unreadable(name: str, error: Exception, hint: str = READABLE) -> DataError:
    """What is raised where a file can't be read."""
    near = near_file(name) if isinstance(error, tf.errors.NotFoundError) else ""
    return DataError(f"{name} can't be read ({type(error).__name__}){near}. {hint}")


def near_file(path: str) -> str:
    """For messages of a file that isn't there, as `did_you_mean`: the likest name beside it."""
    folder, name = os.path.split(path)
    try:
        names = [entry.rstrip("/") for entry in tf.io.gfile.listdir(folder or ".")]
        names = [entry for entry in names if entry != name]  # a link that leads nowhere
    except tf.errors.OpError:
        return ""
    return did_you_mean(name, names[:_MOST_NAMES], cutoff=0.75)


def decompressed_stream(
    chunks: Iterable[bytes], compression: str, name: str, at_once: bool = False
) -> Iterator[bytes]:
    """Decompresses.

    Args:
        chunks: Of compressed bytes.
        compression: What `file_compression` said.
        name: Of the file, for messages.
        at_once: Whether all that a chunk holds comes before the next chunk is asked for.

    Yields:
        Blocks as `read_blocks`.

    Raises:
        DataError: See `read_blocks`.
    """
    new_frame, called, errors = _decompressor(compression, name)
    frame, parts, held = None, [], 0
    enough = min(_SMALL_BLOCK_BYTES, BLOCK_BYTES)
    later = enough if at_once else BLOCK_BYTES
    for chunk in chunks:
        for begin in range(0, len(chunk), _PACKED_BYTES):
            packed = chunk[begin : begin + _PACKED_BYTES]
            while packed:
                if frame is None:
                    # Tapes and some tools fill up with zeros behind a frame.
                    packed = packed.lstrip(b"\0")
                    if not packed:
                        break
                    frame = new_frame()
                try:
                    part = frame.decompress(packed)
                except errors as error:
                    raise _damaged(name, called, error) from None
                packed = b""
                if frame.eof:
                    packed, frame = frame.unused_data, None
                parts.append(part)
                held += len(part)
            if held >= enough:
                yield b"".join(parts)
                parts, held, enough = [], 0, later
        if held and at_once:
            yield b"".join(parts)
            parts, held = [], 0
    if held:
        yield b"".join(parts)
    if frame is not None:
        raise _damaged(name, called, "it ends too early")


def _decompressor(
    compression: str, name: str
) -> tuple[Callable[[], Any], str, tuple[type[Exception], ...]]:
    """What makes a decompressor of one frame, the format's name, and what damage raises."""
    if compression == "gzip":
        return lambda: zlib.decompressobj(wbits=31), compression, (zlib.error,)
    if compression == "bzip2":
        return bz2.BZ2Decompressor, compression, (OSError,)
    if compression == "xz":
        return lzma.LZMADecompressor, compression, (lzma.LZMAError,)
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            f"{name}: reading Zstandard needs the package zstandard, which can't be imported"
            f" ({error}). Install it (pip install zstandard) or decompress the file."
        ) from None
    # `zstd --long=31` asks for the largest window. The stream reader of the package takes a
    # truncated file for a whole one; its lower layer tells where frames end.
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**31)
    return unpacker.decompressobj, "Zstandard", (zstandard.ZstdError,)


def _damaged(name: str, called: str, error: object) -> DataError:
    return DataError(
        f"{name} is a damaged or truncated {called} file ({error}). Copy or compress it anew, or"
        " leave it out."
    )
