"""Reads pre-training records of any length, and goes on where it can when they are damaged.

For looking at records; training reads with `pipeline.py`, which knows what to expect.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from data.dataset_options import deterministic
from data.errors import DataError
from data.pretraining.records import record_files, schema

AGAIN = "Generate the data again."
_BATCH = 512
_FRAME_BYTES = 16  # of a record, besides its content
_READ_BYTES = 2**22
_PLACE = re.compile(r"^: record \d+ ")


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Lengths of a record's features; max_predictions_per_seq is None where it isn't masked."""

    max_seq_length: int
    max_predictions_per_seq: int | None

    def lengths(self) -> dict[str, int]:
        """Length of each feature's list, by name."""
        return schema.feature_lengths(*self._arguments())

    def description(self) -> dict[str, tf.io.FixedLenFeature]:
        """The features as `tf.io.parse_example` takes them."""
        return schema.feature_description(*self._arguments())

    def _arguments(self) -> tuple[int, int, bool]:
        predictions = self.max_predictions_per_seq
        return self.max_seq_length, predictions or 0, predictions is not None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a record (counted from 0 in its file), as the rest of a sentence."""

    file: str
    record: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}: record {self.record} {self.text}"


class DamagedFileError(Exception):
    """The bytes of a TFRecord file are damaged: from here on it can't be read."""

    def __init__(self, problem: Problem):
        super().__init__(str(problem))
        self.problem = problem


def read_batches(
    path: str, limit: int | None = None, skip: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Reads the records of a TFRecord file, compressed or not.

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
    # One by one after a failure: the batch with the bad record never came.
    for batch_size in (_BATCH, 1):
        try:
            compression = record_files.compression(path)
            dataset = tf.data.TFRecordDataset(path, compression, _READ_BYTES).skip(read)
            dataset = dataset if end is None else dataset.take(end - read)
            for batch in deterministic(dataset.batch(batch_size)).prefetch(2):
                batch = batch.numpy()
                yield read, batch
                read += len(batch)
                size += sum(map(len, batch)) + _FRAME_BYTES * len(batch)
            break
        except tf.errors.DataLossError:
            if batch_size == 1:
                raise DamagedFileError(_damage(path, read)) from None
        except tf.errors.OpError as error:
            raise DataError(f"{path} can't be read: {error.message}.") from None
    # TensorFlow takes a file that is cut within a record's length for a whole one.
    if not skip and (end is None or read < end) and not _is_whole(path, compression, size):
        try:
            record_files.count_records(path)
        except DataError:
            raise DamagedFileError(_damage(path, read)) from None


def _is_whole(path: str, compression: str, read: int) -> bool:
    """Whether these are all bytes of the file; of most compressed ones, their end tells it."""
    with tf.io.gfile.GFile(path, "rb") as file:
        size = file.size()
        if not compression:
            return read == size
        file.seek(max(size - 4, 0))
        return read % 2**32 == int.from_bytes(file.read(4), "little")


def _damage(path: str, record: int) -> Problem:
    try:
        record_files.count_records(path, record + 1)
    except DataError as error:
        return Problem(path, record, _PLACE.sub("", str(error)[len(path) :], 1))
    return Problem(
        path,
        record,
        "is corrupt: its checksum doesn't match. The records behind it are not read. Copy or"
        " generate the file again, or leave it out.",
    )


def decode(record: bytes) -> tuple[dict[str, np.ndarray], str | None]:
    """Reads one record without expectations of its lengths.

    Returns:
        The known features that it has, [length] each (a feature of a wrong kind is left out), and
        what is wrong with it as the rest of a sentence, or None.
    """
    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except Exception:  # protobuf's DecodeError has moved between modules over its versions.
        return {}, f"isn't a tf.train.Example. {AGAIN}"
    features, values, problem = example.features.feature, {}, None
    is_masked = any(name in features for name in schema.MASKED)
    for name in schema.feature_lengths(0, 0):
        if name in schema.MASKED and not is_masked:
            continue
        kind = "float_list" if name == "masked_lm_weights" else "int64_list"
        actual_kind = features[name].WhichOneof("kind") if name in features else None
        if actual_kind == kind:
            values[name] = np.array(
                getattr(features[name], kind).value, np.float32 if "weights" in name else np.int64
            )
        elif name not in features:
            have = ", ".join(sorted(features)) or "none"
            problem = problem or f"lacks the feature {name} (it has {have}). {AGAIN}"
        else:
            problem = problem or f"has {name} as {actual_kind}, but {kind} was expected. {AGAIN}"
    if problem is None:
        layout = layout_of(values)
        for name, length in layout.lengths().items():
            if len(values[name]) != length:
                problem = (
                    f"has {len(values[name])} values of {name}, but {length} were expected"
                    f" beside {_beside(name, layout)}. {AGAIN}"
                )
                break
        if 0 in layout.lengths().values():
            problem = f"has empty features. {AGAIN}"
    return values, problem


def _beside(name: str, layout: RecordLayout) -> str:
    if name in schema.MASKED:
        return f"{layout.max_predictions_per_seq} masked_lm_positions"
    return f"{layout.max_seq_length} input_ids"


def layout_of(values: dict[str, np.ndarray]) -> RecordLayout:
    positions = values.get("masked_lm_positions")
    return RecordLayout(len(values["input_ids"]), None if positions is None else len(positions))


def has_masks(record: bytes) -> bool:
    """Whether a serialized record seems to have one of the masked_lm_* features."""
    return b"masked_lm_" in record
