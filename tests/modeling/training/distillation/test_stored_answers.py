"""Answers on disk: whose they are, what is read back, and what becomes of damaged files."""

import numpy as np
import pytest
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.training.distillation.soft_answers import TEACHER
from modeling.training.distillation.stored_answers import stored_answers, with_answers

DRAW = np.random.default_rng(2)
ROWS = [DRAW.normal(size=(count, 3)).astype(np.float32) for count in (4, 1, 6, 2, 3)]


class Computing:
    """Gives ROWS in an order of its own, and counts how often it is asked."""

    def __init__(self, rows=ROWS):
        self.rows = rows
        self.calls = 0

    def __call__(self):
        self.calls += 1
        for index in ([2, 0], [4, 1, 3]):
            yield np.array(index), [self.rows[number] for number in index]


def store(folder, compute, identity="a", by_place=True):
    return stored_answers(str(folder), "train", identity, len(ROWS), 3, by_place, compute)


def test_what_was_computed_comes_back(tmp_path):
    compute = Computing()
    for _ in range(2):
        stored = store(tmp_path, compute)
        read = stored.read(np.array([3, -1, 2, 0]), 6)
        assert read.shape == (4, 6, 3)
        for row, number in enumerate((3, None, 2, 0)):
            expected = np.zeros((6, 3), np.float32)
            if number is not None:
                expected[: len(ROWS[number])] = ROWS[number]
            np.testing.assert_array_equal(read[row], expected)
        np.testing.assert_array_equal(stored.of_example(4), ROWS[4])
    assert compute.calls == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".answers"]


def test_batches_have_the_mean_of_all_teachers(tmp_path):
    others = [row + 2 for row in ROWS]
    stored = [store(tmp_path, Computing()), store(tmp_path, Computing(others), "b")]
    batch = {"index": np.array([[1, 4], [0, -1]]), "input_ids": np.zeros((2, 2, 5), np.int32)}
    dataset = with_answers(tf.data.Dataset.from_tensor_slices(batch), stored)
    first, second = (batch[TEACHER].numpy() for batch in dataset)
    np.testing.assert_allclose(first[1, :3], ROWS[4] + 1, rtol=1e-6)
    np.testing.assert_allclose(second[0, :4], ROWS[0] + 1, rtol=1e-6)
    assert not first[0, 1:].any() and not second[1].any()
    # One for each example has no axis of places.
    single = [row[:1] for row in ROWS]
    stored = [store(tmp_path, Computing(single), by_place=False)]
    for row in with_answers(tf.data.Dataset.from_tensor_slices(batch), stored):
        assert row[TEACHER].shape == (2, 3)


@pytest.mark.parametrize("damage", ["number", "place", "cut", "empty"])
def test_damaged_files_are_made_again(tmp_path, damage):
    stored = store(tmp_path, Computing())
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    if damage in ("number", "place"):
        content[5 if damage == "number" else -30] ^= 1
    path.write_bytes(content if damage in ("number", "place") else content[:40][: damage == "cut"])
    compute = Computing()
    again = store(tmp_path, compute)
    assert compute.calls == 1
    np.testing.assert_array_equal(again.places, stored.places)
    np.testing.assert_array_equal(again.of_example(2), ROWS[2])


def test_what_changes_makes_another_file(tmp_path):
    store(tmp_path, Computing())
    compute = Computing([row + 1 for row in ROWS])
    np.testing.assert_array_equal(store(tmp_path, compute, "b").of_example(1), ROWS[1] + 1)
    assert compute.calls == 1 and len(list(tmp_path.iterdir())) == 2

    def some():
        yield np.array([1, 3]), [ROWS[1], ROWS[3]]

    with pytest.raises(ModelingError, match="2 of 5 examples, and not number 0"):
        store(tmp_path, some, "c")

    def fails():
        yield np.array([0]), [ROWS[0]]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store(tmp_path, fails, "c")
    assert len(list(tmp_path.iterdir())) == 2


def test_answers_of_another_width_are_refused(tmp_path):
    """One example's numbers would be read as another's."""
    wide = [np.zeros((len(row), 4), np.float32) for row in ROWS]
    with pytest.raises(ModelingError, match=r"with 4 numbers where what is trained here .* with 3"):
        store(tmp_path, Computing(wide))
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".answers"]
