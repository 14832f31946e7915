"""TFRecord files as files: compressed or not, how many records they hold, whether they are whole.

    count_records("train-00000-of-00008.tfrecord")

What is in a record is the business of `schema.py`.
"""

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from data.errors import DataError

GENERATE = "Generate it with 'python -m data.create_pretraining_data'."
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
# The method too: a length in bytes can begin with the first two bytes as well.
_GZIP = b"\x1f\x8b\x08"
_SKIP_BYTES = 2**20


def compression(path: str) -> str:
    """ "GZIP" or "", as `tf.data.TFRecordDataset` takes it; told by the file's first bytes.

    Raises:
        DataError: If the file is missing.
    """
    with _open(path) as file:
        return "GZIP" if file.read(len(_GZIP)) == _GZIP else ""


def count_records(path: str, limit: int | None = None) -> int:
    """Number of records in a TFRecord file, by the length headers alone; at most `limit`.

    Raises:
        DataError: If the file is missing or truncated (naming the record), or no TFRecord file.
    """
    if compression(path):
        return _read_compressed(path, limit, _skip)[0]
    count = 0
    with _open(path) as file:
        size, position = file.size(), 0
        while position < size and count != limit:
            file.seek(position)
            header = file.read(_HEADER.size)
            position += _HEADER.size + _length(header, path, count, size - position)
            position += _FOOTER_BYTES
            count += 1
    return count


def first_record(path: str) -> bytes | None:
    """The first record of a file, unchecked; None if there is none. Raises as `count_records`."""
    if compression(path):
        return _read_compressed(path, 1, lambda file, length: file.read(length))[1]
    with _open(path) as file:
        size = file.size()
        if size == 0:
            return None
        return file.read(_length(file.read(_HEADER.size), path, 0, size))


def _open(path: str) -> tf.io.gfile.GFile:
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise DataError(f"{path} isn't a file. Name TFRecord files of pre-training data.")
    return tf.io.gfile.GFile(path, "rb")


def _length(header: bytes, path: str, record: int, left: int) -> int:
    length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else 0
    needed = _HEADER.size + length + _FOOTER_BYTES
    if len(header) < _HEADER.size or needed > left:
        _refuse_foreign(path, record, length)
        raise DataError(
            f"{path}: record {record} is truncated: it needs {needed:,} bytes and the file has"
            f" {left:,} left. Copy or generate the file again, or leave it out."
        )
    return length


def _refuse_foreign(path: str, record: int, length: int) -> None:
    if record == 0 and length > 2**32:
        raise DataError(
            f"{path}: record 0 would be {length:,} bytes long, so this isn't a TFRecord file"
            f" (nor a GZIP-compressed one). {GENERATE}"
        )


def _read_compressed(
    path: str, limit: int | None, read: Callable[[gzip.GzipFile, int], Any]
) -> tuple[int, Any]:
    """Goes through a compressed file.

    Args:
        path: The file.
        limit: Records to read at most.
        read: Called with the stream before each record's content, and the content's length.

    Returns:
        The number of records, and what `read` returned for the last one.
    """
    count, result = 0, None
    try:
        with _open(path) as raw, gzip.GzipFile(fileobj=raw, mode="rb") as file:
            while count != limit:
                header = file.read(_HEADER.size)
                if not header:
                    break
                if len(header) < _HEADER.size:
                    raise EOFError
                length = _HEADER.unpack(header)[0]
                _refuse_foreign(path, count, length)
                result = read(file, length)
                if len(file.read(_FOOTER_BYTES)) < _FOOTER_BYTES:
                    raise EOFError
                count += 1
    except EOFError:
        _damaged(path, count, "is truncated: the GZIP-compressed file ends within it")
    except (zlib.error, gzip.BadGzipFile) as error:
        _damaged(path, count, f"is corrupt: the file can't be decompressed ({error})")
    return count, result


def _skip(file: gzip.GzipFile, length: int) -> None:
    while length > 0:
        read = len(file.read(min(length, _SKIP_BYTES)))
        if not read:
            raise EOFError
        length -= read


def _damaged(path: str, record: int, what: str) -> NoReturn:
    raise DataError(
        f"{path}: record {record} {what}. Copy or generate the file again, or leave it out."
    )
