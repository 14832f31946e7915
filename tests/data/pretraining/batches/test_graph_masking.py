"""Masks made in the graph: the NumPy masking's chances, the paper's shares, exact budgets."""

import random

import numpy as np
import pytest
import tensorflow as tf

from data.pretraining.batches.graph_masking import mask_batch, unmask_batch
from data.pretraining.instances.masking import MaskSettings
from tests.data.pretraining.instances.masks import (
    TOKENS,
    VOCABULARY,
    batch,
    check_mixture,
    chosen_of,
    mask_instances,
    plain_choice,
    run_shares,
    wanted,
    words_of,
)

P = 20


def masker(width=128, predictions=P, **settings):
    """A graph as tf.data makes one: the number of rows is unknown in it."""
    settings = MaskSettings(VOCABULARY, **settings)

    rows = tf.TensorSpec([None, width], tf.int32)

    @tf.function(input_signature=[rows, rows, tf.TensorSpec([2], tf.int64)])
    def mask(ids, real, seed):
        made = mask_batch({"input_ids": ids, "input_mask": real}, settings, predictions, seed)
        assert made["input_ids"].shape[1] == width
        assert made["masked_lm_positions"].shape[1] == predictions
        back = unmask_batch(made)["input_ids"]
        return made | {"unmasked": back}

    def run(ids, real, seed=(1, 2)):
        made = mask(ids, real, tf.constant(seed, tf.int64))
        return {name: values.numpy() for name, values in made.items()}

    return run


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_whole_word_mask": True}, {"max_ngram": 3}],
    ids=["pieces", "words", "spans"],
)
def test_against_the_papers_shares(settings):
    ids, real, lengths = batch(20_000)
    made = masker(**settings)(ids, real)
    assert check_mixture(ids, made) > 150_000
    np.testing.assert_array_equal(made["unmasked"], ids)
    counts = made["masked_lm_weights"].sum(axis=1)
    expected = np.array([wanted(n) for n in lengths])
    numpy = mask_instances(
        ids,
        real,
        VOCABULARY,
        P,
        0.15,
        settings.get("do_whole_word_mask", False),
        np.random.default_rng(1),
        max_ngram=settings.get("max_ngram", 1),
    )
    if settings:
        assert (counts <= expected).all() and (counts >= 1).all()
        # How much of the budget is used is a matter of chance, with the same chances.
        unused = [
            np.bincount((expected - n).astype(int), minlength=5)[:5] / len(ids)
            for n in (counts, numpy["masked_lm_weights"].sum(axis=1))
        ]
        np.testing.assert_allclose(*unused, atol=0.006)
    else:
        assert counts.tolist() == expected.tolist()
    # Each place of a row is as likely as in NumPy.
    places = [
        np.bincount(m["masked_lm_positions"][m["masked_lm_weights"] == 1], minlength=128)
        for m in (made, numpy)
    ]
    likely = places[1] > 200
    assert likely.sum() > 110
    difference = (places[0] - places[1])[likely] / np.sqrt((places[0] + places[1])[likely])
    assert 0.7 < (difference**2).mean() < 1.35


@pytest.mark.parametrize(("mask", "random"), [(1, 0), (0.8, 0.2), (0, 1), (0.5, 0.3)])
def test_masking_mixtures(mask, random):
    ids, real, _ = batch(4000)
    made = masker(mask_share=mask, random_share=random)(ids, real)
    row, slot = np.nonzero(made["masked_lm_weights"])
    shown = made["input_ids"][row, made["masked_lm_positions"][row, slot]]
    truth = made["masked_lm_ids"][row, slot]
    masked, same = shown == VOCABULARY.mask_id, shown == truth
    for share, expected in ((masked, mask), (same, 1 - mask - random), (~masked & ~same, random)):
        assert abs(share.mean() - expected) < (0.01 if 0.001 < expected < 0.999 else 0.001)


def test_rounding_and_few_slots():
    ids, real, lengths = batch(2000, low=5)
    for probability, predictions in ((0.15, 5), (0.5, 200), (0.0, 3), (1.0, 128)):
        made = masker(predictions=predictions, masked_lm_prob=probability)(ids, real)
        counts = made["masked_lm_weights"].sum(axis=1)
        expected = [min(wanted(n, predictions, probability), n - 3) for n in lengths]
        assert counts.tolist() == expected
        np.testing.assert_array_equal(made["unmasked"], ids)


@pytest.mark.parametrize("max_ngram", [1, 2, 5])
def test_whole_words_are_whole(max_ngram):
    ids, real, lengths = batch(500)
    made = masker(do_whole_word_mask=True, max_ngram=max_ngram)(ids, real)
    for i in range(500):
        chosen = chosen_of(made, i)
        words = words_of(ids[i], real[i])
        budget = wanted(lengths[i])
        if min(map(len, words)) <= budget:
            assert all(chosen.issuperset(w) or chosen.isdisjoint(w) for w in words)
            left = [len(w) for w in words if chosen.isdisjoint(w)]
            assert not left or len(chosen) + min(left) > budget
        assert 1 <= len(chosen) <= budget


@pytest.mark.parametrize("max_ngram", [1, 3])
def test_spans_against_plain_loops(max_ngram):
    ids, real, lengths = batch(6000, low=60)
    made = masker(do_whole_word_mask=True, max_ngram=max_ngram)(ids, real)
    rng = random.Random(7)
    found, pieces = run_shares(ids, real, lambda row, words: chosen_of(made, row))
    expected, expected_pieces = run_shares(
        ids, real, lambda row, words: plain_choice(words, wanted(lengths[row]), max_ngram, rng)
    )
    np.testing.assert_allclose(found, expected, atol=0.012)
    assert abs(pieces - expected_pieces) < 0.02


def test_long_words_and_empty_rows():
    ids = np.full((3, 20), TOKENS.index("##w3"), np.int32)  # one word of 17 pieces
    ids[:, 0], ids[:, 18], ids[:, 19] = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.sep_id
    real = np.ones_like(ids)
    real[2], ids[2] = 0, 0
    for settings in ({"do_whole_word_mask": True}, {"max_ngram": 3}, {}):
        made = masker(20, 5, **settings)(ids, real)
        assert made["masked_lm_weights"].sum(axis=1).tolist() == [3, 3, 0]
        assert not made["input_ids"][2].any()


def test_seeds():
    ids, real, _ = batch(200)
    mask = masker(max_ngram=3)
    first, again, other, third = (
        mask(ids, real, seed) for seed in ((1, 2), (1, 2), (2, 2), (1, 3))
    )
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
    for changed in (other, third):
        assert (first["input_ids"] != changed["input_ids"]).any(axis=1).mean() > 0.9
