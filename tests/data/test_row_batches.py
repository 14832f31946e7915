"""Batches by a budget of tokens, and of examples with several rows: choices and windows."""

import random

import numpy as np
import pytest
import tensorflow as tf

from data.batching import Batching, batches, batches_per_epoch, batching_sources
from data.errors import DataError
from data.features import Features
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.rows import SentenceSettings, tokenize_examples
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
BUCKETS = [6, 12, 20]
LONGEST = 30


def text(draw: random.Random, longest: int) -> str:
    return " ".join(draw.choices("abcdefgh", k=draw.randrange(1, longest)))


def make_examples(number: int, kind: SentenceKind) -> list[Example]:
    draw = random.Random(number)
    examples = []
    for i in range(number):
        if kind is SentenceKind.CHOICES:
            choices = tuple(text(draw, 12) for _ in range(draw.choice([2, 2, 3, 5])))
            given = Example(f"x-{i}", text(draw, 20), None, i % 2, f"f:{i}", choices)
        else:
            given = Example(f"x-{i}", text(draw, 60), None, f"{i % 2}", f"f:{i}")
        examples.append(given)
    return examples


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


@pytest.fixture(scope="module")
def data(tokenizer):
    """Name → (examples, features)."""
    cases = {
        "single": (SentenceKind.CLASSES, SentenceSettings(LONGEST)),
        "windows": (SentenceKind.CLASSES, SentenceSettings(16, "windows", window_stride=7)),
        "choices": (SentenceKind.CHOICES, SentenceSettings(LONGEST)),
    }
    made = {}
    for name, (kind, settings) in cases.items():
        examples = make_examples(150, kind)
        made[name] = examples, tokenize_examples(tokenizer, examples, kind, ["0", "1"], settings)
    return made


def taken(features: Features, batching: Batching, training: bool, number: int, seed: int = 0):
    return list(batches(features, batching, training, seed).take(number))


def check_batch(batch: dict, features: Features) -> None:
    """Rows equal the features of the examples that `index` names, whatever is around them."""
    index, real = batch["index"].numpy(), batch["is_real_example"].numpy()
    assert real.tolist() == (index >= 0).astype(float).tolist()
    assert batch["label_ids"].numpy().tolist() == [
        features.label_ids[i] if i >= 0 else 0 for i in index
    ]
    names = ("input_ids", "input_mask", "segment_ids")
    arrays = [batch[name].numpy() for name in names]
    assert arrays[0].ndim == (3 if features.several_rows else 2)
    if not features.several_rows:
        arrays = [array[:, np.newaxis] for array in arrays]
    for place, example in enumerate(index):
        first, last = (0, 0) if example < 0 else features.row_splits[example : example + 2]
        for row in range(arrays[0].shape[1]):
            ids = np.zeros(0, int)
            if row < last - first:
                ids = features.ids[features.splits[first + row] : features.splits[first + row + 1]]
            wanted = np.zeros([3, arrays[0].shape[2]], int)
            wanted[0, : len(ids)] = ids
            wanted[1, : len(ids)] = 1
            if row < last - first:
                wanted[2, features.first_lengths[first + row] : len(ids)] = 1
            np.testing.assert_array_equal([array[place, row] for array in arrays], wanted)


@pytest.mark.parametrize("name", ["single", "windows", "choices"])
@pytest.mark.parametrize(("tokens", "multiple"), [(100, 1), (400, 4), (1, 1), (5000, 3)])
def test_budget(data, name, tokens, multiple):
    _, features = data[name]
    batching = Batching(0, BUCKETS, tokens=tokens, multiple=multiple)
    steps = batches_per_epoch(features, batching)
    assert steps == int(steps)
    two_epochs = taken(features, batching, True, 2 * int(steps), seed=3)
    orders = []
    for epoch in (two_epochs[: int(steps)], two_epochs[int(steps) :]):
        for batch in epoch:
            index = batch["index"].numpy()
            assert len(index) % multiple == 0 and (index >= 0).any()
            # All of one shape: no row is missing, and no row's place could be shorter.
            shape = batch["input_ids"].shape
            if tf.size(batch["input_ids"]) > tokens:
                assert len(index) == multiple
            real = index[index >= 0]
            assert (index[: len(real)] == real).all() and len(index) - len(real) < multiple
            if features.several_rows:
                assert (features.num_rows[real] == shape[1]).all()
            bounds = [b for b in BUCKETS if b < features.max_seq_length]
            for length in features.lengths[real]:
                bucket = min(b for b in [*bounds, features.max_seq_length] if b >= length)
                assert bucket == shape[-1]
        order = np.concatenate([batch["index"].numpy() for batch in epoch])
        assert sorted(order[order >= 0].tolist()) == list(range(150))
        orders.append(order.tolist())
        check_batch(epoch[0], features)
        check_batch(epoch[-1], features)
    assert orders[0] != orders[1]
    widths = [batch["input_ids"].shape[-1] for batch in two_epochs[: int(steps)]]
    if tokens == 100:
        assert widths != sorted(widths) and widths != sorted(widths, reverse=True)


