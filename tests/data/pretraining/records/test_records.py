"""The record schema: bytes equal to protocol buffers', and every bad record is named."""

import gzip
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.records.record_files import count_records, first_record, record_compression
from data.pretraining.records.schema import (
    MASKED,
    check_record_file,
    encode_records,
    feature_description,
    find_bad_record,
)
from data.pretraining.writing.shards import ShardWriters

S, P, V = 16, 4, 70_000


def batch(n=50, s=S, p=P, vocab=V, seed=0):
    rng = np.random.default_rng(seed)
    return {
        # Small and large ids: varints of one, two and three bytes.
        "input_ids": rng.integers(0, rng.choice([100, 10_000, vocab], (n, s))),
        "input_mask": rng.integers(0, 2, (n, s), dtype=np.int32),
        "segment_ids": rng.integers(0, 2, (n, s), dtype=np.int32),
        "masked_lm_positions": rng.integers(0, s, (n, p), dtype=np.int32),
        "masked_lm_ids": rng.integers(0, vocab, (n, p), dtype=np.int32),
        "masked_lm_weights": rng.integers(0, 2, (n, p)).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (n, 1), dtype=np.int32),
    }


def example(features):
    """Protocol buffers' own encoding of {name: array}, as the original makes records."""
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(float_list=tf.train.FloatList(value=values))
                if name == "masked_lm_weights"
                else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in features.items()
            }
        )
    ).SerializeToString(deterministic=True)


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


@pytest.mark.parametrize(("s", "p"), [(5, 1), (16, 4), (128, 20), (512, 77), (9000, 200)])
def test_bytes_equal_protocol_buffers(s, p):
    made = batch(20, s, p)
    expected = [example({k: v[i] for k, v in made.items()}) for i in range(20)]
    assert encode_records(made) == expected
    assert encode_records({k: v[:0] for k, v in made.items()}) == []


def test_large_numbers():
    made = batch(3)
    made["input_ids"][0, :3] = [2**21, 2**28, 2**31 - 1]
    assert encode_records(made)[0] == example({k: v[0] for k, v in made.items()})


def test_writers_are_round_robin_and_atomic(tmp_path):
    files = [str(tmp_path / "new/a"), str(tmp_path / "b"), str(tmp_path / "c")]
    records = [bytes([i]) * 5 for i in range(20)]
    with ShardWriters(files) as writers:
        for begin, end in ((0, 4), (4, 5), (5, 20)):
            writers.write(records[begin:end])
        assert not any(map(os.path.exists, files))
    assert writers.counts == [7, 7, 6]
    for k, path in enumerate(files):
        assert [r.numpy() for r in tf.data.TFRecordDataset(path)] == records[k::3]
    before = {p: pathlib.Path(p).read_bytes() for p in files}
    with pytest.raises(KeyError), ShardWriters(files) as writers:
        writers.write(records)
        raise KeyError
    assert {p: pathlib.Path(p).read_bytes() for p in files} == before
    assert sorted(os.listdir(tmp_path)) == ["b", "c", "new"]


def test_writers_refuse(tmp_path):
    with pytest.raises(DataError, match="each once"):
        ShardWriters(["a", "a"])
    (tmp_path / "file").touch()
    writers = ShardWriters([str(tmp_path / "file/a.tfrecord")])
    with pytest.raises(DataError, match=r"file/a\.tfrecord can't be written"):
        writers.__enter__()


def test_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tf.io, "TFRecordWriter", lambda _: _FullDisk())
    with (
        pytest.raises(DataError, match=r"a can't be written: No space left.* room enough"),
        ShardWriters([str(tmp_path / "a")]) as writers,
    ):
        writers.write([b"record"])
    assert not list(tmp_path.iterdir())


class _FullDisk:
    def write(self, record):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    def close(self):
        self.write(b"")


def test_good_files_pass(tmp_path):
    path = write(tmp_path / "a", encode_records(batch(1100)))
    empty = write(tmp_path / "b", [])
    assert count_records(path) == 1100 and count_records(empty) == 0
    check_record_file(path, S, P, V)
    check_record_file(empty, S, P, V)
    find_bad_record([path, empty], S, P, V)


