"""The tf.data reader: shapes, epochs, exact evaluation, shards, held-out records, resume."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.batches import pipeline
from data.pretraining.batches.pipeline import describe_pretraining_batch, pretraining_dataset
from data.pretraining.records.held_out import held_out_record_batches, split_held_out
from data.pretraining.records.schema import encode_records, find_bad_record
from tests.reference import plain_pretraining_data

S, P, V = 16, 4, 5000


def write(path, ids, **changes):
    """Records whose masked_lm_ids all say which record it is."""
    ids = np.asarray(ids)
    n = len(ids)
    made = {
        "input_ids": np.repeat(ids[:, None], S, axis=1),
        "input_mask": np.ones((n, S), np.int32),
        "segment_ids": np.ones((n, S), np.int32),
        "masked_lm_positions": np.tile(np.arange(P), (n, 1)),
        "masked_lm_ids": np.repeat(ids[:, None], P, axis=1),
        "masked_lm_weights": np.ones((n, P), np.float32),
        "next_sentence_labels": ids[:, None] % 2,
        **changes,
    }
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in encode_records(made):
            writer.write(record)
    return str(path)


@pytest.fixture
def files(tmp_path):
    """Three files of 103 records in all; ids 0 to 102."""
    return [
        write(tmp_path / "a", range(40)),
        write(tmp_path / "b", range(40, 81)),
        write(tmp_path / "c", range(81, 103)),
    ]


def dataset(files, batch_size=8, training=True, **settings):
    return pretraining_dataset(files, S, P, V, batch_size, training, **settings)


def ids(batches):
    return [i for b in batches for i in b["masked_lm_ids"][:, 0].numpy().tolist()]


def real_ids(batches):
    return [
        i
        for b in batches
        for i, real in zip(
            b["masked_lm_ids"][:, 0].numpy().tolist(), b["is_real_example"].numpy(), strict=True
        )
        if real
    ]


@pytest.mark.parametrize("training", [True, False])
def test_static_shapes_and_types(files, training):
    made = dataset(files, training=training)
    expected = {
        "input_ids": ((8, S), tf.int32),
        "input_mask": ((8, S), tf.int32),
        "segment_ids": ((8, S), tf.int32),
        "masked_lm_positions": ((8, P), tf.int32),
        "masked_lm_ids": ((8, P), tf.int32),
        "masked_lm_weights": ((8, P), tf.float32),
        "next_sentence_labels": ((8, 1), tf.int32),
        "is_real_example": ((8,), tf.float32),
    }
    if training:
        expected["index"] = ((8,), tf.int64)
    assert {k: (tuple(v.shape), v.dtype) for k, v in made.element_spec.items()} == expected
    batch = next(iter(made))
    assert (batch["masked_lm_positions"].numpy() == np.arange(P)).all()
    assert (batch["next_sentence_labels"] == batch["input_ids"][:, :1] % 2).numpy().all()


def test_the_originals_records_are_read(tmp_path):
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    rng = np.random.default_rng(0)
    text = "\n\n".join(
        "\n".join(" ".join(rng.choice(words, 6)) for _ in range(5)) for _ in range(10)
    )
    (tmp_path / "text.txt").write_text(text + "\n")
    path = str(tmp_path / "plain.tfrecord")
    _, made = plain_pretraining_data.write(
        [tmp_path / "text.txt"], str(tmp_path / "vocab.txt"), path, S, P, dupe_factor=2
    )
    sizes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), S)
    sizes |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), P)
    spec = {name: tf.io.FixedLenFeature([n], tf.int64) for name, n in sizes.items()}
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([P], tf.float32)
    spec["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    expected = tf.io.parse_example([r.numpy() for r in tf.data.TFRecordDataset(path)], spec)
    batches = list(pretraining_dataset([path], S, P, len(vocab), 8, training=False))
    for name, values in expected.items():
        read = np.concatenate([batch[name] for batch in batches])[:made]
        np.testing.assert_array_equal(read, values, name)
    assert sum(batch["is_real_example"].numpy().sum() for batch in batches) == made > 20


def masked(rng, n, real):
    """Records masked by a plain loop, with the text they were made of."""
    text = rng.integers(5, V, (n, S))
    text *= np.arange(S) < real[:, None]
    shown = text.copy()
    positions, ids = np.zeros((n, P), np.int64), np.zeros((n, P), np.int64)
    weights = np.zeros((n, P), np.float32)
    for row in range(n):
        used = rng.integers(0, P + 1)
        chosen = sorted(rng.choice(real[row], min(used, real[row]), replace=False))
        for slot, position in enumerate(chosen):
            positions[row, slot], ids[row, slot] = position, text[row, position]
            weights[row, slot] = 1
            shown[row, position] = 4
    return text, {
        "input_ids": shown,
        "input_mask": (np.arange(S) < real[:, None]).astype(np.int32),
        "masked_lm_positions": positions,
        "masked_lm_ids": ids,
        "masked_lm_weights": weights,
    }


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("objective", ["ltr", "rtl"])
def test_batches_in_one_direction(tmp_path, training, shards, objective):
    rng = np.random.default_rng(0)
    real = rng.integers(3, S + 1, 21)
    real[:2] = S, 3
    text, features = masked(rng, 21, real)
    assert (text != features["input_ids"]).sum() > 20
    path = write(tmp_path / "a", range(21), **features)
    settings = {"num_shards": shards, "objective": objective}
    parts = [dataset([path], 4, training, shard_index=k, **settings) for k in range(shards)]
    spec = parts[0].element_spec
    assert all(tuple(spec[f"masked_lm_{n}"].shape) == (4, S - 1) for n in ("positions", "ids"))
    assert tuple(spec["masked_lm_weights"].shape) == (4, S - 1)
    assert spec["masked_lm_weights"].dtype == tf.float32
    assert spec["masked_lm_ids"].dtype == spec["masked_lm_positions"].dtype == tf.int32
    seen = []
    for batch in (b for part in parts for b in part.take(6)):
        batch = {name: values.numpy() for name, values in batch.items()}
        for row in np.flatnonzero(batch["is_real_example"]):
            (number,) = np.flatnonzero((text == batch["input_ids"][row]).all(axis=1))
            seen.append(number)
            n = real[number]
            predicted = [
                (position, piece)
                for position, piece, weight in zip(
                    batch["masked_lm_positions"][row],
                    batch["masked_lm_ids"][row],
                    batch["masked_lm_weights"][row],
                    strict=True,
                )
                if weight == 1
            ]
            places = [(i, i + 1) for i in range(n - 1)]
            if objective == "rtl":
                places = [(i, i - 1) for i in range(1, n)]
            assert predicted == [(i, text[number, other]) for i, other in places]
            assert batch["masked_lm_weights"][row].sum() == n - 1
        filler = batch["is_real_example"] == 0
        assert not batch["masked_lm_weights"][filler].any()
    assert set(seen) == {*range(21)} and (training or len(seen) == 21)


def test_other_objectives(files):
    usual, mlm = (
        list(dataset(files, training=False, objective=name)) for name in ("mlm_nsp", "mlm")
    )
    for one, other in zip(usual, mlm, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    with pytest.raises(DataError, match="objective is 'clm', but one of mlm_nsp, mlm, ltr"):
        dataset(files, objective="clm")


def test_training_epochs_are_permutations(files):
    seen = ids(dataset(files, batch_size=1).take(309))
    epochs = [seen[k : k + 103] for k in (0, 103, 206)]
    assert all(sorted(epoch) == list(range(103)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != sorted(epochs[2])
    assert ids(dataset(files, batch_size=1).take(309)) == seen
    assert ids(dataset(files, batch_size=1, seed=1).take(103)) != epochs[0]


def test_evaluation_is_exact(files):
    batches = list(dataset(files, training=False))
    assert len(batches) == 13 == held_out_record_batches(files, 8)
    assert real_ids(batches) == list(range(103))
    last = {k: v.numpy() for k, v in batches[-1].items()}
    assert last["is_real_example"].tolist() == [1] * 7 + [0]
    assert all(not v[7].any() for v in last.values())


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_divide_the_records(files, shards):
    parts = [
        list(dataset(files, training=False, num_shards=shards, shard_index=k))
        for k in range(shards)
    ]
    assert len({len(p) for p in parts}) == 1
    assert len(parts[0]) == held_out_record_batches(files, 8, shards)
    assert sorted(i for p in parts for i in real_ids(p)) == list(range(103))
    # Training: three files divide evenly among three workers, not among two.
    seen = [
        set(ids(dataset(files, num_shards=shards, shard_index=k).take(60))) for k in range(shards)
    ]
    assert set.union(*seen) == set(range(103))
    assert not set.intersection(*seen)


def test_shards_in_step_when_one_has_nothing_left(tmp_path):
    path = write(tmp_path / "a", range(9))
    parts = [list(dataset([path], 8, False, num_shards=2, shard_index=k)) for k in (0, 1)]
    assert [len(p) for p in parts] == [1, 1]
    path = write(tmp_path / "b", range(17))
    parts = [list(dataset([path], 8, False, num_shards=2, shard_index=k)) for k in (0, 1)]
    assert [len(p) for p in parts] == [2, 2]
    assert parts[1][1]["is_real_example"].numpy().sum() == 0


def test_held_out_records(files):
    held_out = real_ids(dataset(files, training=False, held_out="eval", held_out_share=0.1))
    assert held_out == [*range(0, 40, 10), *range(40, 81, 10), *range(81, 103, 10)]
    rest = set(range(103)) - set(held_out)
    train = dataset(files, batch_size=1, held_out="train", held_out_share=0.1)
    train = ids(train.take(2 * len(rest)))
    assert collections.Counter(train) == dict.fromkeys(rest, 2)
    once = real_ids(dataset(files, training=False, held_out="train", held_out_share=0.1))
    assert once == sorted(rest)
    settings = {"held_out": "eval", "held_out_share": 0.1, "num_shards": 2}
    shard = [list(dataset(files, 4, False, shard_index=k, **settings)) for k in (0, 1)]
    assert len(shard[0]) == len(shard[1]) == 2
    assert sorted(real_ids(shard[0]) + real_ids(shard[1])) == held_out


def test_held_out_files(tmp_path):
    files = [write(tmp_path / f"{i:02}", [i]) for i in range(25)]
    split = split_held_out(files, 0.1)
    assert split.every is None
    assert split.eval_files == (files[0], files[10], files[20])
    assert sorted(split.train_files + split.eval_files) == files
    settings = {"held_out_share": 0.1, "training": False}
    assert real_ids(dataset(files, held_out="eval", **settings)) == [0, 10, 20]
    assert len(real_ids(dataset(files, held_out="train", **settings))) == 22


@pytest.mark.parametrize("filled", [{0}, {0, 1, 2}, {*range(10)}, {*range(1, 20)}])
def test_uneven_files_are_held_out_by_record(tmp_path, filled):
    """As jobs with more shards than parts of the text leave them."""
    numbers = {i: [*range(40 * i, 40 * i + 40)] if i in filled else [] for i in range(20)}
    files = [write(tmp_path / f"{i:02}", numbers[i]) for i in numbers]
    split = split_held_out(files, 0.1)
    assert split.every == 10 and split.train_files == split.eval_files == tuple(files)
    sides = [
        real_ids(dataset(files, training=False, held_out=side, held_out_share=0.1))
        for side in ("eval", "train")
    ]
    assert sorted(sides[0] + sides[1]) == sorted(itertools.chain(*numbers.values()))
    assert len(sides[0]) == 4 * len(filled)
    settings = {"batch_size": 1, "num_shards": 2, "held_out": "train", "held_out_share": 0.1}
    seen = [ids(dataset(files, shard_index=k, **settings).take(100)) for k in (0, 1)]
    assert {*seen[0]} and {*seen[1]} and {*seen[0]}.isdisjoint(seen[1])


def test_held_out_refusals(tmp_path):
    path = write(tmp_path / "a", [1])
    with pytest.raises(DataError, match="fewer than two records"):
        split_held_out([path])
    with pytest.raises(DataError, match=r"share is 0\.7"):
        split_held_out([path], 0.7)


@pytest.mark.parametrize("held_out", [None, "train"])
def test_checkpointed_iterator_continues_identically(files, tmp_path, held_out):
    settings = {"batch_size": 4, "shuffle_buffer": 20, "held_out": held_out}
    iterator = iter(dataset(files, **settings))
    ids(next(iterator) for _ in range(37))  # in the middle of the second epoch
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "ckpt"))
    expected = ids(next(iterator) for _ in range(60))
    fresh = iter(dataset(files, **settings))
    tf.train.Checkpoint(iterator=fresh).read(path).assert_consumed()
    assert ids(next(fresh) for _ in range(60)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_ids", V),
        ("masked_lm_ids", V),
        ("masked_lm_positions", S),
        ("input_mask", 2),
        ("segment_ids", 3),
        ("next_sentence_labels", 2),
        ("masked_lm_weights", np.inf),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_values_out_of_range_raise(tmp_path, name, value, training):
    path = write(tmp_path / "a", range(30))
    width = {"input_ids": S, "input_mask": S, "segment_ids": S, "next_sentence_labels": 1}
    dtype = np.float32 if name == "masked_lm_weights" else np.int64
    values = np.zeros((5, width.get(name, P)), dtype)
    values[3, -1] = value
    bad = write(tmp_path / "b", range(5), **{name: values})
    with pytest.raises(tf.errors.InvalidArgumentError, match=name):
        list(dataset([path, bad], training=training).take(10))
    with pytest.raises(DataError, match=f"b: record 3 has the value .* in {name}"):
        find_bad_record([path, bad], S, P, V)


def test_errors_before_the_first_batch(files, tmp_path):
    with pytest.raises(DataError, match="No record files"):
        dataset([])
    with pytest.raises(DataError, match=r"gone isn't there \(1 of 2"):
        dataset([files[0], str(tmp_path / "gone")])
    with pytest.raises(DataError, match="no record in any file"):
        dataset([write(tmp_path / "empty", np.zeros(0, np.int64))])
    with pytest.raises(DataError, match=r"a: record 0 has 16 values .*--max_seq_length=16"):
        pretraining_dataset(files, 32, P, V, 8, True)
    with pytest.raises(DataError, match=r"a: record 0 has 4 values .*--max_predictions_per_seq=4"):
        pretraining_dataset(files, S, 20, V, 8, True)


def test_later_record_of_another_length(files, monkeypatch, tmp_path):
    short = {k: np.zeros((4, S - 1), np.int32) for k in ("input_ids", "input_mask", "segment_ids")}
    odd = write(tmp_path / "odd", range(4), **short)
    monkeypatch.setattr(pipeline, "_FILES_CHECKED", 1)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(dataset([*files, odd], training=False))
    with pytest.raises(DataError, match=r"odd: record 0 has 15 values of input_ids"):
        find_bad_record([*files, odd], S, P, V)


@pytest.mark.parametrize("settings", [{}, {"held_out": "train"}, {"num_shards": 2}])
def test_a_batch_says_which_records_it_holds(files, settings):
    firsts = dict(zip(files, (0, 40, 81), strict=True))
    for batch in dataset(files, **settings).take(20):
        index = batch["index"].numpy()
        named = []
        for part in describe_pretraining_batch(files, index).split("; "):
            path, _, numbers = part.partition(": record")
            named += [firsts[path] + int(n) for n in numbers.removeprefix("s").split(", ")]
        # A batch may hold the end of an epoch and the beginning of the next.
        assert sorted(named) == sorted(set(batch["masked_lm_ids"][:, 0].numpy()))


def test_all_records_of_a_batch_are_named_by_file():
    index = np.array([2**40 + 3, 5, 0, 17, 5])
    assert describe_pretraining_batch(["a", "b"], index) == "a: records 0, 5, 17; b: record 3"
