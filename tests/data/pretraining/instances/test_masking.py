"""Masking against the paper's shares and plain-Python rules."""

import random

import numpy as np
import pytest

from data.errors import DataError
from data.pretraining.instances import word_spans
from data.pretraining.instances.masking import (
    MaskingVocabulary,
    MaskSettings,
    check_mask_shares,
    number_to_predict,
)
from tests.data.pretraining.instances.masks import (
    FIRST,
    SPECIAL,
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


@pytest.mark.parametrize(("whole_words", "max_ngram"), [(False, 1), (True, 1), (False, 3)])
def test_against_the_papers_shares(whole_words, max_ngram):
    ids, mask, lengths = batch(20_000)
    made = mask_instances(
        ids,
        mask,
        VOCABULARY,
        20,
        0.15,
        whole_words,
        np.random.default_rng(1),
        max_ngram=max_ngram,
    )
    assert check_mixture(ids, made) > 150_000
    assert made["input_ids"].dtype == np.int32
    counts = made["masked_lm_weights"].sum(axis=1)
    expected = [wanted(n) for n in lengths]
    if whole_words or max_ngram > 1:
        assert (counts <= expected).all() and (counts >= 1).all()
        assert counts.sum() > 0.95 * sum(expected)
    else:
        assert counts.tolist() == expected


# The rows of the paper's appendix C.2.
@pytest.mark.parametrize(
    ("mask", "random"), [(0.8, 0.1), (1, 0), (0.8, 0), (0.8, 0.2), (0, 0.2), (0, 1), (0, 0)]
)
def test_masking_mixtures(mask, random):
    ids, real, _ = batch(4000)
    check_mask_shares(mask, random)
    made = mask_instances(
        ids, real, VOCABULARY, 20, 0.15, False, np.random.default_rng(1), mask, random
    )
    row, slot = np.nonzero(made["masked_lm_weights"])
    shown = made["input_ids"][row, made["masked_lm_positions"][row, slot]]
    truth = made["masked_lm_ids"][row, slot]
    masked, same = shown == VOCABULARY.mask_id, shown == truth
    for share, expected in ((masked, mask), (same, 1 - mask - random), (~masked & ~same, random)):
        assert abs(share.mean() - expected) < (0.01 if 0.001 < expected < 0.999 else 0.001)
    # The choice of pieces doesn't depend on the mixture.
    usual = mask_instances(ids, real, VOCABULARY, 20, 0.15, False, np.random.default_rng(1))
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        np.testing.assert_array_equal(made[name], usual[name])
    assert (made["input_ids"] == usual["input_ids"]).all() == ((mask, random) == (0.8, 0.1))


@pytest.mark.parametrize(
    ("mask", "random", "message"),
    [
        (-0.1, 0.1, r"mask_share is -0\.1"),
        (0.8, -0.1, r"random_share is -0\.1"),
        (0.8, float("nan"), "random_share is nan"),
        (0.8, 0.3, r"mask_share 0\.8 and random_share 0\.3 make 1\.1"),
    ],
)
def test_shares_out_of_range(mask, random, message):
    with pytest.raises(DataError, match=message):
        check_mask_shares(mask, random)


def test_every_place_is_as_likely():
    ids, mask, _ = batch(20_000, width=32, low=32)
    ids[:, 1:-1][ids[:, 1:-1] == VOCABULARY.sep_id] = FIRST
    made = mask_instances(ids, mask, VOCABULARY, 20, 0.15, False, np.random.default_rng(2))
    counts = np.bincount(made["masked_lm_positions"][made["masked_lm_weights"] == 1], minlength=32)
    assert counts[0] == counts[31] == 0
    inner = counts[1:31]
    assert np.abs(inner / inner.mean() - 1).max() < 0.05


@pytest.mark.parametrize("max_ngram", [1, 2, 5])
@pytest.mark.parametrize("boundaries", [False, True])
def test_whole_words_are_whole(max_ngram, boundaries):
    ids, mask, lengths = batch(500)
    continues = np.random.default_rng(8).random(ids.shape) < 0.4 if boundaries else None
    made = mask_instances(
        ids,
        mask,
        VOCABULARY,
        20,
        0.15,
        True,
        np.random.default_rng(3),
        max_ngram=max_ngram,
        continues=continues,
    )
    for i in range(500):
        chosen = chosen_of(made, i)
        words = words_of(ids[i], mask[i], None if continues is None else continues[i])
        budget = wanted(lengths[i])
        if min(map(len, words)) <= budget:
            assert all(chosen.issuperset(w) or chosen.isdisjoint(w) for w in words)
            # What is left of the budget is too little for any word left.
            left = [len(w) for w in words if chosen.isdisjoint(w)]
            assert not left or len(chosen) + min(left) > budget
        assert 1 <= len(chosen) <= budget


def test_chinese_words_by_given_boundaries():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"使用语言模型来预测下一个词"]
    vocabulary = MaskingVocabulary.from_tokens(vocab)
    #         使用 | 语言 | 模型 | 来 | 预测 | 下一个 | 词
    continues = [0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0]
    row = [2, *range(5, 18), 3]
    ids = np.tile(np.array(row, np.int32), (3000, 1))
    given = np.tile(np.array([0, *continues, 0], bool), (3000, 1))
    settings = (np.ones_like(ids), vocabulary, 4, 0.2, True, np.random.default_rng(0))
    starts = [1, 3, 5, 7, 8, 10, 13]
    words = [set(range(a, b)) for a, b in zip(starts, [*starts[1:], 14], strict=True)]
    made = mask_instances(ids, *settings, continues=given)
    seen = set()
    for i in range(3000):
        chosen = chosen_of(made, i)
        parts = [word for word in words if word & chosen]
        assert set().union(*parts) == chosen and 1 <= len(chosen) <= 3
        seen.update(map(min, parts))
    assert seen == set(starts)
    # Without boundaries a character is a word.
    alone = mask_instances(ids, *settings)
    assert (alone["masked_lm_weights"].sum(axis=1) == 3).all()
    assert any(chosen_of(alone, i) & {1, 2} == {1} for i in range(200))


