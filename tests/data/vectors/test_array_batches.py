"""Batches as arrays: those of the pipeline."""

import numpy as np
import pytest

from data.batching import Batching, batches
from data.errors import DataError
from data.features import Features
from data.vectors.array_batches import array_batches


def rows(number: int, several: bool = False) -> Features:
    rng = np.random.default_rng(number)
    lengths = rng.integers(2, 21, number)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    return Features(
        ids=rng.integers(5, 90, splits[-1]).astype(np.int32),
        splits=splits,
        first_lengths=np.minimum(lengths, rng.integers(2, 21, number)).astype(np.int32),
        row_splits=np.arange(number + 1),
        label_ids=np.zeros(number, np.int32),
        max_seq_length=20,
        pad_id=3,
        several_rows=several,
    )


@pytest.mark.parametrize("buckets", [None, [4, 8, 16], [20]])
@pytest.mark.parametrize("number", [1, 8, 29])
def test_equal_to_the_pipeline(buckets, number):
    shape = Batching(8, buckets)
    wanted = list(batches(rows(number), shape, training=False).as_numpy_iterator())
    got = list(array_batches(rows(number), shape))
    assert len(got) == len(wanted) == -(-number // 8)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours["input_ids"].shape == (8, theirs["input_ids"].shape[1])
        for name, values in ours.items():
            assert values.dtype == theirs[name].dtype
        real = theirs["index"] >= 0
        assert (ours["index"] >= 0).sum() == real.sum()
        for name in ("input_ids", "input_mask", "segment_ids", "index"):
            ours[name], theirs[name] = ours[name][: real.sum()], theirs[name][real]
    order = [np.argsort(np.concatenate([b["index"] for b in some])) for some in (got, wanted)]
    for name in ("input_ids", "input_mask", "segment_ids"):
        # Padding of ids is pad_id in both; the width of a batch is compared above.
        ours, theirs = (
            np.concatenate(
                [
                    np.pad(b[name], [(0, 0), (0, 20 - b[name].shape[1])], constant_values=3)
                    for b in some
                ]
            )
            for some in (got, wanted)
        )
        np.testing.assert_array_equal(ours[order[0]], theirs[order[1]])


@pytest.mark.parametrize("buckets", [None, [20]])
def test_padding_and_no_examples(buckets):
    batch = next(array_batches(rows(5), Batching(8, buckets)))
    assert batch["input_ids"].shape == (8, 20)
    assert sorted(batch["index"][:5]) == [0, 1, 2, 3, 4] and (batch["index"][5:] == -1).all()
    assert (batch["input_ids"][batch["input_mask"] == 0] == 3).all()
    assert not batch["input_mask"][5:].any() and not batch["segment_ids"][5:].any()
    assert not list(array_batches(rows(0), Batching(8, [4])))


def test_batches_that_are_done_are_told():
    done = []
    for number, _ in enumerate(array_batches(rows(29), Batching(8, [20]), done.append)):
        assert len(done) == number
    assert done == [8, 8, 8, 5]


def test_several_rows_are_refused():
    with pytest.raises(DataError, match="several"):
        list(array_batches(rows(3, several=True), Batching(8, [4])))
