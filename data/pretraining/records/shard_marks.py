"""What a record file says of itself: a mark in its first record.

The first record of each file that we write has features beside those of the schema. Readers that
don't ask for them, the original release's among them, pass over them.

    shard_number, shard_count   int64 [1]   which file, from 0, of how many
    shard_empty                 int64 [1]   how many of these files have no record, and no mark
    shard_records               int64 [1]   records in this file
    shard_bytes_behind          int64 [1]   length of the unpacked file behind the first record
    shard_set                   bytes [1]   the same in all files of one job, and in no others
    shard_vocabulary            bytes [1]   `vocabulary.vocabulary_checksum` of the tokens

So a file that was cut at a record's border is known by its length alone, before anything is read.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from data.pretraining.records.record_files import FRAME_BYTES, first_record, has_length
from data.tokenization.vocabulary import vocabulary_checksum

_PREFIX = "shard_"


@dataclasses.dataclass(frozen=True, slots=True)
class ShardMark:
    """The features of a mark, see above."""

    number: int
    count: int
    empty: int
    records: int
    bytes_behind: int
    set: str
    vocabulary: str

    @classmethod
    def of_job(
        cls,
        fingerprint: str,
        tokens: Sequence[str],
        number: int,
        count: int,
        empty: int,
        records: int,
    ) -> "ShardMark":
        """All that is known before the file is written: its length isn't."""
        return cls(number, count, empty, records, 0, fingerprint[:16], vocabulary_checksum(tokens))


def mark_record(record: bytes, mark: ShardMark) -> bytes:
    """A `tf.train.Example` with the mark's features beside its own."""
    example = tf.train.Example.FromString(record)
    for name, value in dataclasses.asdict(mark).items():
        feature = example.features.feature[f"{_PREFIX}{name}"]
        if isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.bytes_list.value.append(value.encode())
    return example.SerializeToString(deterministic=True)


def read_mark(path: str) -> tuple[ShardMark | None, bool]:
    """The mark of a record file, None without one, and whether its length is the one told there.

    Of a file without a mark the latter says whether there are records in it.

    Raises:
        DataError: The file is missing, or its first record can't be read.
    """
    record = first_record(path)
    mark = _mark_of(record) if record is not None else None
    if mark is None:
        return None, record is not None
    return mark, has_length(path, FRAME_BYTES + len(record) + mark.bytes_behind)


def _mark_of(record: bytes) -> ShardMark | None:
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return None  # No record of ours; checking its features says so.
    values: dict[str, Any] = {}
    for field in dataclasses.fields(ShardMark):
        # Asking a protocol buffer's map for a name would put it there.
        name = f"{_PREFIX}{field.name}"
        feature = features[name] if name in features else tf.train.Feature()
        numbers, texts = feature.int64_list.value, feature.bytes_list.value
        found = (
            numbers if field.type is int else [text.decode("ascii", "replace") for text in texts]
        )
        if len(found) != 1:
            return None
        values[field.name] = found[0]
    return ShardMark(**values)
