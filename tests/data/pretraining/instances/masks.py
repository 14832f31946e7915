"""What the tests of masking share: instances, a vocabulary, and plain-Python rules."""

import collections
import random

import numpy as np

from data.pretraining.instances import masking
from data.pretraining.instances.masking import MaskingVocabulary, MaskSettings

SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<S>"]
TOKENS = SPECIAL + [("##" if i % 3 == 0 else "") + f"w{i}" for i in range(2000)] + ["[", "]"]
VOCABULARY = MaskingVocabulary.from_tokens(TOKENS)
FIRST = len(SPECIAL)


def mask_instances(
    ids,
    mask,
    vocabulary,
    max_predictions,
    probability,
    whole_words,
    rng,
    mask_share=0.8,
    random_share=0.1,
    max_ngram=1,
    continues=None,
):
    """`masking.mask_instances` with settings one by one."""
    shares = probability, mask_share, random_share
    settings = MaskSettings(vocabulary, *shares, whole_words, max_ngram)
    return masking.mask_instances(ids, mask, settings, max_predictions, rng, continues)


def batch(n=4000, width=128, seed=0, low=5):
    """input_ids, input_mask int32 [n, width] of two segments each; lengths [n]."""
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


def wanted(length, most=20, probability=0.15):
    """How many pieces of an instance are predicted."""
    return min(most, max(1, round(probability * int(length))))


def words_of(ids, mask, continues=None):
    """Lists of positions that make words."""
    words = []
    for i, (piece, real) in enumerate(zip(ids, mask, strict=True)):
        if not real or piece in (VOCABULARY.cls_id, VOCABULARY.sep_id):
            continue
        goes_on = TOKENS[piece].startswith("##") if continues is None else continues[i]
        if words and goes_on and words[-1][-1] == i - 1:
            words[-1].append(i)
        else:
            words.append([i])
    return words


def chosen_of(made, row):
    """Positions predicted in a row, a set."""
    used = np.asarray(made["masked_lm_weights"][row]) == 1
    return set(np.asarray(made["masked_lm_positions"][row])[used].tolist())


def plain_choice(words, budget, max_ngram, rng: random.Random):
    """Spans of words by loops, as `word_spans.choose_words` chooses them; a set of positions."""
    lengths = range(1, max_ngram + 1)
    shares = [1 / n for n in lengths]
    units, left = [], 0
    for number, word in enumerate(words):
        after_border = number > 0 and words[number - 1][-1] != word[0] - 1
        if left == 0:
            units.append([])
            left = rng.choices(lengths, shares)[0]
        elif after_border:
            units.append([])
        units[-1].append(word)
        left -= 1
    rng.shuffle(units)
    chosen = set()
    for unit in units:
        for word in unit:
            if len(chosen) + len(word) <= budget:
                chosen.update(word)
    if not chosen:
        places = [place for word in words for place in word]
        chosen = set(rng.sample(places, min(budget, len(places))))
    return chosen


def run_lengths(words, chosen):
    """Counter of the lengths, in words, of the runs of chosen words."""
    counts = collections.Counter()
    run = 0
    for number, word in enumerate(words):
        after_border = number > 0 and words[number - 1][-1] != word[0] - 1
        if run and (after_border or word[0] not in chosen):
            counts[run] += 1
            run = 0
        run += word[0] in chosen
    counts[run] += run > 0
    return counts


def run_shares(ids, mask, choose, most=8):
    """Shares of the runs of 1, 2, …, most or more words, and the mean number of pieces.

    `choose` maps a row's number and words to the positions chosen.
    """
    counts, pieces = collections.Counter(), 0
    for row in range(len(ids)):
        words = words_of(ids[row], mask[row])
        chosen = choose(row, words)
        pieces += len(chosen)
        counts += run_lengths(words, chosen)
    total = sum(counts.values())
    shares = [counts[n] / total for n in range(1, most)]
    return np.array([*shares, 1 - sum(shares)]), pieces / len(ids)


def check_mixture(ids, made, mask_share=0.8, random_share=0.1, tolerance=0.005):
    """Asserts labels, weights, order and what stands in the places; how many these are."""
    positions, labels = made["masked_lm_positions"], made["masked_lm_ids"]
    used = made["masked_lm_weights"] == 1
    assert {k: v.dtype for k, v in made.items() if k.startswith("masked")} == {
        "masked_lm_positions": np.int32,
        "masked_lm_ids": np.int32,
        "masked_lm_weights": np.float32,
    }
    row, slot = np.nonzero(used)
    np.testing.assert_array_equal(labels[row, slot], ids[row, positions[row, slot]])
    assert not positions[~used].any() and not labels[~used].any()
    assert (made["masked_lm_weights"][~used] == 0).all()
    assert (np.diff(np.where(used, positions, 10**6), axis=1)[used[:, 1:]] > 0).all()
    assert not np.isin(labels[used], [VOCABULARY.cls_id, VOCABULARY.sep_id, 0]).any()

    shown = made["input_ids"][row, positions[row, slot]]
    truth = labels[row, slot]
    n = len(truth)
    masked, same = shown == VOCABULARY.mask_id, shown == truth
    # A random piece is the true one now and then.
    assert abs(masked.mean() - mask_share) < tolerance
    assert abs(same.mean() - (1 - mask_share - random_share)) < tolerance
    other = shown[~masked & ~same]
    assert abs(len(other) / n - random_share) < tolerance
    # Random pieces: none special or unused, all others about equally.
    assert other.min() >= FIRST
    counts = np.bincount(other, minlength=len(TOKENS))[FIRST:]
    assert abs(((counts - counts.mean()) ** 2).mean() / counts.mean() - 1) < 0.2
    # Nothing else has changed.
    untouched = np.ones(ids.shape, bool)
    untouched[row, positions[row, slot]] = False
    np.testing.assert_array_equal(made["input_ids"][untouched], ids[untouched])
    return n