def test_budget_is_used(data):
    """Of batches that aren't the last of their shape none could have held one more example."""
    _, features = data["single"]
    batching = Batching(0, BUCKETS, tokens=200)
    epoch = taken(features, batching, True, int(batches_per_epoch(features, batching)))
    full = [b for b in epoch if tf.size(b["input_ids"]) + b["input_ids"].shape[1] > 200]
    assert len(full) >= len(epoch) - len(BUCKETS) - 1
    fewer = batches_per_epoch(features, Batching(0, BUCKETS, tokens=1000))
    assert fewer < len(epoch) / 3


@pytest.mark.parametrize("name", ["single", "choices"])
def test_budget_repeats_and_resumes(data, name, tmp_path):
    _, features = data[name]
    batching = Batching(0, BUCKETS, tokens=150, multiple=2)

    def fresh(seed=5):
        return iter(batches(features, batching, True, seed))

    iterator = fresh()
    first = [next(iterator)["index"].numpy().tolist() for _ in range(25)]
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    steps = int(batches_per_epoch(features, batching))
    wanted = [next(iterator)["index"].numpy().tolist() for _ in range(steps)]
    resumed, again, other = fresh(), fresh(), fresh(6)
    tf.train.Checkpoint(iterator=resumed).restore(path).assert_consumed()
    assert [next(resumed)["index"].numpy().tolist() for _ in wanted] == wanted
    assert [next(again)["index"].numpy().tolist() for _ in first] == first
    assert [next(other)["index"].numpy().tolist() for _ in first] != first


@pytest.mark.parametrize("name", ["single", "choices"])
def test_budget_of_several_workers(data, name):
    _, features = data[name]

    def taken_by(**more):
        batching = Batching(0, BUCKETS, tokens=300, **more)
        return taken(features, batching, True, 20 * len(batching.parts), 2)

    whole = taken_by(multiple=4)
    workers = [taken_by(num_parts=4, parts=parts) for parts in ([0, 1], [2, 3])]
    for number, batch in enumerate(whole):
        parts = [part for worker in workers for part in worker[2 * number : 2 * number + 2]]
        assert len({len(part["index"]) for part in parts}) == 1
        together = np.concatenate([part["index"].numpy() for part in parts])
        assert together.tolist() == batch["index"].numpy().tolist()
        for part in parts:
            # Nothing but the worker's own examples decides the shape, within the budget.
            assert part["input_ids"].shape[-1] <= batch["input_ids"].shape[-1]
            check_batch(part, features)
        places = sum(int(tf.size(part["input_ids"])) for part in parts)
        assert places <= int(tf.size(batch["input_ids"]))


def test_budget_without_buckets_is_refused(data):
    with pytest.raises(DataError, match="budget of tokens"):
        batches(data["single"][1], Batching(8, tokens=100), True)


@pytest.mark.parametrize("name", ["windows", "choices"])
@pytest.mark.parametrize("buckets", [None, BUCKETS])
@pytest.mark.parametrize("training", [True, False])
def test_several_rows(data, name, buckets, training):
    _, features = data[name]
    found = taken(features, Batching(8, buckets), training, 19)
    most = int(features.num_rows.max())
    seen = []
    for batch in found:
        check_batch(batch, features)
        index = batch["index"].numpy()
        index = index[index >= 0]
        seen += index.tolist()
        shape = batch["input_ids"].shape
        if buckets is None:
            assert shape == (8, most, features.max_seq_length)
        else:
            assert shape[1] == features.num_rows[index].max()
            assert shape[2] <= min(b for b in [*BUCKETS, 30] if b >= features.lengths[index].max())
    if training:
        assert len(set(seen[:144])) == 144
    else:
        assert sorted(seen) == list(range(150))
        if buckets is None:
            assert found[-1]["index"].numpy().tolist() == [144, 145, 146, 147, 148, 149, -1, -1]


@pytest.mark.parametrize("name", ["windows", "choices"])
def test_rows_that_workers_predict_fit_together(data, name):
    _, features = data[name]
    parts = [
        batch
        for parts in ([0], [1])
        for batch in batches(features, Batching(8, BUCKETS, num_parts=2, parts=parts), False)
    ]
    assert {batch["input_ids"].shape[:2] for batch in parts} == {(4, features.num_rows.max())}
    index = np.concatenate([batch["index"].numpy() for batch in parts])
    assert sorted(index[index >= 0].tolist()) == list(range(150))
    for batch in parts[::7]:
        check_batch(batch, features)


def test_batches_are_what_texts_become(data, tokenizer):
    """The two ways to model inputs agree, also about which rows there are."""
    examples, features = data["choices"]
    (batch,) = taken(features, Batching(6), False, 1)
    chosen = examples[:6]
    most = int(features.num_rows.max())
    choices = [[*e.choices, *[""] * (most - len(e.choices))] for e in chosen]
    wanted = build_choice_inputs(tokenizer, [e.text_a for e in chosen], choices, LONGEST)
    for key, tensor in wanted.items():
        np.testing.assert_array_equal(batch[key], tensor)
    examples, features = data["windows"]
    (batch,) = taken(features, Batching(150), False, 1)
    wanted = build_inputs(
        tokenizer, [e.text_a for e in examples], None, 16, long_text="windows", window_stride=7
    )
    for key, tensor in wanted.items():
        np.testing.assert_array_equal(batch[key], tensor)


def test_sources(data):
    examples, _ = data["single"]
    assert batching_sources(examples, np.array([3, 0, -1, 3])) == "f: lines 0, 3"
    assert batching_sources(examples, np.array([7])) == "f: line 7"
