"""The TFRecord schema of pre-training data: encoding, writing, counting, checking.

The features are the original release's, so that its readers and ours take each other's files
(S = max_seq_length, P = max_predictions_per_seq):

    input_ids, input_mask, segment_ids          int64 [S]
    masked_lm_positions, masked_lm_ids          int64 [P], padded with 0
    masked_lm_weights                           float [P], 1 for real predictions, else 0
    next_sentence_labels                        int64 [1], 1 if the second segment is random

Encoding is vectorised: a batch becomes one byte matrix in protocol-buffer layout, with slots for
the longest numbers, whose unused bytes are then squeezed out. The bytes are what protocol
buffers give in deterministic mode.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from data.errors import DataError

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
_GENERATE = "Generate it with 'python -m data.create_pretraining_data'."
_INT64_LIST, _FLOAT_LIST = b"\x1a", b"\x12"


def feature_lengths(max_seq_length: int, max_predictions_per_seq: int) -> dict[str, int]:
    """Length of each feature's list, by name, in the alphabetical order of the encoding."""
    return {
        "input_ids": max_seq_length,
        "input_mask": max_seq_length,
        "masked_lm_ids": max_predictions_per_seq,
        "masked_lm_positions": max_predictions_per_seq,
        "masked_lm_weights": max_predictions_per_seq,
        "next_sentence_labels": 1,
        "segment_ids": max_seq_length,
    }


def feature_description(
    max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, tf.io.FixedLenFeature]:
    """The schema as `tf.io.parse_example` takes it."""
    return {
        name: tf.io.FixedLenFeature(
            [length], tf.float32 if name == "masked_lm_weights" else tf.int64
        )
        for name, length in feature_lengths(max_seq_length, max_predictions_per_seq).items()
    }


def encode_records(batch: dict[str, np.ndarray]) -> list[bytes]:
    """Serialises a batch to `tf.train.Example` records.

    Args:
        batch: The seven features, integers (none negative) [n, S], [n, P] or [n, 1], weights
            float32 [n, P].

    Returns:
        n records.
    """
    n = len(batch["input_ids"])
    if n == 0:
        return []
    blocks: list[tuple[np.ndarray, np.ndarray | None]] = []
    total = np.zeros(1, np.int64)
    for name in feature_lengths(0, 0):
        values = batch[name]
        if name == "masked_lm_weights":
            payload = np.ascontiguousarray(values, "<f4").view(np.uint8)
            keep, size, kind = None, np.array([payload.shape[1]]), _FLOAT_LIST
        else:
            payload, keep = _varints(values)
            size = np.array([payload.shape[1]]) if keep is None else keep.sum(axis=1)
            kind = _INT64_LIST
        list_size = 1 + _varint_size(size) + size
        feature_size = 1 + _varint_size(list_size) + list_size
        key = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12"
        entry_size = len(key) + _varint_size(feature_size) + feature_size
        total = total + 1 + _varint_size(entry_size) + entry_size
        blocks += [_constant(b"\x0a"), _varints(entry_size[:, None])]
        blocks += [_constant(key), _varints(feature_size[:, None])]
        blocks += [_constant(kind), _varints(list_size[:, None])]
        blocks += [_constant(b"\x0a"), _varints(size[:, None]), (payload, keep)]
    blocks[:0] = [_constant(b"\x0a"), _varints(total[:, None])]
    width = sum(block.shape[1] for block, _ in blocks)
    matrix = np.empty((n, width), np.uint8)
    kept = np.ones((n, width), bool)
    column = 0
    for block, keep in blocks:
        span = slice(column, column + block.shape[1])
        matrix[:, span] = block
        if keep is not None:
            kept[:, span] = keep
        column += block.shape[1]
    data = matrix[kept].tobytes()
    ends = np.cumsum(np.broadcast_to(1 + _varint_size(total) + total, n)).tolist()
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _constant(data: bytes) -> tuple[np.ndarray, None]:
    return np.frombuffer(data, np.uint8)[None], None


def _varint_size(values: np.ndarray) -> np.ndarray:
    return 1 + sum((values >= 1 << (7 * k)).astype(np.int64) for k in range(1, 5))