def test_lengths_of_units():
    """1/n up to the longest, and cut at the border between two segments."""
    n, width = 2000, 130
    candidates = np.ones((n, width), bool)
    candidates[:, [0, 64, 129]] = False
    for longest in (1, 2, 3, 6):
        units = word_spans.unit_starts(candidates, candidates, longest, np.random.default_rng(9))
        assert units[:, [1, 65]].all() and not units[~candidates].any()
        # A unit's length, of those that begin so early that none is cut.
        row, column = np.nonzero(units[:, :58])
        lengths = [np.argmax(units[r, c + 1 : c + 7]) + 1 for r, c in zip(row, column, strict=True)]
        found = np.bincount(lengths, minlength=longest + 1)[1:] / len(lengths)
        shares = 1 / np.arange(1, longest + 1)
        assert len(found) == longest and len(lengths) > 40_000
        np.testing.assert_allclose(found, shares / shares.sum(), atol=0.008)


@pytest.mark.parametrize("max_ngram", [2, 4])
def test_spans_against_plain_loops(max_ngram):
    ids, mask, lengths = batch(6000, low=60)
    made = mask_instances(
        ids, mask, VOCABULARY, 20, 0.15, False, np.random.default_rng(6), max_ngram=max_ngram
    )
    rng = random.Random(7)
    found, pieces = run_shares(ids, mask, lambda row, words: chosen_of(made, row))
    expected, expected_pieces = run_shares(
        ids, mask, lambda row, words: plain_choice(words, wanted(lengths[row]), max_ngram, rng)
    )
    np.testing.assert_allclose(found, expected, atol=0.012)
    assert abs(pieces - expected_pieces) < 0.02
    single, _ = run_shares(
        ids, mask, lambda row, words: plain_choice(words, wanted(lengths[row]), 1, rng)
    )
    assert abs(single[0] - found[0]) > 0.1  # the comparison would see another rule


