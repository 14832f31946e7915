"""Neighbours of words against a search by hand, and vectors against the model's own outputs."""

import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.models import BertModel
from modeling.training.adaptation.neighbours import changed_neighbours, word_vectors


def nearest(words, vectors, number, count):
    """By hand, in float64."""
    centred = vectors.astype(np.float64) - vectors.astype(np.float64).mean(0)

    def cosine(other):
        a, b = centred[number], centred[other]
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    others = sorted((n for n in range(len(words)) if n != number), key=cosine, reverse=True)
    return [words[n] for n in others[:count]]


@pytest.mark.parametrize("size", [3, 40])
def test_against_a_search_by_hand(size):
    rng = np.random.default_rng(size)
    words = [f"w{n}" for n in range(size)]
    before = rng.normal(size=(size, 8)).astype(np.float32) + 3
    after = before.copy()
    after[:2] = rng.normal(size=(2, 8)) + 3
    changes = changed_neighbours(words, before, after, most=7)
    count = min(10, size - 1)
    for change in changes:
        number = words.index(change.word)
        assert change.before == nearest(words, before, number, count)
        assert change.after == nearest(words, after, number, count)
        assert change.kept == len(set(change.before) & set(change.after)) < count
    assert [c.kept for c in changes] == sorted(c.kept for c in changes)
    if size == 3:
        assert changes == []  # all others are always near
    else:
        assert len(changes) == 7 and {"w0", "w1"} & {c.word for c in changes}


def test_few_words():
    for words in ([], ["one"]):
        vectors = np.ones((len(words), 4), np.float32)
        assert changed_neighbours(words, vectors, vectors) == []


def test_vectors_are_the_models():
    model = BertModel(BertConfig.named("tiny", 300))
    model.build()
    ids = [*range(5, 300)]
    vectors = word_vectors(model.encoder, ids, cls_id=2, sep_id=3)
    assert vectors.shape == (len(ids), 128) and vectors.dtype == np.float32
    assert word_vectors(model.encoder, [], cls_id=2, sep_id=3).size == 0
    for number in (0, 17, len(ids) - 1):
        inputs = {
            "input_ids": tf.constant([[2, ids[number], 3]]),
            "input_mask": tf.ones([1, 3], tf.int32),
            "segment_ids": tf.zeros([1, 3], tf.int32),
        }
        wanted = model(inputs)["sequence_output"][0, 1]
        np.testing.assert_allclose(vectors[number], wanted, atol=1e-5)
