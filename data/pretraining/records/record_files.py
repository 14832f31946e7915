"""TFRecord files as files: compressed or not, how many records they hold, whether they are whole.

    count_records("train-00000-of-00008.tfrecord")

What is in a record is the business of `schema.py`.
"""

import gzip
import itertools
import re
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from data.dataset_options import deterministic_dataset
from data.errors import DataError

GENERATE = "Generate it with 'python -m data.create_pretraining_data'."
_HEADER = struct.Struct("<QI")
FRAME_BYTES = _HEADER.size + 4
"""Of a record, besides its content."""
# The method too: a length in bytes can begin with the first two bytes as well.
_GZIP = b"\x1f\x8b\x08"
_BATCH = 512
_READ_BYTES = 2**22
_PLACE = re.compile(r"^: record \d+ ")


class DamagedRecordError(DataError):
    """The bytes of a TFRecord file are damaged: from here on it can't be read.

    Attributes:
        record: The first one that can't be read, counted from 0.
        text: What is wrong with it, as the rest of a sentence.
    """

    def __init__(self, path: str, record: int, text: str):
        super().__init__(f"{path}: record {record} {text}")
        self.record, self.text = record, text


def record_compression(path: str) -> str:
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
    return sum(1 for _ in itertools.islice(_contents(path, read=False), limit))


def first_record(path: str) -> bytes | None:
    """The first record of a file, unchecked; None if there is none. Raises as `count_records`."""
    return next(_contents(path, read=True), None)


def read_record_files(
    path: str, limit: int | None = None, skip: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Reads the records of a TFRecord file of any kind, as far as it isn't damaged.

    Args:
        path: Any path that `tf.io.gfile` opens.
        limit: How many to read at most.
        skip: How many to leave out in the beginning.

    Yields:
        The number of the batch's first record, and the records, an array of bytes.

    Raises:
        DataError: If the file is missing or may not be read.
        DamagedFileError: In the place of the first record that can't be read.
    """
    read, end, size = skip, None if limit is None else skip + limit, 0
    kind = record_compression(path)
    # One by one after a failure: the batch with the bad record never came.
    for batch_size in (_BATCH, 1):
        try:
            dataset = tf.data.TFRecordDataset(path, kind, _READ_BYTES).skip(read)
            dataset = dataset if end is None else dataset.take(end - read)
            for batch in deterministic_dataset(dataset.batch(batch_size)).prefetch(2):
                batch = batch.numpy()
                yield read, batch
                read += len(batch)
                size += sum(map(len, batch)) + FRAME_BYTES * len(batch)
            break
        except tf.errors.DataLossError:
            if batch_size == 1:
                raise _damage(path, read) from None
        except tf.errors.OpError as error:
            raise DataError(f"{path} can't be read: {error.message}.") from None
    # TensorFlow takes a file that is cut within a record's length for a whole one.
    if not skip and (end is None or read < end) and not has_length(path, size):
        try:
            count_records(path)
        except DataError:
            raise _damage(path, read) from None


def has_length(path: str, length: int) -> bool:
    """Whether a file has so many bytes, unpacked; most compressed ones tell it at their end."""
    with _open(path) as file:
        size = file.size()
        if not record_compression(path):
            return length == size
        file.seek(max(size - 4, 0))
        return length % 2**32 == int.from_bytes(file.read(4), "little")


def _damage(path: str, record: int) -> DamagedRecordError:
    try:
        count_records(path, record + 1)
    except DataError as error:
        return DamagedRecordError(path, record, _PLACE.sub("", str(error)[len(path) :], 1))
    return DamagedRecordError(
        path,
        record,
        "is corrupt: its checksum doesn't match. The records behind it are not read. Copy or"
        " generate the file again, or leave it out.",
    )


def _open(path: str) -> tf.io.gfile.GFile:
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise DataError(f"{path} isn't a file. Name TFRecord files of pre-training data.")
    return tf.io.gfile.GFile(path, "rb")


def _contents(path: str, read: bool) -> Iterator[bytes]:
    """Each record's content if it is to be `read`, else b""; no checksum is looked at."""
    record = position = 0
    what = None
    with _open(path) as raw:
        size = raw.size()
        file = gzip.GzipFile(fileobj=raw, mode="rb") if record_compression(path) else raw
        try:
            while header := file.read(_HEADER.size):
                length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else 0
                if record == 0 and length > 2**32:
                    raise DataError(
                        f"{path}: record 0 would be {length:,} bytes long, so this isn't a TFRecord"
                        f" file (nor a GZIP-compressed one). {GENERATE}"
                    )
                needed, left = FRAME_BYTES + length, size - position
                if file is raw and needed > left:
                    what = f"is truncated: it needs {needed:,} bytes and the file has {left:,} left"
                    break
                content = file.read(length) if read else b""
                position += needed
                file.seek(position - 1)
                if not file.read(1):
                    raise EOFError
                yield content
                record += 1
        except (EOFError, OverflowError):
            what = "is truncated: the GZIP-compressed file ends within it"
        except (zlib.error, gzip.BadGzipFile) as error:
            what = f"is corrupt: the file can't be decompressed ({error})"
    if what:
        raise DataError(
            f"{path}: record {record} {what}. Copy or generate the file again, or leave it out."
        )
