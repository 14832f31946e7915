"""Batches: every example in its turn, the right rows, and an order that can be resumed."""

import os
import random

import numpy as np
import pytest
import tensorflow as tf

from data.batching import Batching, batches, batching_length_buckets
from data.errors import DataError
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.rows import SentenceSettings, tokenize_examples
from data.tokenization import Tokenizer, build_inputs

LABELS = ["no", "yes"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{c}" for c in "abcdefgh")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


def featurize(tokenizer, examples, max_seq_length, kind=SentenceKind.CLASSES, **more):
    labels = [] if kind is SentenceKind.CHOICES else LABELS
    return tokenize_examples(
        tokenizer, examples, kind, labels, SentenceSettings(max_seq_length, **more)
    )


def make_examples(number: int) -> list[Example]:
    draw = random.Random(number)

    def text(longest: int) -> str:
        return " ".join(draw.choices("abcdefgh", k=draw.randrange(1, longest)))

    return [
        Example(f"x-{i}", text(45), draw.choice([None, text(20)]), draw.choice(LABELS), f"f:{i}")
        for i in range(number)
    ]


def check_rows(batch, examples, tokenizer, max_seq_length):
    """Rows equal what `build_inputs` makes of the example that `index` names."""
    index = batch["index"].numpy()
    real = batch["is_real_example"].numpy()
    assert np.array_equal(real, (index >= 0).astype(np.float32))
    chosen = [examples[i] for i in index[index >= 0]]
    wanted = build_inputs(
        tokenizer,
        [example.text_a for example in chosen],
        [example.text_b or "" for example in chosen],
        max_seq_length,
    )
    width = batch["input_ids"].shape[1]
    for name, tensor in wanted.items():
        assert np.array_equal(batch[name][: len(chosen)], tensor[:, :width])
        assert not tensor[:, width:].numpy().any()
        assert not batch[name][len(chosen) :].numpy().any()
    labels = [LABELS.index(example.label) for example in chosen]
    assert batch["label_ids"].numpy()[: len(chosen)].tolist() == labels
    types = {name: tensor.dtype for name, tensor in batch.items()}
    assert types == {
        "input_ids": tf.int32,
        "input_mask": tf.int32,
        "segment_ids": tf.int32,
        "label_ids": tf.int32,
        "is_real_example": tf.float32,
        "index": tf.int64,
    }


@pytest.mark.parametrize("buckets", [None, [16, 32]])
@pytest.mark.parametrize("number", [0, 16, 61])
def test_evaluation_sees_every_example_once(tokenizer, number, buckets):
    examples = make_examples(number)
    dataset = batches(featurize(tokenizer, examples, 40), Batching(16, buckets=buckets), False)
    seen = []
    for batch in dataset:
        check_rows(batch, examples, tokenizer, 40)
        index = batch["index"].numpy()
        if buckets is None:
            assert batch["input_ids"].shape == (16, 40)
        else:
            lengths = batch["input_mask"].numpy().sum(1)
            assert batch["input_ids"].shape[1] == min(b for b in (16, 32, 40) if b >= max(lengths))
        seen += index[index >= 0].tolist()
    assert sorted(seen) == list(range(number))
    if buckets is None:
        assert seen == sorted(seen)
        assert dataset.element_spec["input_ids"].shape == (16, 40)


@pytest.mark.parametrize("buckets", [None, [16, 32, 400]])
def test_training_epochs(tokenizer, buckets):
    examples = make_examples(200)
    tokenized = featurize(tokenizer, examples, 40)
    dataset = batches(tokenized, Batching(16, buckets), True, 3)
    orders = []
    batch_iterator = iter(dataset)
    for _ in range(3):
        epoch = [next(batch_iterator) for _ in range(200 // 16)]
        for batch in epoch[:1]:
            check_rows(batch, examples, tokenizer, 40)
        order = np.concatenate([batch["index"].numpy() for batch in epoch])
        assert len(set(order.tolist())) == len(order) == 192
        orders.append(order.tolist())
    assert orders[0] != orders[1] != orders[2]
    # The eight left over are not the same ones each time, nor always the longest.
    assert set(orders[0]) != set(orders[1])
    again = batches(tokenized, Batching(16, buckets), True, 3)
    first = np.concatenate([batch["index"].numpy() for batch in again.take(12)])
    assert first.tolist() == orders[0]
    other = batches(tokenized, Batching(16, buckets), True, 4)
    assert next(iter(other))["index"].numpy().tolist() != orders[0][:16]
    assert dataset.element_spec["input_ids"].shape.as_list() == [16, None if buckets else 40]


def test_training_order_mixes_the_whole_set(tokenizer):
    """Sorted data must not stay sorted: the first batches hold examples from everywhere."""
    examples = make_examples(1000)
    dataset = batches(featurize(tokenizer, examples, 40), Batching(50), True, 1)
    for batch in dataset.take(5):
        index = batch["index"].numpy()
        assert abs(index.mean() - 499.5) < 4 * 288.7 / np.sqrt(50)
        assert abs(np.corrcoef(index, np.arange(50))[0, 1]) < 0.6


def test_buckets_save_padding(tokenizer):
    examples = make_examples(500)
    tokenized = featurize(tokenizer, examples, 64)
    computed = {}
    for name, buckets in (("static", None), ("buckets", batching_length_buckets(64))):
        batch_list = list(batches(tokenized, Batching(16, buckets), True, 0).take(31))
        computed[name] = sum(int(tf.size(batch["input_ids"])) for batch in batch_list)
        widths = [batch["input_ids"].shape[1] for batch in batch_list]
    assert computed["buckets"] < 0.65 * computed["static"]
    # Batches of one length do not follow one another in order of length.
    assert widths != sorted(widths)
    assert widths != sorted(widths, reverse=True)


def test_fewer_examples_than_a_batch(tokenizer):
    dataset = batches(featurize(tokenizer, make_examples(5), 16), Batching(12), True)
    counts = np.zeros(5, int)
    for batch in dataset.take(10):
        counts += np.bincount(batch["index"].numpy(), minlength=5)
    assert counts.sum() == 120
    assert counts.min() >= 15


@pytest.mark.parametrize("buckets", [None, [16, 32]])
def test_iterator_resumes(tokenizer, tmp_path, buckets):
    tokenized = featurize(tokenizer, make_examples(300), 40)

    def fresh():
        return iter(batches(tokenized, Batching(16, buckets), True, 5))

    iterator = fresh()
    for _ in range(25):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    wanted = [next(iterator)["input_ids"].numpy() for _ in range(30)]
    resumed = fresh()
    tf.train.Checkpoint(iterator=resumed).restore(path).assert_consumed()
    for batch in wanted:
        assert np.array_equal(next(resumed)["input_ids"], batch)
    assert sum(os.path.getsize(file) for file in tmp_path.iterdir()) < 50_000


def test_test_sets_have_label_zero(tokenizer):
    examples = [Example("test-0", "a b", None, None, "f:1")]
    (batch,) = batches(featurize(tokenizer, examples, 8), Batching(2), False)
    assert batch["label_ids"].numpy().tolist() == [0, 0]
    assert batch["is_real_example"].numpy().tolist() == [1, 0]
    assert batch["index"].numpy().tolist() == [0, -1]


def test_refused_data(tokenizer):
    with pytest.raises(DataError, match=r"f:7.*'maybe'.*no, yes"):
        featurize(tokenizer, [Example("x", "a", None, "maybe", "f:7")], 8)
    with pytest.raises(DataError, match="no examples"):
        batches(featurize(tokenizer, [], 8), Batching(2), True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("buckets", [None, [8, 16, 40]])
def test_parts_of_several_workers_make_up_the_batches(tokenizer, training, buckets):
    tokenized = featurize(tokenizer, make_examples(45), 40)

    def rows(**parts):
        dataset = batches(tokenized, Batching(12, buckets, **parts), training, 3)
        return [batch["index"].numpy() for batch in dataset.take(12)]

    whole = rows()
    workers = [rows(num_parts=4, parts=parts) for parts in ([0, 1], [2, 3])]
    assert all(len(index) == 3 for worker in workers for index in worker)
    for number, index in enumerate(whole[:4]):
        parts = [part for worker in workers for part in worker[2 * number : 2 * number + 2]]
        together = np.concatenate(parts)
        np.testing.assert_array_equal(together[: len(index)], index)
        assert (together[len(index) :] == -1).all()