@pytest.mark.parametrize("max_ngram", [1, 2, 10])
def test_budget_is_kept_where_words_are_one_piece(max_ngram):
    ids, mask, lengths = batch(2000)
    made = mask_instances(
        ids,
        mask,
        VOCABULARY,
        20,
        0.15,
        True,
        np.random.default_rng(5),
        max_ngram=max_ngram,
        continues=np.zeros(ids.shape, bool),
    )
    assert made["masked_lm_weights"].sum(axis=1).tolist() == [wanted(n) for n in lengths]


def test_every_place_is_as_likely_in_spans():
    ids, mask, _ = batch(20_000, width=128, low=128)
    ids[:, 1:-1] = FIRST + 1  # words of one piece
    made = mask_instances(
        ids, mask, VOCABULARY, 20, 0.15, False, np.random.default_rng(2), max_ngram=3
    )
    counts = np.bincount(made["masked_lm_positions"][made["masked_lm_weights"] == 1], minlength=128)
    assert counts[0] == counts[127] == 0 and counts.sum() == 20_000 * 19
    inner = counts[1:127]
    assert np.abs(inner / inner.mean() - 1).max() < 0.09


@pytest.mark.parametrize("width", [9, 42, 100])
def test_any_length(width):
    """Lengths that are no powers of two, and rows with few words beside rows with many."""
    ids, mask, lengths = batch(300, width)
    for max_ngram in (1, 3):
        made = mask_instances(
            ids, mask, VOCABULARY, 20, 0.15, True, np.random.default_rng(2), max_ngram=max_ngram
        )
        for i in range(300):
            chosen = chosen_of(made, i)
            words = words_of(ids[i], mask[i])
            assert 1 <= len(chosen) <= wanted(lengths[i])
            if min(map(len, words)) <= wanted(lengths[i]):
                assert all(chosen.issuperset(w) or chosen.isdisjoint(w) for w in words)


def test_only_long_words_still_give_predictions():
    ids = np.full((3, 20), FIRST, np.int32)  # "##w0": one word of 17 pieces
    ids[:, 0], ids[:, 18], ids[:, 19] = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.sep_id
    mask = np.ones_like(ids)
    made = mask_instances(ids, mask, VOCABULARY, 5, 0.15, True, np.random.default_rng(4))
    assert made["masked_lm_weights"].sum(axis=1).tolist() == [3, 3, 3]


def test_rounding_is_to_even():
    assert number_to_predict(np.array([2, 10, 30, 50, 70, 128]), 0.15, 20).tolist() == [
        1, 2, 4, 8, 10, 19,
    ]  # fmt: skip
    assert number_to_predict(np.array([128]), 0.15, 5).tolist() == [5]
    assert number_to_predict(np.array([128]), 0.0, 5).tolist() == [1]


@pytest.mark.parametrize("whole_words", [False, True])
def test_more_slots_than_pieces(whole_words):
    ids, mask, lengths = batch(50, width=8)
    rng = np.random.default_rng(5)
    made = mask_instances(
        ids, mask, VOCABULARY, 12, 1.0, whole_words, rng, max_ngram=1 + whole_words
    )
    assert made["masked_lm_positions"].shape == (50, 12)
    counts = made["masked_lm_weights"].sum(axis=1)
    np.testing.assert_array_equal(counts, lengths - 3)


def test_vocabularies():
    assert TOKENS[VOCABULARY.replacements[-1]] == "]"
    with pytest.raises(DataError, match=r"has no \[MASK\] among"):
        MaskingVocabulary.from_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    with pytest.raises(DataError, match="special pieces only"):
        MaskingVocabulary.from_tokens(SPECIAL)


def test_settings():
    settings = MaskSettings(VOCABULARY, do_whole_word_mask=True)
    assert str(settings) == "0.15 of the pieces as whole words, 0.8 [MASK] and 0.1 random"
    assert "spans of 1 to 3 words" in str(MaskSettings(VOCABULARY, max_ngram=3))
    for changes, message in (
        ({"masked_lm_prob": 1.5}, r"masked_lm_prob is 1\.5"),
        ({"mask_share": 0.95}, "must not be above 1"),
        ({"max_ngram": 0}, "max_ngram is 0"),
    ):
        with pytest.raises(DataError, match=message):
            MaskSettings(VOCABULARY, **changes)
