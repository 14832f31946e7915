"""Taking out of a vocabulary what a corpus doesn't need, so that its texts keep their pieces.

Greedy matching takes the longest piece that the vocabulary has at each place of a word. If all
pieces stay that it took in the words of a corpus, it takes them again: what is longer wasn't there
before, and nothing is added. A word that is [UNK] needs more than that token. Matching took some
pieces of it before it found none; without one of these a shorter one might be taken, and the word
might be cut to its end. So they stay as well, and the word is [UNK] as before.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError, error_list
from data.pretraining import corpus
from data.tokenization import vocabulary
from data.tokenization.learning import learner
from data.tokenization.learning.extension import is_unused
from data.tokenization.normalizer import Normalizer
from data.tokenization.offsets import text_slices
from data.tokenization.wordpiece import MAX_CHARS_PER_WORD, WordPiece

_SHOWN = 10
_REMEMBERED_WORDS = 100_000

Cut = Callable[[Sequence[str]], tuple[np.ndarray, list[bytes]]]
"""Texts → the ids of their pieces, one text after the other, and their words that are [UNK]."""


@dataclasses.dataclass(frozen=True)
class PrunedVocabulary:
    """What is left of a vocabulary.

    Attributes:
        tokens: Index = new id.
        kept_ids: Their ids in the vocabulary before, ascending.
        size_before: How many tokens that had.
        words: Of the corpus.
        same: How many of these words have the pieces that they had.
        unknown_before, unknown: How many of them are [UNK], before and now.
    """

    tokens: list[str]
    kept_ids: list[int]
    size_before: int
    words: int
    same: int
    unknown_before: int
    unknown: int

    def report(self) -> str:
        """A line for people."""
        unknown = [f"{count / self.words:.4%}" for count in (self.unknown_before, self.unknown)]
        share = "all" if self.same == self.words else f"{self.same / self.words:.4%}"
        return (
            f"{len(self.tokens)} of {self.size_before} pieces stay; {share} of the corpus's "
            f"{self.words} words are cut as before; [UNK]: {unknown[0]} of them before, "
            f"{unknown[1]} now"
        )


def prune_from_files(
    tokens: Sequence[str],
    files: Sequence[str],
    *,
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    reserved_tokens: Sequence[str] = (),
    min_frequency: int = 1,
    text_field: str = corpus.TEXT_FIELD,
) -> PrunedVocabulary:
    """Keeps what corpus files need of a vocabulary, streaming, and cuts them again to compare.

    Args:
        tokens: The vocabulary; index = id.
        files: What `data.pretraining.corpus.read_documents` reads; they are read twice.
        do_lower_case, strip_accents: As the vocabulary was made, see `Tokenizer`.
        reserved_tokens, min_frequency: See `kept_pieces`.
        text_field: The field that holds the text where a file is JSON lines.

    Raises:
        DataError: As `kept_pieces`, there are no words, or a file can't be read.
    """
    kept_pieces(tokens, np.zeros(len(tokens), np.int64), reserved_tokens)  # shows mistakes now
    normalizer = Normalizer(do_lower_case, strip_accents)

    def batches(what: str) -> Iterator[list[str]]:
        progress = corpus.CorpusProgress(files, what)
        documents = corpus.read_documents(files, text_field=text_field, on_read=progress)
        return learner.text_batches(text for each in documents for text in each.sentences)

    cut = wordpiece_cutter(tokens, normalizer)
    counts = count_pieces(tokens, batches("Counting pieces"), cut)
    if not counts.any():
        raise DataError(
            f"There are no words in {error_list(files, _SHOWN)}, so that nothing tells which "
            f"pieces are needed. Check that these are the right files and hold text."
        )
    kept = kept_pieces(tokens, counts, reserved_tokens, min_frequency)
    left = [tokens[index] for index in kept]
    logging.info("%d of %d pieces stay", len(left), len(tokens))
    compared = np.zeros(4, np.int64)
    cut_again = wordpiece_cutter(left, normalizer)
    for batch in batches("Comparing"):
        compared += _compare(tokens, left, kept, cut(batch)[0], cut_again(batch)[0])
    return PrunedVocabulary(left, kept, len(tokens), *compared.tolist())


def wordpiece_cutter(tokens: Sequence[str], normalizer: Normalizer) -> Cut:
    """The tokenization of a vocabulary, which also tells the normalised words that are [UNK]."""
    wordpiece = WordPiece(tokens)
    unk_id = vocabulary.token_ids(tokens)[vocabulary.UNK]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def cut(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        normalized = normalizer.normalize(texts)
        ids, starts, ends = wordpiece.tokenize(normalized)
        unknown = tf.where(ids.values == unk_id)[:, 0]
        places = (tf.gather(of, unknown) for of in (ids.value_rowids(), starts.values, ends.values))
        return ids.values, text_slices(normalized, *places)

    def cut_texts(texts: Sequence[str]) -> tuple[np.ndarray, list[bytes]]:
        ids, words = cut(tf.constant(texts, tf.string))
        return ids.numpy(), words.numpy().tolist()

    return cut_texts


def count_pieces(tokens: Sequence[str], batches: Iterator[Sequence[str]], cut: Cut) -> np.ndarray:
    """How often greedy matching takes each piece in texts, in words that become [UNK] as well.

    Args:
        tokens: The vocabulary.
        batches: Of texts.
        cut: Its tokenization, see `wordpiece_cutter`.

    Returns:
        int64 [tokens]. Words of more than 200 characters count as [UNK] and nothing else, since
        no piece of them is looked up.
    """
    counts = np.zeros(len(tokens), np.int64)
    known = vocabulary.token_ids(tokens)
    longest = max(map(len, tokens))
    taken = functools.lru_cache(_REMEMBERED_WORDS)(
        lambda word: pieces_taken(word.decode("utf-8"), known, longest)
    )
    for batch in batches:
        ids, unknown = cut(batch)
        counts += np.bincount(ids, minlength=len(tokens))
        for word, count in collections.Counter(unknown).items():
            np.add.at(counts, taken(word), count)
    return counts


def pieces_taken(word: str, known: Mapping[str, int], longest: int) -> list[int]:
    """The ids that greedy matching takes from the start of a word on, until it finds none.

    Args:
        word: Normalised.
        known: The vocabulary: token → id.
        longest: At least the length of its longest token.
    """
    ids: list[int] = []
    start = 0
    while start < len(word) <= MAX_CHARS_PER_WORD:
        lead = vocabulary.CONTINUATION if start else ""
        ends = range(min(len(word), start + longest), start, -1)
        end = next((end for end in ends if lead + word[start:end] in known), None)
        if end is None:
            break
        ids.append(known[lead + word[start:end]])
        start = end
    return ids


def kept_pieces(
    tokens: Sequence[str],
    counts: np.ndarray,
    reserved_tokens: Sequence[str] = (),
    min_frequency: int = 1,
) -> list[int]:
    """The ids of what stays of a vocabulary, ascending.

    That are the special tokens and others in brackets, which tokenizers may find by
    `never_split`, but for [unusedN]; `reserved_tokens`; single characters, with and without "##",
    so that other texts have few words that are [UNK]; and what occurs.

    Args:
        tokens: The vocabulary; index = id. Of a token that stands there twice the last id counts.
        counts: int [tokens]; how often each is taken, see `count_pieces`.
        reserved_tokens: Tokens to keep in any case.
        min_frequency: Pieces that are taken less often go. From 2 on, texts of the corpus may be
            cut otherwise than before.

    Raises:
        DataError: The vocabulary lacks one of `reserved_tokens`.
    """
    last = vocabulary.token_ids(tokens)
    missing = [token for token in reserved_tokens if token not in last]
    if missing:
        raise DataError(
            f"Pruning keeps tokens and adds none, and the vocabulary of {len(tokens)} tokens lacks "
            f"these of reserved_tokens: {error_list(missing, _SHOWN)}. Name tokens as it writes "
            f"them, or put them in first, with --extend."
        )
    can_occur = vocabulary.reachable_wordpieces(tokens)
    reserved = {*reserved_tokens, *vocabulary.SPECIAL_TOKENS}

    def stays(index: int, token: str) -> bool:
        if last[token] != index:
            return False
        if token in reserved or vocabulary.IN_BRACKETS.fullmatch(token):
            return token in reserved or not is_unused(token)
        is_character = len(token.removeprefix(vocabulary.CONTINUATION)) == 1
        return can_occur[index] and (is_character or counts[index] >= min_frequency)

    return [index for index, token in enumerate(tokens) if stays(index, token)]


def _compare(
    tokens: Sequence[str],
    left: Sequence[str],
    kept: Sequence[int],
    before: np.ndarray,
    now: np.ndarray,
) -> list[int]:
    """Of texts: their words, how many have the same pieces, how many were and how many are [UNK].

    Args:
        tokens, left: The vocabulary before and now.
        kept: The ids that the tokens now had before.
        before, now: The ids of the same texts' pieces in both.
    """
    now = np.asarray(kept, np.int64)[now]
    # A word is a piece that continues none, and those behind it that do.
    continues = np.array([token.startswith(vocabulary.CONTINUATION) for token in tokens])
    word_before, word_now = (np.cumsum(~continues[ids]) - 1 for ids in (before, now))
    words = int(word_before[-1]) + 1 if len(before) else 0
    sizes = [np.bincount(of, minlength=words) for of in (word_before, word_now)]
    same = sizes[0] == sizes[1]
    alike = before[same[word_before]], now[same[word_now]]
    same[word_before[same[word_before]][alike[0] != alike[1]]] = False
    unk_id = vocabulary.token_ids(tokens)[vocabulary.UNK]
    return [words, int(same.sum()), *(int((ids == unk_id).sum()) for ids in (before, now))]
