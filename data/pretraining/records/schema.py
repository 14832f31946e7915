"""The TFRecord schema of pre-training data: encoding, writing, checking.

The features are the original release's, so that its readers and ours take each other's files
(S = max_seq_length, P = max_predictions_per_seq):

    input_ids, input_mask, segment_ids          int64 [S]
    masked_lm_positions, masked_lm_ids          int64 [P], padded with 0
    masked_lm_weights                           float [P], 1 for real predictions, else 0
    next_sentence_labels                        int64 [1], 1 if the second segment is random

Records that are to be masked while training have none of the masked_lm_* features.

Encoding is vectorised: a batch becomes one byte matrix in protocol-buffer layout, with slots for
the longest numbers, whose unused bytes are then squeezed out. The bytes are what protocol
buffers give in deterministic mode.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.pretraining.records.record_files import GENERATE, first_record, read_record_files

MASKED = ("masked_lm_ids", "masked_lm_positions", "masked_lm_weights")
"""The features that records without masks lack."""
AGAIN = "Generate the data again."
_INT64_LIST, _FLOAT_LIST = b"\x1a", b"\x12"


def _feature_lengths(max_seq_length: int, max_predictions_per_seq: int | None) -> dict[str, int]:
    """Length of each feature's list, by name, in the alphabetical order of the encoding.

    Without masks max_predictions_per_seq is None.
    """
    lengths = {
        "input_ids": max_seq_length,
        "input_mask": max_seq_length,
        "masked_lm_ids": max_predictions_per_seq,
        "masked_lm_positions": max_predictions_per_seq,
        "masked_lm_weights": max_predictions_per_seq,
        "next_sentence_labels": 1,
        "segment_ids": max_seq_length,
    }
    return {name: n for name, n in lengths.items() if n is not None}


def feature_description(
    max_seq_length: int, max_predictions_per_seq: int, masked: bool | None = True
) -> dict[str, tf.io.FixedLenFeature]:
    """The schema as `tf.io.parse_example` takes it.

    Args:
        max_seq_length: S.
        max_predictions_per_seq: P.
        masked: Whether the records have masks; None: some may, some not. Those without get zeros
            as their masked_lm_*, so no predictions.
    """
    description = {}
    predictions = None if masked is False else max_predictions_per_seq
    for name, length in _feature_lengths(max_seq_length, predictions).items():
        dtype = tf.float32 if name == "masked_lm_weights" else tf.int64
        default = [0] * length if name in MASKED and masked is None else None
        description[name] = tf.io.FixedLenFeature([length], dtype, default)
    return description


def record_limits(vocab_size: int | None, max_seq_length: int) -> dict[str, int | None]:
    """What the values of a feature are below, if it has such a limit; none is negative."""
    return {
        "input_ids": vocab_size,
        "masked_lm_ids": vocab_size,
        "masked_lm_positions": max_seq_length,
        "input_mask": 2,
        "segment_ids": 2,
        "next_sentence_labels": 2,
    }


def encode_records(batch: dict[str, np.ndarray]) -> list[bytes]:
    """Serialises a batch to `tf.train.Example` records.

    Args:
        batch: The seven features, or the four that aren't masks: integers (none negative) [n, S],
            [n, P] or [n, 1], weights float32 [n, P].

    Returns:
        n records.
    """
    n = len(batch["input_ids"])
    if n == 0:
        return []
    blocks: list[tuple[np.ndarray, np.ndarray | None]] = []
    total = np.zeros(1, np.int64)
    masked = any(name in batch for name in MASKED)
    for name in _feature_lengths(0, 0 if masked else None):
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


def check_record_file(
    path: str,
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None = None,
    masked: bool | None = True,
) -> None:
    """Checks the first record of a file against the expected lengths and vocabulary.

    Args:
        path: A TFRecord file, GZIP-compressed or not.
        max_seq_length, max_predictions_per_seq: Lengths of the features.
        vocab_size: Ids must be below it.
        masked: Whether the record is to have masks; None: either will do.

    Raises:
        DataError: For a missing, truncated or foreign file, or a record that doesn't fit. An
            empty file passes.
    """
    record = first_record(path)
    if record is None:
        return
    problem = _problem(record, max_seq_length, max_predictions_per_seq, vocab_size, masked)
    if problem:
        raise DataError(f"{path}: record 0 {problem}")


def find_bad_record(
    files: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None = None,
    masked: bool | None = True,
) -> None:
    """Finds the first bad record of `files`; for use after a failure inside a tf.data pipeline.

    Reads everything: checksums, lengths, missing features, ranges of ids, positions and labels.
    The other arguments are those of `check_record_file`.

    Raises:
        DataError: Naming the file and the record (counted from 0), what was expected, and what
            to do. If nothing is wrong with any record, returns normally.
    """
    description = feature_description(max_seq_length, max_predictions_per_seq, masked)
    for path in files:
        for first, records in read_record_files(path):
            try:
                parsed = tf.io.parse_example(records, description)
                values = {name: value.numpy() for name, value in parsed.items()}
                if all(message is None for message in _range_problems(values, vocab_size)):
                    continue
            except tf.errors.InvalidArgumentError:
                pass
            for number, record in enumerate(records, first):
                problem = _problem(
                    record, max_seq_length, max_predictions_per_seq, vocab_size, masked
                )
                if problem:
                    raise DataError(f"{path}: record {number} {problem}")


def decode_records(record: bytes) -> tuple[dict[str, np.ndarray], str | None]:
    """Reads one record without expectations of its lengths.

    Returns:
        The known features that it has, [length] each (a feature of a wrong kind is left out), and
        what is wrong with it as the rest of a sentence, or None.
    """
    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except Exception:  # protobuf's DecodeError has moved between modules over its versions.
        return {}, f"isn't a tf.train.Example. {GENERATE}"
    features, values, problem = example.features.feature, {}, None
    is_masked = any(name in features for name in MASKED)
    for name in _feature_lengths(0, 0 if is_masked else None):
        kind = "float_list" if name == "masked_lm_weights" else "int64_list"
        actual_kind = features[name].WhichOneof("kind") if name in features else None
        if actual_kind == kind:
            values[name] = np.array(
                getattr(features[name], kind).value, np.float32 if "weights" in name else np.int64
            )
        elif name not in features:
            present = ", ".join(sorted(features)) or "none"
            problem = problem or f"lacks the feature {name} (it has {present}). {GENERATE}"
        else:
            problem = problem or f"has {name} as {actual_kind}, but {kind} was expected. {AGAIN}"
    if problem is None:
        layout = record_layout(values)
        lengths = _feature_lengths(*layout)
        for name, length in lengths.items():
            if len(values[name]) != length:
                beside = "masked_lm_positions" if name in MASKED else "input_ids"
                problem = problem or (
                    f"has {len(values[name])} values of {name}, but {length} were expected"
                    f" beside {lengths[beside]} {beside}. {AGAIN}"
                )
        if 0 in lengths.values():
            problem = f"has empty features. {AGAIN}"
    return values, problem


def record_layout(values: dict[str, np.ndarray]) -> tuple[int, int | None]:
    """S and P of a decoded record; P is None where it has no masks."""
    positions = values.get("masked_lm_positions")
    return len(values["input_ids"]), None if positions is None else len(positions)


# Where masks were expected and there are none, and the other way round.
_OTHER_KIND = {
    False: "holds no masks, as records that are masked while training. Give --dynamic_masking, or"
    " generate the data again without it.",
    True: "holds masks (masked_lm_ids and so on), but records without were expected. Generate the"
    " data again with --dynamic_masking.",
}


def _problem(
    record: bytes,
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None,
    masked: bool | None,
) -> str | None:
    """What is wrong with a record, as the rest of a sentence; None if nothing is."""
    values, problem = decode_records(record)
    has_masks = any(name in values for name in MASKED)
    if masked is not None and has_masks != masked and "input_ids" in values:
        return _OTHER_KIND[has_masks]
    for name, length in _feature_lengths(max_seq_length, max_predictions_per_seq).items():
        actual = len(values.get(name, range(length)))
        if actual != length and name != "next_sentence_labels":
            flag = "max_predictions_per_seq" if name in MASKED else "max_seq_length"
            return (
                f"has {actual} values of {name}, but {length} were expected."
                f" Set --{flag}={actual}, the value that the data was generated"
                f" with, or generate it again with --{flag}={length}."
            )
    rows = {name: value[None] for name, value in values.items()}
    return problem or next((m for m in _range_problems(rows, vocab_size) if m), None)


def _range_problems(values: dict[str, np.ndarray], vocab_size: int | None) -> Iterator[str | None]:
    """For each feature with a range, what is wrong or None."""
    for name, limit in record_limits(vocab_size, values["input_ids"].shape[1]).items():
        if name not in values:
            continue
        of_vocabulary = name in ("input_ids", "masked_lm_ids")
        advice = "Use the vocabulary that the data was made with." if of_vocabulary else AGAIN
        bad = values[name][(values[name] < 0) | (values[name] >= (limit or 2**31))]
        what = f"the vocabulary of {limit:,} pieces" if of_vocabulary and limit else ""
        yield (
            f"has the value {bad.flat[0]} in {name}, but {what or 'its range'} allows 0 to"
            f" {(limit or 2**31) - 1}. {advice}"
            if bad.size
            else None
        )
    if "masked_lm_weights" not in values:
        return
    weights = values["masked_lm_weights"]
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    yield (
        f"has the value {bad.flat[0]} in masked_lm_weights, but these must be finite and not"
        f" negative. {AGAIN}"
        if bad.size
        else None
    )