def _varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Bytes uint8 [n, k·w] of numbers [n, k] below 2^35, and which of them are real, if not all."""
    width = int(_varint_size(values.max(initial=0)))
    values = values.astype(np.uint32 if width < 5 else np.uint64)
    if width == 1:
        return values.astype(np.uint8), None
    out = np.empty((*values.shape, width), np.uint8)
    keep = np.empty(out.shape, bool)
    keep[..., 0] = True
    for k in range(width):
        out[..., k] = values >> (7 * k) & 0x7F
        if k:
            keep[..., k] = values >= 1 << (7 * k)
            out[..., k - 1] |= keep[..., k].view(np.uint8) << 7
    shape = (len(values), -1)
    return out.reshape(shape), keep.reshape(shape)


class ShardWriters:
    """Writes records round-robin to several files that appear only when all are complete.

    As a context manager: a clean exit gives the files their names, an exception removes what
    was written and leaves files that were there before untouched. Missing folders are made.
    """

    def __init__(self, files: Sequence[str]):
        """Args: files: paths, none twice (DataError otherwise)."""
        self.files = [os.fspath(path) for path in files]
        if not self.files or len(set(self.files)) != len(self.files):
            raise DataError(
                f"Output files must be named, each once; received {','.join(self.files)!r}."
            )
        self.counts = [0] * len(self.files)
        self._next = 0

    def __enter__(self) -> "ShardWriters":
        self._temporary = [f"{path}.partial" for path in self.files]
        self._writers = []
        try:
            for path in self._temporary:
                folder = os.path.dirname(path)
                if folder:
                    tf.io.gfile.makedirs(folder)
                self._writers.append(tf.io.TFRecordWriter(path))
        except tf.errors.OpError as error:
            self._remove()
            raise _unwritable(path, error) from None
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
                raise _unwritable(self.files[k], error) from None
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
            raise _unwritable(self.files[0], error) from None

    def _remove(self) -> None:
        for writer in self._writers:
            try:
                writer.close()
            except tf.errors.OpError:
                continue
        for path in self._temporary:
            if tf.io.gfile.exists(path):
                tf.io.gfile.remove(path)


def _unwritable(path: str, error: tf.errors.OpError) -> DataError:
    return DataError(
        f"The output file {path.removesuffix('.partial')} can't be written:"
        f" {error.message}. Name a folder that you may write to, with room enough."
    )


def count_records(path: str, limit: int | None = None) -> int:
    """Number of records in a TFRecord file, by the length headers alone; at most `limit`.

    Raises:
        DataError: If the file is missing or truncated (naming the record), or no TFRecord file.
    """
    count = 0
    with _open(path) as file:
        size, position = file.size(), 0
        while position < size and count != limit:
            file.seek(position)
            position += _HEADER.size + _length(file, path, count, size - position) + _FOOTER_BYTES
            count += 1
    return count


def _open(path: str) -> tf.io.gfile.GFile:
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise DataError(f"{path} isn't a file. Name TFRecord files of pre-training data.")
    return tf.io.gfile.GFile(path, "rb")


def _length(file: tf.io.gfile.GFile, path: str, record: int, left: int) -> int:
    header = file.read(_HEADER.size)
    length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else 0
    needed = _HEADER.size + length + _FOOTER_BYTES
    if len(header) < _HEADER.size or needed > left:
        if record == 0 and length > 2**32:
            raise DataError(
                f"{path}: record 0 would be {length:,} bytes long, so this isn't a TFRecord file"
                f" (or a compressed one). {_GENERATE}"
            )
        raise DataError(
            f"{path}: record {record} is truncated: it needs {needed:,} bytes and the file has"
            f" {left:,} left. Copy or generate the file again, or leave it out."
        )
    return length


def check_file(
    path: str, max_seq_length: int, max_predictions_per_seq: int, vocab_size: int | None = None
) -> None:
    """Checks the first record of a file against the expected lengths and vocabulary.

    Raises:
        DataError: For a missing, truncated or foreign file, or a record that doesn't fit. An
            empty file passes.
    """
    with _open(path) as file:
        size = file.size()
        if size == 0:
            return
        record = file.read(_length(file, path, 0, size))
    problem = _problem(record, max_seq_length, max_predictions_per_seq, vocab_size)
    if problem:
        raise DataError(f"{path}: record 0 {problem}")


def diagnose(
    files: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None = None,
) -> None:
    """Finds the first bad record of `files`; for use after a failure inside a tf.data pipeline.

    Reads everything: checksums, lengths, missing features, ranges of ids, positions and labels.

    Raises:
        DataError: Naming the file and the record (counted from 0), what was expected, and what
            to do. If nothing is wrong with any record, returns normally.
    """

    def check(record: bytes) -> str | None:
        return _problem(record, max_seq_length, max_predictions_per_seq, vocab_size)

    description = feature_description(max_seq_length, max_predictions_per_seq)
    for path in files:
        count_error = None
        try:
            count_records(path)
        except DataError as error:
            count_error = error
        read = 0
        try:
            for batch in tf.data.TFRecordDataset(path).batch(512):
                _raise_first(path, read, batch.numpy(), description, vocab_size, check)
                read += len(batch)
        except tf.errors.DataLossError:
            # Again one by one: the batch with the bad record never came.
            read = 0
            try:
                for record in tf.data.TFRecordDataset(path):
                    problem = check(record.numpy())
                    if problem:
                        raise DataError(f"{path}: record {read} {problem}") from None
                    read += 1
            except tf.errors.DataLossError:
                raise count_error or DataError(
                    f"{path}: record {read} is corrupt (its checksum doesn't match). Copy or"
                    " generate the file again, or leave it out."
                ) from None
        except tf.errors.OpError as error:
            raise count_error or DataError(f"{path} can't be read: {error.message}.") from None
        if count_error:
            raise count_error


def _raise_first(
    path: str,
    first: int,
    records: np.ndarray,
    description: dict[str, tf.io.FixedLenFeature],
    vocab_size: int | None,
    check: Callable[[bytes], str | None],
) -> None:
    try:
        parsed = {k: v.numpy() for k, v in tf.io.parse_example(records, description).items()}
        if all(message is None for message in _range_problems(parsed, vocab_size)):
            return
    except tf.errors.InvalidArgumentError:
        pass
    for k, record in enumerate(records):
        problem = check(record)
        if problem:
            raise DataError(f"{path}: record {first + k} {problem}")


def _problem(
    record: bytes, max_seq_length: int, max_predictions_per_seq: int, vocab_size: int | None
) -> str | None:
    """What is wrong with a record, as the rest of a sentence; None if nothing is."""
    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except Exception:  # protobuf's DecodeError has moved between modules over its versions.
        return f"isn't a tf.train.Example. {_GENERATE}"
    features = example.features.feature
    values = {}
    for name, length in feature_lengths(max_seq_length, max_predictions_per_seq).items():
        if name not in features:
            return (
                f"lacks the feature {name} (it has {', '.join(sorted(features)) or 'none'})."
                f" {_GENERATE}"
            )
        kind = "float_list" if name == "masked_lm_weights" else "int64_list"
        found = features[name].WhichOneof("kind")
        if found != kind:
            return f"has {name} as {found}, but {kind} was expected. Generate the data again."
        values[name] = np.array([getattr(features[name], kind).value])
        if values[name].shape[1] != length:
            flag = "max_predictions_per_seq" if "masked" in name else "max_seq_length"
            if name == "next_sentence_labels":
                return f"has {values[name].shape[1]} values of {name}, but 1 was expected."
            return (
                f"has {values[name].shape[1]} values of {name}, but {length} were expected."
                f" Set --{flag}={values[name].shape[1]}, the value that the data was generated"
                f" with, or generate it again with --{flag}={length}."
            )
    return next((m for m in _range_problems(values, vocab_size) if m), None)


def _range_problems(values: dict[str, np.ndarray], vocab_size: int | None) -> Iterator[str | None]:
    """For each feature with a range, what is wrong or None."""
    sequence = values["input_ids"].shape[1]
    for name, limit, advice in (
        ("input_ids", vocab_size, "Use the vocabulary that the data was made with."),
        ("masked_lm_ids", vocab_size, "Use the vocabulary that the data was made with."),
        ("masked_lm_positions", sequence, "Generate the data again."),
        ("input_mask", 2, "Generate the data again."),
        ("segment_ids", 2, "Generate the data again."),
        ("next_sentence_labels", 2, "Generate the data again."),
    ):
        bad = values[name][(values[name] < 0) | (values[name] >= (limit or 2**31))]
        what = f"the vocabulary of {limit:,} pieces" if "_ids" in name and limit != 2 else ""
        yield (
            f"has the value {bad.flat[0]} in {name}, but {what or 'its range'} allows 0 to"
            f" {(limit or 2**31) - 1}. {advice}"
            if bad.size
            else None
        )
    weights = values["masked_lm_weights"]
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    yield (
        f"has the value {bad.flat[0]} in masked_lm_weights, but these must be finite and not"
        " negative. Generate the data again."
        if bad.size
        else None
    )
