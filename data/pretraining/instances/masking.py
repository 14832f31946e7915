"""Masked-LM targets: which pieces are masked, and what stands in their place.

The paper, section 3.1 and A.1: 15 % of the pieces are predicted; of these 80 % become [MASK],
10 % a random piece, 10 % stay; its appendix C.2 compares other shares. As in the original
release, an instance of `len` pieces (counting [CLS] and [SEP]) gets
n = min(max_predictions, max(1, round(probability · len))) of them, never [CLS] or [SEP]; `round`
goes to the nearest even number on a tie, as Python 3's does (so 1.5 → 2, 4.5 → 4, 7.5 → 8).
Unlike the original, a random piece is never a special or unused one.

Vectorised over batches of instances with NumPy; `graph_masking.py` masks in TensorFlow.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.errors import DataError
from data.pretraining.flags import MASKING
from data.pretraining.instances import word_spans
from data.tokenization.vocabulary import load_vocab

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
    rounded = np.rint(np.asarray(lengths) * probability).astype(np.int64)
    return np.minimum(max_predictions, np.maximum(1, rounded))


def check_mask_shares(mask_share: float, random_share: float) -> None:
    """Raises DataError unless both are from 0 to 1 and leave a rest from 0 to 1."""
    for name, share in (("mask_share", mask_share), ("random_share", random_share)):
        check_mask_share(name, share)
    if mask_share + random_share > 1 + 1e-9:
        raise DataError(
            f"mask_share {mask_share} and random_share {random_share} make"
            f" {mask_share + random_share:g}, but they are shares of the predicted pieces, of which"
            f" the rest stay as they are: their sum must not be above 1. Lower one of them."
        )


def check_mask_share(name: str, share: float) -> None:
    """Raises DataError for what isn't a share."""
    if not 0 <= share <= 1:
        raise DataError(f"{name} is {share}, but a share from 0 to 1 was expected.")


@dataclass(frozen=True, slots=True)
class MaskSettings:
    """How masks are made.

    Attributes:
        vocabulary: Of the ids; None only to check the others.
        masked_lm_prob: Share of the pieces to predict.
        mask_share, random_share: Shares of the predicted pieces that become [MASK] and a random
            piece; the rest stay as they are (paper, appendix C.2).
        do_whole_word_mask: Mask all pieces of a word or none: words in random order, those that no
            longer fit are skipped. An instance that has only words longer than its n masks n
            single pieces (the original: none).
        max_ngram: Above 1, spans of 1 to so many consecutive words are masked (phrases as
            ERNIE's, with the lengths of ALBERT's), whatever `do_whole_word_mask` says; see
            `word_spans.choose_words`. Never more than n pieces; fewer only if what is left is too
            little for any word left.

    Raises:
        DataError: For a share out of range or a max_ngram below 1.
    """

    vocabulary: MaskingVocabulary | None
    masked_lm_prob: float = 0.15
    mask_share: float = MASK_SHARE
    random_share: float = RANDOM_SHARE
    do_whole_word_mask: bool = False
    max_ngram: int = 1

    def __post_init__(self):
        check_mask_share("masked_lm_prob", self.masked_lm_prob)
        check_mask_shares(self.mask_share, self.random_share)
        if self.max_ngram < 1:
            raise DataError(
                f"max_ngram is {self.max_ngram}, but it is the most words that are masked as one"
                " span: 1 (no spans) or more."
            )

    @classmethod
    def from_flags(cls, values, vocab_file: str) -> "MaskSettings":
        """From the values of the flags `data.pretraining.flags.MASKING`.

        Raises:
            DataError: Flags out of range, or a vocabulary that can't be read.
        """
        vocabulary = MaskingVocabulary.from_tokens(load_vocab(vocab_file), vocab_file)
        return cls(vocabulary, **{name: getattr(values, name) for name in MASKING})

    def __str__(self) -> str:
        kind = "whole words" if self.do_whole_word_mask else "pieces"
        if self.max_ngram > 1:
            kind = f"spans of 1 to {self.max_ngram} words"
        shares = f"{self.mask_share:g} [MASK] and {self.random_share:g} random"
        return f"{self.masked_lm_prob:g} of the pieces as {kind}, {shares}"


def mask_instances(
    input_ids: np.ndarray,
    input_mask: np.ndarray,
    settings: MaskSettings,
    max_predictions: int,
    rng: np.random.Generator,
    continues: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Masks a batch.

    Args:
        input_ids: int32 [n, S], unmasked; not changed.
        input_mask: integers [n, S], 1 for real pieces.
        settings: What is masked.
        max_predictions: P, the width of the results.
        rng: Source of all randomness.
        continues: bool [n, S], the pieces that belong to the word of the piece before; default:
            those whose token starts with "##", which makes every Chinese character a word.

    Returns:
        input_ids int32 [n, S] with the masks; masked_lm_positions (ascending), masked_lm_ids
        int32 [n, P] and masked_lm_weights float32 [n, P], all padded with 0.
    """
    vocabulary = settings.vocabulary
    real = input_mask.astype(bool)
    candidates = real & (input_ids != vocabulary.cls_id) & (input_ids != vocabulary.sep_id)
    numbers = number_to_predict(real.sum(axis=1), settings.masked_lm_prob, max_predictions)
    if settings.do_whole_word_mask or settings.max_ngram > 1:
        if continues is None:
            continues = vocabulary.continues_word[input_ids]
        positions, weights = word_spans.choose_words(
            candidates, continues, numbers, max_predictions, settings.max_ngram, rng
        )
    else:
        positions, weights = word_spans.choose_pieces(candidates, numbers, max_predictions, rng)
    rows = np.arange(len(input_ids))[:, None]
    labels = np.where(weights, input_ids[rows, positions], 0).astype(np.int32)
    u = rng.random(positions.shape, np.float32)
    count = len(vocabulary.replacements)
    drawn = vocabulary.replacements[rng.integers(0, count, positions.shape, dtype=np.uint32)]
    kept_or_random = np.where(u < settings.mask_share + settings.random_share, drawn, labels)
    inserted = np.where(u < settings.mask_share, np.int32(vocabulary.mask_id), kept_or_random)
    masked = input_ids.copy()
    row, slot = np.nonzero(weights)
    masked[row, positions[row, slot]] = inserted[row, slot]
    return {
        "input_ids": masked,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights.astype(np.float32),
    }