def bad(name, values, n=700, at=613):
    made = batch(n)
    records = encode_records(made)
    features = {k: v[at] for k, v in made.items()}
    if values is None:
        del features[name]
    else:
        features[name] = values
    records[at] = example(features)
    return records


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("input_ids", [V] + [0] * (S - 1), r"the value 70000 in input_ids, .*70,000 pieces.*69999"),
        ("input_ids", [0] * (S + 1), r"17 values of input_ids, but 16 .*--max_seq_length=17"),
        ("segment_ids", [0] * 8, r"8 values of segment_ids, but 16 .*--max_seq_length=8"),
        ("masked_lm_ids", [0] * 5, r"5 values of masked_lm_ids.*--max_predictions_per_seq=5"),
        ("masked_lm_ids", [-1, 0, 0, 0], r"the value -1 in masked_lm_ids"),
        ("masked_lm_positions", [0, 0, 0, S], r"the value 16 in masked_lm_positions.* 0 to 15"),
        ("masked_lm_weights", [float("nan"), 0, 0, 0], r"nan in masked_lm_weights"),
        ("next_sentence_labels", [2], r"the value 2 in next_sentence_labels"),
        ("next_sentence_labels", [0, 1], r"2 values of next_sentence_labels, but 1"),
        ("input_mask", None, r"lacks the feature input_mask \(it has input_ids, "),
    ],
)
def test_diagnose_names_the_record(tmp_path, name, values, message):
    good = write(tmp_path / "good", encode_records(batch(10)))
    path = write(tmp_path / "bad", bad(name, values))
    with pytest.raises(DataError, match=rf"bad: record 613 .*{message}"):
        find_bad_record([good, path], S, P, V)
    check_record_file(path, S, P, V)
    first = write(tmp_path / "first", bad(name, values, n=3, at=0))
    with pytest.raises(DataError, match=rf"first: record 0 .*{message}"):
        check_record_file(first, S, P, V)


