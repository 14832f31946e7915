"""Vectors on disk: computed once, in the rows' order, read where their batch wants them."""

import contextlib
import dataclasses
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from data import progress
from data.batching import Batching
from data.errors import DataError
from data.features import Features
from data.vectors import store as feature_store
from data.vectors.store import stored_vectors

WIDTH = 6


def rows(seed: int = 0, number: int = 23) -> Features:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 17, number)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(5, 90, splits[-1]).astype(np.int32)
    return Features(
        ids=ids,
        splits=splits,
        first_lengths=lengths.astype(np.int32),
        row_splits=np.arange(number + 1),
        label_ids=np.zeros(number, np.int32),
        max_seq_length=16,
        pad_id=0,
        piece_labels=ids % 3 - 1,
    )


def vector(ids) -> np.ndarray:
    """Of pieces: [..., 2, WIDTH // 2]."""
    return np.sin(np.asarray(ids)[..., None, None] * np.arange(1, WIDTH + 1).reshape(2, -1))


class Extract:
    """In place of a model."""

    def __init__(self, fail_at: int | None = None):
        self.calls = 0
        self.fail_at = fail_at

    def __call__(self, batches, lengths):
        self.calls += 1
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        starts = np.concatenate([[0], np.cumsum(lengths)])
        found = np.full((starts[-1], 2, WIDTH // 2), np.nan, np.float32)
        for batch in batches:
            for index, ids in zip(batch["index"], batch["input_ids"], strict=True):
                size = lengths[index] if index >= 0 else 0
                if size:
                    found[starts[index] : starts[index] + size] = vector(ids[:size])
        return found


def store(folder, features, extract, fingerprint="w", name="train"):
    return stored_vectors(str(folder), name, features, fingerprint, WIDTH, extract)


def test_file_in_portions(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_store, "_VALUES_AT_ONCE", 40 * WIDTH)
    features, extract = rows(), Extract()
    stored = store(tmp_path, features, extract)
    assert extract.calls > 4
    held = np.load(stored.path)
    assert held.dtype == np.float32
    np.testing.assert_allclose(held, vector(features.ids).reshape(-1, WIDTH), atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == [stored.path.rpartition("/")[2]]


def test_computing_says_how_far_it_is(tmp_path, monkeypatch):
    told, done = [], []

    def show(*work):
        told.append(work)
        return contextlib.nullcontext(types.SimpleNamespace(add=done.append))

    monkeypatch.setattr(progress, "_show", show)
    monkeypatch.setattr(feature_store, "_BATCH_SIZE", 4)
    for _ in range(2):  # what is stored isn't computed again
        store(tmp_path, rows(number=23), Extract())
    assert told == [("Computing vectors", "rows", 23)]
    assert done == [4, 4, 4, 4, 4, 3]


def test_computed_once_and_again_when_anything_changes(tmp_path):
    features, extract = rows(), Extract()
    first = store(tmp_path, features, extract)
    other_labels = dataclasses.replace(features, label_ids=np.ones(23, np.int32))
    assert store(tmp_path, other_labels, extract) == first
    assert extract.calls == 1
    second = store(tmp_path, features, extract, fingerprint="other weights")
    other_ids = features.ids.copy()
    other_ids[7] += 1
    third = store(tmp_path, dataclasses.replace(features, ids=other_ids), extract, "other weights")
    assert extract.calls == 3
    assert len({first.path, second.path, third.path}) == 3
    # The old ones of that name go, those of other names stay.
    dev = store(tmp_path, features, extract, name="dev")
    assert {str(path) for path in tmp_path.iterdir()} == {third.path, dev.path}


def test_cut_short_or_interrupted(tmp_path, monkeypatch):
    features = rows()
    stored = store(tmp_path, features, Extract())
    content = pathlib.Path(stored.path).read_bytes()
    pathlib.Path(stored.path).write_bytes(content[:-5])
    again = Extract()
    store(tmp_path, features, again)
    assert again.calls == 1 and pathlib.Path(stored.path).read_bytes() == content
    monkeypatch.setattr(feature_store, "_VALUES_AT_ONCE", 40 * WIDTH)
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path / "new", features, Extract(fail_at=3))
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="can't be written"):
        store(tmp_path / "file", features, Extract())


def test_damage_is_noticed(tmp_path):
    """A changed byte anywhere, and a file of the same size under another's name."""
    features = rows()
    other = pathlib.Path(store(tmp_path / "other", features, Extract(), "v").path).read_bytes()
    path = pathlib.Path(store(tmp_path, features, Extract()).path)
    content = path.read_bytes()
    assert len(other) == len(content) and other != content
    spoilt = [other, content + b"\0"]
    for place in (3, 100, 200, len(content) // 2, len(content) - 20, len(content) - 1):
        spoilt.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    for bad in spoilt:
        path.write_bytes(bad)
        again = Extract()
        assert store(tmp_path, features, again).path == str(path)
        assert again.calls == 1 and path.read_bytes() == content


@pytest.mark.parametrize(
    ("shape", "training"),
    [
        (Batching(4, [8]), True),
        (Batching(4), True),
        (Batching(1, [8], tokens=48), True),
        (Batching(4, [8]), False),
        (Batching(4), False),
    ],
)
def test_batches(tmp_path, shape, training):
    features = rows()
    stored = store(tmp_path, features, Extract())
    seen = set()
    for batch in stored.batches(features, shape, training, seed=1).take(30).as_numpy_iterator():
        assert batch["features"].shape == (*batch["input_ids"].shape, WIDTH)
        real = batch["input_mask"][..., None]
        expected = vector(batch["input_ids"]).reshape(*batch["input_ids"].shape, WIDTH) * real
        np.testing.assert_allclose(batch["features"], expected, atol=1e-6)
        assert (batch["piece_labels"][batch["input_mask"] == 0] == -1).all()
        seen.update(batch["index"][batch["index"] >= 0].tolist())
    assert len(seen) == 23


def test_order_resumes(tmp_path):
    features = rows()
    stored = store(tmp_path, features, Extract())

    def iterator():
        return iter(stored.batches(features, Batching(4, [8]), True, seed=1))

    one = iterator()
    for _ in range(9):
        next(one)
    path = tf.train.Checkpoint(iterator=one).write(str(tmp_path / "place"))
    wanted = [next(one) for _ in range(5)]
    other = iterator()
    tf.train.Checkpoint(iterator=other).read(path).assert_consumed()
    for batch in wanted:
        again = next(other)
        for name, values in batch.items():
            np.testing.assert_array_equal(again[name], values)


def test_several_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="several"):
        store(tmp_path, dataclasses.replace(rows(), several_rows=True), Extract())
