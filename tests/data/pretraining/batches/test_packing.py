"""Packing: nothing lost, rows full, against plain Python; datasets that go on after a restore."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.batches.packed_rows import MIN_PART, PackedRowLimits, packed_row_window
from data.pretraining.batches.packing import WINDOW, pack_dataset
from tests.data.pretraining.batches.padding import padding_share

S, P = 128, 20
LIMITS = PackedRowLimits.of(S, P)
LABEL = 10**8  # of a predicted place, added to its id
LENGTHS = {
    "any": lambda rng, n: rng.integers(3, S + 1, n),
    "documents": lambda rng, n: np.minimum(S, 5 + rng.geometric(1 / 40, n)),
    "short": lambda rng, n: rng.integers(3, 20, n),
    "long": lambda rng, n: rng.integers(100, 122, n),
    "70 of 128": lambda rng, n: np.full(n, 70),
    "half": lambda rng, n: np.full(n, 64),
    "full": lambda rng, n: np.full(n, S),
    "tiny": lambda rng, n: np.full(n, 6),
    "two lengths": lambda rng, n: rng.choice([45, 90], n),
}


def make(lengths, first=0, width=S, slots=P, seed=0):
    """Instances whose ids and labels say which place of which instance they are."""
    rng = np.random.default_rng(seed)
    count = len(lengths)
    number = first + np.arange(count)
    place = np.arange(width)
    mask = (place < np.asarray(lengths)[:, None]).astype(np.int32)
    ids = (1 + number[:, None] * width + place) * mask
    made = {
        "input_ids": ids.astype(np.int32),
        "input_mask": mask,
        "segment_ids": ids.astype(np.int32) % 2,
        "masked_lm_positions": np.zeros((count, slots), np.int32),
        "masked_lm_ids": np.zeros((count, slots), np.int32),
        "masked_lm_weights": np.zeros((count, slots), np.float32),
        "index": number.astype(np.int64),
    }
    for i, length in enumerate(lengths):
        n = min(slots, max(1, round(0.15 * length)))
        positions = np.sort(rng.permutation(np.arange(1, length - 1))[:n])
        made["masked_lm_positions"][i, : len(positions)] = positions
        made["masked_lm_ids"][i, : len(positions)] = LABEL + ids[i, positions]
        made["masked_lm_weights"][i, : len(positions)] = 1 + positions % 3
    return made


def all_of(rows):
    """Counts of (id, segment) of all pieces and of (id, label, weight) of all predictions."""
    counts = collections.Counter()
    real = rows["input_mask"] == 1
    counts.update(zip(rows["input_ids"][real], rows["segment_ids"][real], strict=True))
    row, slot = np.nonzero(rows["masked_lm_weights"])
    ids = rows["input_ids"][row, rows["masked_lm_positions"][row, slot]]
    labels, weights = (rows[f"masked_lm_{name}"][row, slot] for name in ("ids", "weights"))
    counts.update(zip(ids, labels, weights, strict=True))
    return counts


def parts_of(rows, width=S):
    """{row: [(instance, first place, number of pieces)]} by the ids, all else checked."""
    found = {}
    for r, numbers in enumerate(rows["sequence_ids"]):
        assert (rows["input_mask"][r] == (numbers > 0)).all()
        assert (np.diff(np.append(numbers, 0)) < 0).sum() <= 1  # padding stands behind
        last, found[r] = numbers.max(), []
        assert (rows["index"][r, last:] == -1).all()
        for number in range(1, last + 1):
            (places,) = np.nonzero(numbers == number)
            ids = rows["input_ids"][r, places] - 1
            assert (np.diff(places) == 1).all() and (np.diff(ids) == 1).all()
            assert (rows["position_ids"][r, places] == np.arange(len(places))).all()
            assert rows["index"][r, number - 1] == ids[0] // width == ids[-1] // width
            found[r].append((ids[0] // width, ids[0] % width, len(ids)))
        assert (rows["position_ids"][r, numbers == 0] == 0).all()
    return found


def plain_rows(lengths, predicted, inside, limits):
    """The rows by the rule, looked for one part after the other; and what waits."""
    pool, dense, rows = [], [], []

    def count(part):
        i, start, length = part
        return sum(start <= p < start + length for p in predicted[i])

    def take(shortest, longest, room):
        fit = [p for p in pool if shortest <= p[2] <= longest and count(p) <= room]
        best = max(fit, key=lambda p: (p[2], count(p), p), default=None)
        if best:
            pool.remove(best)
        return best

    for i, n in enumerate(lengths):
        (dense if len(predicted[i]) / n > limits.predictions / limits.pieces else pool).append(
            (i, 0, int(n))
        )
    while pool or dense:
        left = sum(length for _, _, length in pool + dense)
        row, quota = [], math.ceil(len(dense) / max(1, left // limits.pieces))
        gap, room = limits.pieces, limits.predictions
        while len(row) < limits.sequences:
            if len(row) < quota and dense[-1][2] <= gap and count(dense[-1]) <= room:
                part = dense.pop()
            else:
                part = take(1, gap, room)
            if not part:
                break
            row.append(part)
            gap, room = gap - part[2], room - count(part)
        rows.append(row)
        if gap <= limits.padding:
            continue
        for k, part in enumerate(row):
            longest = part[2] + gap
            other = take(longest - limits.padding, longest, room + count(part))
            if other:
                pool.append(part)
                row[k], gap = other, longest - other[2]
                break
        donor = None
        if gap > limits.padding and len(row) < limits.sequences:
            donor = take(2 * MIN_PART, limits.pieces, 10**9)
        i, start, length = donor or (0, 0, 0)
        sizes = range(min(gap, length - MIN_PART), MIN_PART - 1, -1)
        sizes = [n for n in sizes if count((i, start, n)) <= room]
        good = [n for n in sizes if n >= gap - limits.padding and not inside[i][start + n]]
        if sizes:
            size = (good or sizes)[0]
            row.append((i, start, size))
            pool.append((i, start + size, length - size))
            gap -= size
        elif donor:
            pool.append(donor)
        if gap > limits.padding and left <= 4 * limits.pieces:
            return rows[:-1], sorted(row + pool + dense)
    return rows, []


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("words", [False, True])
def test_rows_are_those_of_plain_python(name, words):
    rng = np.random.default_rng(1)
    lengths = LENGTHS[name](rng, 150)
    window = make(lengths)
    # By the masked word's label, not by the mask that stands in its place.
    continues = None
    hidden = window["masked_lm_ids"].copy()
    inside = np.zeros((150, S), bool)
    if words:
        continues = rng.random(S * 150 + 1) < 0.6
        inside = continues[window["input_ids"]]
        for i, j in zip(*np.nonzero(window["masked_lm_weights"]), strict=True):
            window["input_ids"][i, window["masked_lm_positions"][i, j]] = 0
        window["masked_lm_ids"] = np.maximum(0, hidden - LABEL)
    predicted = [
        set(p[w > 0].tolist())
        for p, w in zip(window["masked_lm_positions"], window["masked_lm_weights"], strict=True)
    ]
    expected, rest = plain_rows(lengths, predicted, inside, LIMITS)
    rows, kept = packed_row_window(window, LIMITS, rng, continues, keep_rest=True)
    if words:
        for rows_of in (rows, kept):  # put the words back, so that the ids tell the places
            r, j = np.nonzero(rows_of["masked_lm_weights"])
            rows_of["input_ids"][r, rows_of["masked_lm_positions"][r, j]] = rows_of[
                "masked_lm_ids"
            ][r, j]
    found = sorted(parts_of(rows).values())
    assert found == sorted(expected)
    starts = kept["input_ids"][:, 0] - 1
    lengths_kept = kept["input_mask"].sum(1)
    waiting = [(s // S, s % S, n) for s, n in zip(starts, lengths_kept, strict=True)]
    assert sorted(waiting) == rest


@pytest.mark.parametrize("name", LENGTHS)
def test_nothing_is_lost_and_rows_are_full(name):
    rng = np.random.default_rng(2)
    lengths = LENGTHS[name](rng, WINDOW)
    window = make(lengths)
    rows, rest = packed_row_window(window, LIMITS, rng, keep_rest=True)
    assert all_of(rows) + all_of(rest) == all_of(window)
    padding = S - rows["input_mask"].sum(1)
    empty = padding > 0.05 * S
    assert empty.mean() < 1 / 30 and padding.mean() < 0.02 * S
    assert ((rows["masked_lm_weights"] > 0).sum(1)[empty] >= LIMITS.predictions - 2).all()
    assert rest["input_mask"].sum() <= 4 * S
    everything, nothing = packed_row_window(window, LIMITS, rng)
    assert len(nothing["input_ids"]) == 0 and all_of(everything) == all_of(window)
    assert 0 <= len(everything["input_ids"]) - len(rows["input_ids"]) <= 6


@pytest.mark.parametrize(
    ("name", "most"),
    [("any", 0.03), ("documents", 0.01), ("short", 0), ("half", 0), ("full", 0), ("tiny", 0)],
)
def test_cuts_are_few_where_lengths_allow(name, most):
    rng = np.random.default_rng(3)
    lengths = LENGTHS[name](rng, WINDOW)
    rows, rest = packed_row_window(make(lengths), LIMITS, rng, keep_rest=True)
    parts = int(rows["sequence_ids"].max(1).sum()) + len(rest["input_ids"])
    assert parts - WINDOW <= most * WINDOW


@pytest.mark.parametrize("name", ["70 of 128", "long", "two lengths"])
def test_at_most_one_cut_per_row(name):
    rng = np.random.default_rng(4)
    rows, rest = packed_row_window(make(LENGTHS[name](rng, WINDOW)), LIMITS, rng, keep_rest=True)
    parts = int(rows["sequence_ids"].max(1).sum()) + len(rest["input_ids"])
    assert 0 < parts - WINDOW <= len(rows["input_ids"])


def test_cuts_are_before_words():
    """With words of up to four pieces there is always a place within the 5 %."""
    rng = np.random.default_rng(5)
    window = make(np.full(WINDOW, 70))
    window["masked_lm_ids"] -= LABEL * (window["masked_lm_weights"] > 0)
    continues = (np.arange(S * WINDOW + 1) - 1) % S % 4 != 0
    rows, _ = packed_row_window(window, LIMITS, rng, continues, keep_rest=True)
    starts = [start for parts in parts_of(rows).values() for _, start, _ in parts]
    assert any(starts) and not any(start % 4 for start in starts)


def test_many_predictions_in_few_pieces():
    """Rows stay emptier, but everything is there."""
    rng = np.random.default_rng(6)
    window = make(np.full(300, 10))
    positions = np.minimum(np.arange(P), 5) + 1
    window["masked_lm_positions"][:] = positions
    window["masked_lm_weights"][:] = np.arange(P) < 6
    window["masked_lm_ids"][:] = LABEL + window["input_ids"][:, positions]
    window["masked_lm_ids"][:, 6:] = 0
    rows, _ = packed_row_window(window, LIMITS, rng)
    used = (rows["masked_lm_weights"] > 0).sum(1)
    assert used.max() == LIMITS.predictions == 24
    assert all_of(rows) == all_of(window)


def test_many_sequences_in_few_pieces():
    rng = np.random.default_rng(6)
    window = make(np.full(300, 3))
    rows, _ = packed_row_window(window, PackedRowLimits(S, 24, 5, 6), rng)
    assert rows["index"].shape == (60, 5) and (rows["index"] >= 0).all()
    assert all_of(rows) == all_of(window)


def test_limits():
    assert PackedRowLimits.of(128, 20) == PackedRowLimits(128, 24, 32, 6)
    assert PackedRowLimits.of(512, 77) == PackedRowLimits(512, 80, 128, 25)
    assert PackedRowLimits.of(128, 10).predictions == 24  # short instances have 15 % all the same
    assert PackedRowLimits.of(128, 40).predictions == 48
    with pytest.raises(DataError, match="max_predictions is 0 and max_seq_length 128"):
        PackedRowLimits.of(128, 0)


# ---- Datasets ----


def windows(sizes, name="documents", epochs=1, **kinds):
    """A dataset of windows of these sizes, and everything in them."""
    rng = np.random.default_rng(7)
    made, first = [], 0
    for size in sizes:
        made.append(make(LENGTHS[name](rng, size), first, **kinds))
        first += size
    dataset = tf.data.Dataset.from_tensors(made[0])
    for window in made[1:]:
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(window))
    dataset = dataset.repeat(epochs)
    return dataset, sum((all_of(window) for window in made), collections.Counter())


def numpy_batches(dataset):
    return [{k: v.numpy() for k, v in batch.items()} for batch in dataset]


def test_shapes_are_static():
    dataset, _ = windows([100])
    dataset = dataset.map(lambda w: w | {"next_sentence_labels": w["index"]})
    spec = pack_dataset(dataset, 8, S, P).element_spec
    assert {k: (*v.shape, v.dtype) for k, v in spec.items()} == {
        "input_ids": (8, S, tf.int32),
        "input_mask": (8, S, tf.int32),
        "segment_ids": (8, S, tf.int32),
        "position_ids": (8, S, tf.int32),
        "sequence_ids": (8, S, tf.int32),
        "masked_lm_positions": (8, 24, tf.int32),
        "masked_lm_ids": (8, 24, tf.int32),
        "masked_lm_weights": (8, 24, tf.float32),
        "is_real_example": (8, tf.float32),
        "index": (8, 32, tf.int64),
    }
    without = dataset.map(lambda w: {k: v for k, v in w.items() if k != "index"})
    assert "index" not in pack_dataset(without, 8, S, P).element_spec
    assert (
        len(list(pack_dataset(without, 8, S, P))) == len(list(pack_dataset(dataset, 8, S, P))) > 2
    )


@pytest.mark.parametrize("sizes", [[200, 3, 1, 150, 64], [1], [2, 2, 2]])
def test_a_dataset_keeps_everything(sizes):
    """Also what waits from window to window, and through windows that fill no row at all."""
    dataset, everything = windows(sizes)
    batches = numpy_batches(pack_dataset(dataset, 4, S, P, drop_remainder=False))
    assert sum((all_of(b) for b in batches), collections.Counter()) == everything
    for batch in batches:
        parts_of(batch)
        assert (batch["is_real_example"] == 1).all()
    full = [(S - batch["input_mask"].sum(1)).max() <= 6 for batch in batches]
    assert all(full[:-2])  # the last rows take what there is
    rows = sum(len(b["input_ids"]) for b in batches)
    pieces = sum(b["input_mask"].sum() for b in batches)
    assert rows <= pieces / (0.95 * S) + 2


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("batch_size", [8, 32])
def test_no_batch_is_more_than_five_percent_padding(name, batch_size):
    dataset, _ = windows([256] * 2, name, epochs=-1)
    batches = numpy_batches(pack_dataset(dataset, batch_size, S, P).take(640 // batch_size))
    assert max(1 - b["input_mask"].mean() for b in batches) <= 0.05
    share = padding_share(pack_dataset(dataset, batch_size, S, P), len(batches))
    assert share == pytest.approx(np.mean([1 - b["input_mask"].mean() for b in batches]))


def test_padding_share_before_and_after():
    dataset, _ = windows([256] * 2)
    real = sum(int(w["input_mask"].sum()) for w in numpy_batches(dataset))
    assert padding_share(dataset, 5) == pytest.approx(1 - real / (512 * S))
    first = next(iter(dataset))["input_mask"].numpy().mean()
    assert padding_share(dataset, 1) == pytest.approx(1 - first)
    assert padding_share(pack_dataset(dataset, 8, S, P), 5) < 0.02 < 0.5 < padding_share(dataset, 5)
    assert padding_share(dataset.take(0), 1) == 0


def test_same_seed_same_batches_and_no_order_by_length():
    dataset, _ = windows([WINDOW] * 2)

    def ids(seed):
        return np.concatenate(
            [b["input_ids"] for b in numpy_batches(pack_dataset(dataset, 8, S, P, seed))]
        )

    assert (ids(1) == ids(1)).all()
    assert (ids(1) != ids(2)).any()
    rows = numpy_batches(pack_dataset(dataset.take(1), 1, S, P))
    counts = [row["sequence_ids"].max() for row in rows]
    middle = len(counts) // 2
    assert 0.6 < np.mean(counts[:middle]) / np.mean(counts[middle:]) < 1.6


@pytest.mark.parametrize("taken", [3, 17])
def test_a_restored_iterator_goes_on(tmp_path, taken):
    """Through windows, rows that are ahead of the batches, and instances that wait."""

    def fresh():
        dataset, _ = windows([60, 50], epochs=-1)
        # As in training: windows made of single records after a shuffle.
        records = dataset.unbatch().shuffle(100, seed=3).batch(64)
        return iter(pack_dataset(records, 4, S, P, seed=5).prefetch(2))

    iterator = fresh()
    for _ in range(taken):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "ckpt"))
    expected = [{k: v.numpy() for k, v in next(iterator).items()} for _ in range(30)]
    again = fresh()
    tf.train.Checkpoint(iterator=again).read(path).assert_consumed()
    for batch in expected:
        found = next(again)
        for name, values in batch.items():
            np.testing.assert_array_equal(found[name], values)
    assert any((batch["index"][:, 1] >= 0).any() for batch in expected)


def test_refusals():
    dataset, _ = windows([10])
    with pytest.raises(DataError, match="nothing as masked_lm_ids"):
        pack_dataset(dataset.map(_without_ids), 4, S, P)
    with pytest.raises(DataError, match=r"as input_ids, but int32 \[number of instances, 64\]"):
        pack_dataset(dataset, 4, 64, P)
    with pytest.raises(DataError, match=r"as masked_lm_positions, but .*, 19\] was expected"):
        pack_dataset(dataset, 4, S, 19)


def _without_ids(window):
    return {name: values for name, values in window.items() if name != "masked_lm_ids"}
