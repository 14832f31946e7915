"""Masked-LM targets: which pieces are masked, and what stands in their place.

The paper, section 3.1 and A.1: 15 % of the pieces are predicted; of these 80 % become [MASK],
10 % a random piece, 10 % stay; its appendix C.2 compares other shares. As in the original
release, an instance of `len` pieces (counting [CLS] and [SEP]) gets
n = min(max_predictions, max(1, round(probability · len))) of them, never [CLS] or [SEP]; `round`
goes to the nearest even number on a tie, as Python 3's does (so 1.5 → 2, 4.5 → 4, 7.5 → 8).
Unlike the original, a random piece is never a special or unused one.

Vectorised over batches of instances with NumPy.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.errors import DataError

MASK_SHARE = 0.8
RANDOM_SHARE = 0.1
_RESERVED = re.compile(r"^\[(?:PAD|UNK|CLS|SEP|MASK|unused\d+)\]$|^<[A-Za-z]{1,4}>$|^\s*$")


@dataclass(frozen=True, slots=True)
class MaskingVocabulary:
    """What masking needs to know of a vocabulary.

    Attributes:
        mask_id, cls_id, sep_id: Ids of the special pieces.
        continues_word: bool [vocab_size], the pieces that start with "##".
        replacements: int32 [r], ids that may stand in as a random piece.
    """

    mask_id: int
    cls_id: int
    sep_id: int
    continues_word: np.ndarray
    replacements: np.ndarray

    @classmethod
    def from_tokens(cls, vocab: list[str], source: str = "the vocabulary") -> "MaskingVocabulary":
        """From the list of pieces, where the index is the id.

        Raises:
            DataError: If [MASK], [CLS] or [SEP] is missing, or there are only special pieces.
        """
        ids = {token: i for i, token in enumerate(vocab)}
        missing = [t for t in ("[CLS]", "[SEP]", "[MASK]") if t not in ids]
        if missing:
            raise DataError(
                f"{source} has no {' and no '.join(missing)} among its {len(vocab):,} lines."
                " Pre-training data needs these pieces; use a BERT vocabulary (vocab.txt, one"
                " piece per line)."
            )
        reserved = np.array([bool(_RESERVED.match(token)) for token in vocab])
        replacements = np.flatnonzero(~reserved).astype(np.int32)
        if len(replacements) == 0:
            raise DataError(f"{source} holds special pieces only; use a complete BERT vocabulary.")
        return cls(
            ids["[MASK]"],
            ids["[CLS]"],
            ids["[SEP]"],
            np.array([token.startswith("##") for token in vocab]),
            replacements,
        )

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> "MaskingVocabulary":
        """From a `data.tokenization.Tokenizer`."""
        return cls.from_tokens(list(tokenizer.vocab), str(tokenizer.vocab_file))


def number_to_predict(lengths: np.ndarray, probability: float, max_predictions: int) -> np.ndarray:
    """How many pieces of instances of `lengths` (with [CLS] and [SEP]) are predicted; int64."""
    wanted = np.rint(np.asarray(lengths) * probability).astype(np.int64)
    return np.minimum(max_predictions, np.maximum(1, wanted))


def check_shares(mask_share: float, random_share: float) -> None:
    """Raises DataError unless both are from 0 to 1 and leave a rest from 0 to 1."""
    for name, share in (("mask_share", mask_share), ("random_share", random_share)):
        if not 0 <= share <= 1:
            raise DataError(f"{name} is {share}, but a share from 0 to 1 was expected.")
    if mask_share + random_share > 1 + 1e-9:
        raise DataError(
            f"mask_share {mask_share} and random_share {random_share} make"
            f" {mask_share + random_share:g}, but they are shares of the predicted pieces, of which"
            f" the rest stay as they are: their sum must not be above 1. Lower one of them."
        )


def mask_instances(
    input_ids: np.ndarray,
    input_mask: np.ndarray,
    vocabulary: MaskingVocabulary,
    max_predictions: int,
    probability: float,
    whole_words: bool,
    rng: np.random.Generator,
    mask_share: float = MASK_SHARE,
    random_share: float = RANDOM_SHARE,
) -> dict[str, np.ndarray]:
    """Masks a batch.

    Args:
        input_ids: int32 [n, S], unmasked; not changed.
        input_mask: integers [n, S], 1 for real pieces.
        vocabulary: Of the ids.
        max_predictions: P, the width of the results.
        probability: Share of the pieces to predict.
        whole_words: Mask all pieces of a word or none, as the original's do_whole_word_mask:
            words in random order, those that no longer fit are skipped. An instance that has
            only words longer than its n masks n single pieces (the original: none).
        rng: Source of all randomness.
        mask_share, random_share: Shares of the predicted pieces that become [MASK] and a random
            piece; the rest stay as they are (paper, appendix C.2). See `check_shares`.

    Returns:
        input_ids int32 [n, S] with the masks; masked_lm_positions (ascending), masked_lm_ids
        int32 [n, P] and masked_lm_weights float32 [n, P], all padded with 0.
    """
    real = input_mask.astype(bool)
    candidates = real & (input_ids != vocabulary.cls_id) & (input_ids != vocabulary.sep_id)
    wanted = number_to_predict(real.sum(axis=1), probability, max_predictions)
    if whole_words:
        positions, weights = _choose_words(
            candidates, vocabulary.continues_word[input_ids], wanted, max_predictions, rng
        )
    else:
        positions, weights = _choose_pieces(candidates, wanted, max_predictions, rng)
    rows = np.arange(len(input_ids))[:, None]
    labels = np.where(weights, input_ids[rows, positions], 0).astype(np.int32)
    u = rng.random(positions.shape, np.float32)
    drawn = vocabulary.replacements[_below(len(vocabulary.replacements), positions.shape, rng)]
    kept_or_random = np.where(u < mask_share + random_share, drawn, labels)
    inserted = np.where(u < mask_share, np.int32(vocabulary.mask_id), kept_or_random)
    masked = input_ids.copy()
    row, slot = np.nonzero(weights)
    masked[row, positions[row, slot]] = inserted[row, slot]
    return {
        "input_ids": masked,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights.astype(np.float32),
    }


def _below(limit: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, limit, shape, dtype=np.uint32)


def _shuffled_positions(
    eligible: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Each row's eligible positions in random order, then junk; and how many they are.

    Random bits above, the position below: sorting these words is sorting by random keys.
    """
    width = eligible.shape[1]
    bits = max(1, (width - 1).bit_length())
    keys = rng.integers(0, 2 ** (32 - bits) - 1, eligible.shape, dtype=np.uint32)
    keys = (keys << np.uint32(bits)) | np.arange(width, dtype=np.uint32)
    keys[~eligible] = np.iinfo(np.uint32).max
    keys.sort(axis=1)
    return (keys & np.uint32(2**bits - 1)).astype(np.int32), eligible.sum(axis=1)


