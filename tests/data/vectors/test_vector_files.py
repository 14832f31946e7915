"""Files of features: read back, and never half-written."""

import json

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.vectors.texts import LineVectors
from data.vectors.vector_files import open_vector_file

LAYERS = [-1, -3]
RNG = np.random.default_rng(0)


def vectors(number: int) -> np.ndarray:
    return RNG.normal(size=(number, 2, 3)).astype(np.float32)


PIECES = [
    LineVectors(0, vectors(3), np.array([2, 9, 3], np.int32), ["[CLS]", "é", "[SEP]"]),
    LineVectors(1, vectors(2), np.array([2, 3], np.int32), ["[CLS]", "[SEP]"]),
]
WORDS = [
    LineVectors(0, vectors(2), None, ["naïve", "b"], np.array([[1, 6], [7, 8]], np.int32)),
    LineVectors(1, vectors(0), None, [], np.zeros((0, 2), np.int32)),
]
POOLED = [LineVectors(0, vectors(1)), LineVectors(1, vectors(1))]


def write(format, path, rows, **kind):
    with open_vector_file(format, str(path), LAYERS, 3, **kind) as writer:
        writer.write(rows)
    return path


def test_json(tmp_path):
    path = write("jsonl", tmp_path / "new" / "o.jsonl", PIECES)
    text = path.read_text()
    assert text.isascii() and len(text.splitlines()) == 2
    for line, row in zip(map(json.loads, text.splitlines()), PIECES, strict=True):
        assert list(line) == ["linex_index", "features"] and line["linex_index"] == row.index
        for token, features, vector in zip(row.tokens, line["features"], row.vectors, strict=True):
            assert list(features) == ["token", "layers"] and features["token"] == token
            assert [layer["index"] for layer in features["layers"]] == LAYERS
            values = [layer["values"] for layer in features["layers"]]
            assert values == [[round(float(x), 6) for x in layer] for layer in vector]


def test_json_of_words_and_lines(tmp_path):
    lines = write("jsonl", tmp_path / "w.jsonl", WORDS, words=True).read_text().splitlines()
    first, second = map(json.loads, lines)
    assert [(f["token"], f["start"], f["end"]) for f in first["features"]] == [
        ("naïve", 1, 6),
        ("b", 7, 8),
    ]
    assert second["features"] == []
    lines = write("jsonl", tmp_path / "p.jsonl", POOLED, pooled=True).read_text().splitlines()
    got = [[layer["values"] for layer in json.loads(line)["layers"]] for line in lines]
    np.testing.assert_allclose(got, [row.vectors[0] for row in POOLED], atol=1e-6)


@pytest.mark.parametrize("rows", [PIECES, WORDS, POOLED])
def test_records(tmp_path, rows):
    path = write("tfrecord", tmp_path / "o.tfrecord", rows)
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    for record, row in zip(records, rows, strict=True):
        features = tf.train.Example.FromString(record).features.feature
        assert list(features["linex_index"].int64_list.value) == [row.index]
        shape = list(features["shape"].int64_list.value)
        values = np.float32(features["values"].float_list.value).reshape(shape)
        np.testing.assert_array_equal(values, row.vectors)
        assert list(features["layers"].bytes_list.value) == [b"-1", b"-3"]
        tokens = [token.decode() for token in features["tokens"].bytes_list.value]
        assert tokens == list(row.tokens or [])
        if row.spans is not None:
            spans = [list(features[name].int64_list.value) for name in ("starts", "ends")]
            assert spans == row.spans.T.tolist()


def test_numpy(tmp_path):
    write("numpy", tmp_path / "o.npy", PIECES)
    whole = np.concatenate([row.vectors for row in PIECES])
    held = np.load(tmp_path / "o.npy", mmap_mode="r")
    assert held.dtype == np.float32
    np.testing.assert_array_equal(held, whole)
    assert np.load(tmp_path / "o.splits.npy").tolist() == [0, 3, 5]
    assert np.load(tmp_path / "o.ids.npy").tolist() == [2, 9, 3, 2, 3]
    write("numpy", tmp_path / "w.npy", WORDS, words=True)
    assert np.load(tmp_path / "w.splits.npy").tolist() == [0, 2, 2]
    assert np.load(tmp_path / "w.spans.npy").tolist() == [[1, 6], [7, 8]]
    write("numpy", tmp_path / "p.npy", POOLED, pooled=True)
    assert np.load(tmp_path / "p.npy").shape == (2, 2, 3)
    write("numpy", tmp_path / "none.npy", [], pooled=True)
    assert np.load(tmp_path / "none.npy").shape == (0, 2, 3)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert not [name for name in names if "tmp" in name] and len(names) == 8


def test_parts_of_an_earlier_extraction_go(tmp_path):
    path = tmp_path / "o.npy"
    (tmp_path / "o.other.npy").write_text("")
    for rows, kind, parts in (
        (PIECES, {}, {"ids", "splits"}),
        (WORDS, {"words": True}, {"spans", "splits"}),
        (POOLED, {"pooled": True}, set()),
    ):
        write("numpy", path, rows, **kind)
        wanted = {"o.npy", "o.other.npy", *(f"o.{part}.npy" for part in parts)}
        assert {file.name for file in tmp_path.iterdir()} == wanted


def test_numpy_on_another_file_system(tmp_path):
    """There a file can't be changed once it is written; ram:// stands for gs://."""
    with open_vector_file("numpy", "ram://features/o.npy", LAYERS, 3, pooled=True) as writer:
        writer.write(POOLED)
    tf.io.gfile.copy("ram://features/o.npy", str(tmp_path / "o.npy"))
    got = np.load(tmp_path / "o.npy")
    np.testing.assert_array_equal(got, np.concatenate([row.vectors for row in POOLED]))


@pytest.mark.parametrize("format", ["jsonl", "tfrecord", "numpy"])
def test_nothing_half_written(tmp_path, format):
    path = tmp_path / "o.npy"
    path.write_bytes(b"before")

    def rows():
        yield PIECES[0]
        assert len(list(tmp_path.iterdir())) > 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(format, path, rows())
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match=r"o\.npy/x\.npy can't be written"):
        write(format, path / "x.npy", PIECES)


def test_name_of_a_numpy_file(tmp_path):
    with pytest.raises(DataError, match=r"\.npy"):
        write("numpy", tmp_path / "o.jsonl", PIECES)