def test_truncated_corrupt_and_foreign_files(tmp_path):
    path = write(tmp_path / "a", encode_records(batch(700)))
    data = pathlib.Path(path).read_bytes()
    # The last record ends 7 bytes early; a cut in the middle; a header alone.
    for cut in (data[:-7], data[: len(data) // 2], data[: -count_size(data) + 5]):
        (tmp_path / "cut").write_bytes(cut)
        left = sum(1 for _ in safe_records(tmp_path / "cut"))
        for check in (count_records, lambda f: find_bad_record([f], S, P, V)):
            with pytest.raises(DataError, match=rf"cut: record {left} is truncated: it needs"):
                check(str(tmp_path / "cut"))
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    (tmp_path / "flipped").write_bytes(flipped)
    number = sum(1 for _ in safe_records(tmp_path / "flipped"))
    with pytest.raises(DataError, match=rf"flipped: record {number} is (corrupt|truncated)"):
        find_bad_record([str(tmp_path / "flipped")], S, P, V)
    # A bad record before the damage comes first.
    both = write(tmp_path / "both", bad("next_sentence_labels", [7]))
    cut = pathlib.Path(both).read_bytes()[:-7]
    (tmp_path / "both").write_bytes(cut)
    with pytest.raises(DataError, match=r"both: record 613 has the value 7"):
        find_bad_record([both], S, P, V)

    (tmp_path / "text.txt").write_text("This is a text and no record at all.\n" * 9)
    for check in (
        count_records,
        lambda f: check_record_file(f, S, P, V),
        lambda f: find_bad_record([f], S, P),
    ):
        with pytest.raises(DataError, match=r"text\.txt: record 0 .* isn't a TFRecord file"):
            check(str(tmp_path / "text.txt"))
    other = write(tmp_path / "other", [b"\xff\xff no example"])
    with pytest.raises(DataError, match=r"other: record 0 isn't a tf\.train\.Example"):
        check_record_file(other, S, P, V)
    with pytest.raises(DataError, match=r"gone isn't a file"):
        count_records(str(tmp_path / "gone"))


def count_size(data):
    """Bytes of the last record with its frame; all records of `batch` are walked."""
    position = 0
    while True:
        size = 16 + int.from_bytes(data[position : position + 8], "little")
        if position + size == len(data):
            return size
        position += size


def safe_records(path):
    try:
        yield from tf.data.TFRecordDataset(str(path))
    except tf.errors.DataLossError:
        return


def unmasked(made):
    return {name: values for name, values in made.items() if name not in MASKED}


def test_records_without_masks(tmp_path):
    made = unmasked(batch(20))
    records = encode_records(made)
    assert records == [example({k: v[i] for k, v in made.items()}) for i in range(20)]
    path = write(tmp_path / "a", records)
    for masked in (False, None):
        check_record_file(path, S, P, V, masked)
        find_bad_record([path], S, P, V, masked)
    parsed = tf.io.parse_example(records, feature_description(S, P, masked=False))
    assert sorted(parsed) == sorted(made)
    for name, values in made.items():
        np.testing.assert_array_equal(parsed[name], values)
    # Read as either kind, they have no predictions, and masked ones keep theirs.
    either = feature_description(S, P, masked=None)
    parsed = tf.io.parse_example(records, either)
    assert all(not parsed[name].numpy().any() and parsed[name].shape == (20, P) for name in MASKED)
    full = batch(20)
    parsed = tf.io.parse_example(encode_records(full), either)
    for name, values in full.items():
        np.testing.assert_array_equal(parsed[name], values)


def test_the_other_kind_is_named(tmp_path):
    records = encode_records(batch(700))
    without = encode_records(unmasked(batch(700)))
    plain = write(tmp_path / "without", without)
    full = write(tmp_path / "with", records)
    message = r"record 0 holds no masks, .*Give --dynamic_masking, or"
    for check in (check_record_file, lambda f, *a: find_bad_record([f], *a)):
        with pytest.raises(DataError, match=f"without: {message}"):
            check(plain, S, P, V)
    with pytest.raises(DataError, match=r"with: record 0 holds masks .* --dynamic_masking\."):
        check_record_file(full, S, P, V, masked=False)
    mixed = write(tmp_path / "mixed", records[:613] + without[613:])
    with pytest.raises(DataError, match=r"mixed: record 613 holds no masks"):
        find_bad_record([full, mixed], S, P, V)
    find_bad_record([full, mixed, plain], S, P, V, masked=None)
    # Bad values are found in both.
    spoilt = batch(3)
    spoilt["input_ids"][2, 0] = V
    bad_file = write(tmp_path / "bad", without[:2] + encode_records(unmasked(spoilt))[2:])
    with pytest.raises(DataError, match="bad: record 2 has the value 70000 in input_ids"):
        find_bad_record([plain, bad_file], S, P, V, masked=None)
    # A part of the masks is no kind.
    features = {k: v[0] for k, v in batch(1).items() if k != "masked_lm_weights"}
    part = write(tmp_path / "part", [example(features)])
    with pytest.raises(DataError, match="lacks the feature masked_lm_weights"):
        check_record_file(part, S, P, V, masked=None)


def compressed(source, path):
    path.write_bytes(gzip.compress(pathlib.Path(source).read_bytes()))
    return str(path)


def test_compressed_files(tmp_path):
    records = encode_records(batch(700))
    plain = write(tmp_path / "a", records)
    path = compressed(plain, tmp_path / "b")
    assert (record_compression(plain), record_compression(path)) == ("", "GZIP")
    assert count_records(path) == 700 and count_records(path, limit=9) == 9
    assert first_record(path) == first_record(plain) == records[0]
    check_record_file(path, S, P, V)
    find_bad_record([path, plain], S, P, V)
    # Compressed pieces joined are a compressed file too.
    joined = tmp_path / "joined"
    joined.write_bytes(2 * pathlib.Path(path).read_bytes())
    assert count_records(str(joined)) == 1400
    assert sum(1 for _ in tf.data.TFRecordDataset(str(joined), "GZIP")) == 1400
    find_bad_record([str(joined)], S, P, V)
    empty = compressed(write(tmp_path / "none", []), tmp_path / "empty")
    assert count_records(empty) == 0 and first_record(empty) is None
    check_record_file(empty, S, P, V)
    find_bad_record([empty], S, P, V)
    # A length that begins like GZIP's magic.
    odd = write(tmp_path / "odd", [bytes(0x8B1F)])
    assert record_compression(odd) == "" and count_records(odd) == 1


def test_damaged_compressed_files(tmp_path):
    path = compressed(write(tmp_path / "a", bad("next_sentence_labels", [7])), tmp_path / "b")
    with pytest.raises(DataError, match="b: record 613 has the value 7"):
        find_bad_record([path], S, P, V)
    data = pathlib.Path(
        compressed(write(tmp_path / "a", encode_records(batch(700))), tmp_path / "c")
    )
    whole = data.read_bytes()
    for cut in (whole[:-20], whole[: len(whole) // 2], whole[:40]):
        data.write_bytes(cut)
        for check in (count_records, lambda f: find_bad_record([f], S, P, V)):
            with pytest.raises(DataError, match=r"c: record \d+ is truncated: the GZIP-compressed"):
                check(str(data))
    spoilt = bytearray(whole)
    spoilt[len(whole) // 2 :: 7] = bytes(len(spoilt[len(whole) // 2 :: 7]))
    data.write_bytes(spoilt)
    for check in (count_records, lambda f: find_bad_record([f], S, P, V)):
        with pytest.raises(DataError, match=r"c: record \d+ is (corrupt|truncated)"):
            check(str(data))
    data.write_bytes(gzip.compress(b"This is a text and no record at all.\n" * 9))
    for check in (count_records, lambda f: check_record_file(f, S, P, V)):
        with pytest.raises(DataError, match=r"c: record 0 .* isn't a TFRecord file"):
            check(str(data))