def _choose_pieces(
    candidates: np.ndarray, wanted: np.ndarray, max_predictions: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns sorted positions int32 [n, P] (0 in unused slots) and used bool [n, P]."""
    order, available = _shuffled_positions(candidates, rng)
    width = candidates.shape[1]
    if width < max_predictions:
        order = np.pad(order, ((0, 0), (0, max_predictions - width)))
    count = np.minimum(wanted, available)
    used = np.arange(max_predictions)[None] < count[:, None]
    positions = np.where(used, order[:, :max_predictions], np.iinfo(np.int32).max)
    positions.sort(axis=1)
    return np.where(used, positions, 0).astype(np.int32), used


def _choose_words(
    candidates: np.ndarray,
    continues: np.ndarray,
    wanted: np.ndarray,
    max_predictions: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    n, width = candidates.shape
    column = np.arange(width, dtype=np.int32)
    starts = candidates.copy()
    starts[:, 1:] &= ~(continues[:, 1:] & candidates[:, :-1])
    # A word ends where the next one starts or the candidates end.
    borders = np.where(starts | ~candidates, column, np.int32(width))
    following = np.full((n, width), width, np.int32)
    following[:, :-1] = np.minimum.accumulate(borders[:, :0:-1], axis=1)[:, ::-1]
    lengths = following - column

    order, words = _shuffled_positions(starts, rng)
    order = order[:, : int(words.max(initial=1))]
    sizes = np.ascontiguousarray(np.take_along_axis(lengths, order, axis=1).T)
    exists = np.arange(order.shape[1])[:, None] < words[None]
    chosen = np.zeros(sizes.shape, bool)
    total = np.zeros(n, np.int64)
    # Word by word in random order, all instances at once.
    for k in range(len(sizes)):
        fits = exists[k] & (total + sizes[k] <= wanted)
        total += sizes[k] * fits
        chosen[k] = fits
        if (total == wanted).all():
            break
    chosen_starts = np.zeros((n, width), bool)
    rank, row = np.nonzero(chosen)
    chosen_starts[row, order[row, rank]] = True
    start_of = np.maximum.accumulate(np.where(starts, column, 0), axis=1)
    selected = candidates & np.take_along_axis(chosen_starts, start_of, axis=1)

    positions = np.zeros((n, max_predictions), np.int32)
    row, position = np.nonzero(selected)
    slot = np.arange(len(row)) - np.concatenate([[0], np.cumsum(total)])[row]
    positions[row, slot] = position
    used = np.arange(max_predictions)[None] < total[:, None]
    empty = np.flatnonzero(total == 0)
    if len(empty):
        positions[empty], used[empty] = _choose_pieces(
            candidates[empty], wanted[empty], max_predictions, rng
        )
    return positions, used
