"""Masking against the paper's shares and plain-Python rules."""

import numpy as np
import pytest

from data.errors import DataError
from data.pretraining.masking import (
    MaskingVocabulary,
    check_shares,
    mask_instances,
    number_to_predict,
)

SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<S>"]
TOKENS = SPECIAL + [("##" if i % 3 == 0 else "") + f"w{i}" for i in range(2000)] + ["[", "]"]
VOCABULARY = MaskingVocabulary.from_tokens(TOKENS)
FIRST = len(SPECIAL)


def batch(n=4000, width=128, seed=0, low=5):
    rng = np.random.default_rng(seed)
    ids = rng.integers(FIRST, len(TOKENS), (n, width)).astype(np.int32)
    lengths = rng.integers(low, width + 1, n)
    first_sep = rng.integers(2, lengths - 2)
    column = np.arange(width)
    ids[:, 0] = VOCABULARY.cls_id
    ids[np.arange(n), first_sep] = VOCABULARY.sep_id
    ids[np.arange(n), lengths - 1] = VOCABULARY.sep_id
    mask = (column < lengths[:, None]).astype(np.int32)
    return ids * mask, mask, lengths


@pytest.mark.parametrize("whole_words", [False, True])
def test_against_the_papers_shares(whole_words):
    ids, mask, lengths = batch(20_000)
    made = mask_instances(ids, mask, VOCABULARY, 20, 0.15, whole_words, np.random.default_rng(1))
    positions, labels = made["masked_lm_positions"], made["masked_lm_ids"]
    used = made["masked_lm_weights"] == 1
    assert {k: v.dtype for k, v in made.items()} == {
        "input_ids": np.int32,
        "masked_lm_positions": np.int32,
        "masked_lm_ids": np.int32,
        "masked_lm_weights": np.float32,
    }
    counts = used.sum(axis=1)
    expected = [min(20, max(1, round(0.15 * int(n)))) for n in lengths]
    if whole_words:
        assert (counts <= expected).all() and (counts >= 1).all()
        assert counts.sum() > 0.95 * sum(expected)
    else:
        assert counts.tolist() == expected
    row, slot = np.nonzero(used)
    np.testing.assert_array_equal(labels[row, slot], ids[row, positions[row, slot]])
    assert not positions[~used].any() and not labels[~used].any()
    assert (np.diff(np.where(used, positions, 10**6), axis=1)[used[:, 1:]] > 0).all()
    assert not np.isin(labels[used], [VOCABULARY.cls_id, VOCABULARY.sep_id, 0]).any()

    shown = made["input_ids"][row, positions[row, slot]]
    truth = labels[row, slot]
    n = len(truth)
    assert n > 150_000
    assert abs((shown == VOCABULARY.mask_id).mean() - 0.8) < 0.005
    assert abs((shown == truth).mean() - 0.1) < 0.004
    other = shown[(shown != VOCABULARY.mask_id) & (shown != truth)]
    assert abs(len(other) / n - 0.1) < 0.004
    # Random pieces: none special or unused, all others about equally.
    assert other.min() >= FIRST
    counts = np.bincount(other, minlength=len(TOKENS))[FIRST:]
    assert abs(((counts - counts.mean()) ** 2).mean() / counts.mean() - 1) < 0.2
    # Nothing else has changed.
    untouched = np.ones(ids.shape, bool)
    untouched[row, positions[row, slot]] = False
    np.testing.assert_array_equal(made["input_ids"][untouched], ids[untouched])


# The rows of the paper's appendix C.2.
@pytest.mark.parametrize(
    ("mask", "random"), [(0.8, 0.1), (1, 0), (0.8, 0), (0.8, 0.2), (0, 0.2), (0, 1), (0, 0)]
)
def test_masking_mixtures(mask, random):
    ids, real, _ = batch(4000)
    check_shares(mask, random)
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
        check_shares(mask, random)


def test_every_place_is_as_likely():
    ids, mask, _ = batch(20_000, width=32, low=32)
    ids[:, 1:-1][ids[:, 1:-1] == VOCABULARY.sep_id] = FIRST
    made = mask_instances(ids, mask, VOCABULARY, 20, 0.15, False, np.random.default_rng(2))
    counts = np.bincount(made["masked_lm_positions"][made["masked_lm_weights"] == 1], minlength=32)
    assert counts[0] == counts[31] == 0
    inner = counts[1:31]
    assert np.abs(inner / inner.mean() - 1).max() < 0.05


def words_of(ids, mask):
    """Plain Python: lists of positions that make words."""
    words = []
    for i, (piece, real) in enumerate(zip(ids, mask, strict=True)):
        if not real or piece in (VOCABULARY.cls_id, VOCABULARY.sep_id):
            continue
        if words and TOKENS[piece].startswith("##") and words[-1][-1] == i - 1:
            words[-1].append(i)
        else:
            words.append([i])
    return words


def test_whole_words_are_whole():
    ids, mask, lengths = batch(500)
    made = mask_instances(ids, mask, VOCABULARY, 20, 0.15, True, np.random.default_rng(3))
    for i in range(500):
        chosen = set(made["masked_lm_positions"][i][made["masked_lm_weights"][i] == 1].tolist())
        words = words_of(ids[i], mask[i])
        wanted = min(20, max(1, round(0.15 * int(lengths[i]))))
        if min(map(len, words)) <= wanted:
            assert all(chosen.issuperset(w) or chosen.isdisjoint(w) for w in words)
            # What is left of the budget is too little for any word left.
            left = [len(w) for w in words if chosen.isdisjoint(w)]
            assert not left or len(chosen) + min(left) > wanted


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
    made = mask_instances(ids, mask, VOCABULARY, 12, 1.0, whole_words, np.random.default_rng(5))
    assert made["masked_lm_positions"].shape == (50, 12)
    counts = made["masked_lm_weights"].sum(axis=1)
    np.testing.assert_array_equal(counts, lengths - 3)


def test_vocabularies():
    assert TOKENS[VOCABULARY.replacements[-1]] == "]"
    with pytest.raises(DataError, match=r"has no \[MASK\] among"):
        MaskingVocabulary.from_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    with pytest.raises(DataError, match="special pieces only"):
        MaskingVocabulary.from_tokens(SPECIAL)
