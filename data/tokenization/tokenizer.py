"""The one tokenizer of the project: the original's tokens, computed in the TensorFlow graph."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from data.tokenization import offsets, unicode_tables, vocabulary
from data.tokenization.never_split import NeverSplit
from data.tokenization.normalizer import Normalizer
from data.tokenization.wordpiece import WordPiece

Texts = tf.Tensor | tf.RaggedTensor | Sequence[str] | str


class Pieces(NamedTuple):
    """Pieces and where they stand in their text, all of one shape.

    Attributes:
        ids: int32.
        starts: int32, the first byte of each piece in the text as given.
        ends: int32, one past its last byte.
    """

    ids: tf.RaggedTensor | tf.Tensor
    starts: tf.RaggedTensor | tf.Tensor
    ends: tf.RaggedTensor | tf.Tensor


class WordPieces(NamedTuple):
    """Pieces of texts that came as words, both of one shape.

    Attributes:
        ids: int32.
        words: int32, the index in its text of the word that a piece belongs to.
    """

    ids: tf.RaggedTensor | tf.Tensor
    words: tf.RaggedTensor | tf.Tensor


_warn_once = functools.cache(logging.warning)


class Tokenizer:
    """WordPiece tokenization equal to the original release's (under Python 3.11).

    Broken UTF-8 is dropped, as the original drops it from byte strings.

    Works eagerly, in `tf.data` maps, and in SavedModels: keep the tokenizer as an attribute of a
    `tf.Module` and call it in the exported function. The graph uses core TensorFlow ops and
    TF Text's `FastBertNormalize` and `FastWordpieceTokenizeWithOffsets`, which TF Serving links.

    Attributes:
        vocab: list of str; index = id.
        vocab_size: Number of ids.
        vocab_file: Where the vocabulary came from, or None.
        do_lower_case: Whether case is folded.
        strip_accents: Whether accents are stripped.
        never_split: list of str, the tokens that are kept whole.
        pad_id, unk_id, cls_id, sep_id, mask_id: Ids of the special tokens.
        is_continuation: bool [vocab_size]: the piece continues a word ("##…").
    """

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool = True,
        never_split: Sequence[str] = (),
        strip_accents: bool | None = None,
    ):
        """Reads the vocabulary.

        Args:
            vocab_file: One token per line.
            do_lower_case: As the vocabulary was made: False for the cased models.
            never_split: Tokens in brackets, such as "[MASK]", that are kept whole where a text
                holds them. The original keeps none.
            strip_accents: As the vocabulary was made; None: as `do_lower_case`, which is what the
                original does.

        Raises:
            DataError: The file is missing or lacks a special token, or `never_split` names a
                token that isn't in the vocabulary or not in brackets.
        """
        tokens = vocabulary.load_vocab(vocab_file)
        contradiction = vocabulary.contradiction_of_case(tokens, do_lower_case)
        if contradiction:
            _warn_once("%s: %s", vocab_file, contradiction)
        self._set_up(tokens, do_lower_case, vocab_file, never_split, strip_accents)

    @classmethod
    def from_vocab(
        cls,
        tokens: Sequence[str],
        do_lower_case: bool = True,
        never_split: Sequence[str] = (),
        strip_accents: bool | None = None,
    ) -> "Tokenizer":
        """A tokenizer of a vocabulary in memory (index = id)."""
        vocabulary.check_special_tokens(tokens, "given as a list")
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(list(tokens), do_lower_case, None, never_split, strip_accents)
        return tokenizer

    def _set_up(
        self,
        tokens: list[str],
        do_lower_case: bool,
        vocab_file: str | None,
        never_split: Sequence[str],
        strip_accents: bool | None,
    ) -> None:
        self.vocab = tokens
        self.vocab_size = len(tokens)
        self.vocab_file = vocab_file
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self._ids = vocabulary.token_ids(tokens)
        self.pad_id = self._ids[vocabulary.PAD]
        self.unk_id = self._ids[vocabulary.UNK]
        self.cls_id = self._ids[vocabulary.CLS]
        self.sep_id = self._ids[vocabulary.SEP]
        self.mask_id = self._ids[vocabulary.MASK]
        self.is_continuation = np.array(
            [token.startswith(vocabulary.CONTINUATION) for token in tokens], bool
        )
        self.never_split = sorted(never_split)
        self._kept = NeverSplit(never_split, self._ids) if never_split else None

    # These three are made when a text comes: with pieces kept from before none may come, and they
    # take a second.

    @property
    def deleted(self) -> unicode_tables.Ranges:
        """Characters that no piece is left of, white space apart: ranges of code points."""
        return self._normalizer.deleted

    @functools.cached_property
    def _normalizer(self) -> Normalizer:
        codes = self._kept.codes if self._kept else []
        kept = "".join(sorted({*"".join(codes)}))
        return Normalizer(self.do_lower_case, self.strip_accents, kept)

    @functools.cached_property
    def _wordpiece(self) -> WordPiece:
        return WordPiece(self.vocab, self._kept.codes if self._kept else [])

    @functools.cached_property
    def _tokens(self) -> tf.Tensor:
        with tf.init_scope():
            return tf.constant(self.vocab, tf.string)

    def tokenize(self, texts: Texts) -> tf.RaggedTensor | tf.Tensor:
        """Ids of the texts, without [CLS] and [SEP].

        Args:
            texts: UTF-8 strings of any shape of known rank, ragged or not, or a list of str.

        Returns:
            int32 with one more, ragged dimension: string [N] gives a RaggedTensor [N, (pieces)],
            a single string a Tensor [pieces]. Special tokens written in a text are split like
            any other text, as the original does, except those in `never_split`.
        """
        return self._map_flat(texts, self._tokenize_flat)

    def tokenize_with_offsets(self, texts: Texts) -> Pieces:
        """Pieces with their places in the texts as given.

        The slice of the text from `starts` to `ends` holds the characters that the piece was made
        of, before lower-casing and stripping of accents. Combining marks behind a piece that are
        dropped belong to it; control characters are part of it only inside. Of a
        character that becomes several pieces (a Hangul syllable) each has the whole, and [UNK]
        has the whole word. `bytes_to_characters` in `data.tokenization.offsets` turns bytes into
        characters.

        Args:
            texts: As for `tokenize`.

        Returns:
            ids, starts and ends, each of the shape that `tokenize` returns.
        """
        return Pieces(*self._map_flat(texts, self._tokenize_flat_with_offsets))

    def tokenize_words(self, words: Texts) -> WordPieces:
        """Pieces of texts that are split into words already, as for tagging.

        Every word is tokenized on its own, so no piece belongs to two. A word that normalisation
        deletes has no piece.

        Args:
            words: string [N, (words)], ragged or a list of lists of str; or the words of one
                text, string [words]. A dense [N, words] may be padded with "".

        Returns:
            ids and words, each [N, (pieces)]; [pieces] for a single text.
        """
        if not isinstance(words, (tf.Tensor, tf.RaggedTensor)):
            words = tf.ragged.constant(words, tf.string)
        if words.shape.rank == 1:
            ids, index = self.tokenize_words(tf.RaggedTensor.from_tensor(words[tf.newaxis]))
            return WordPieces(ids.values, index.values)
        if words.shape.rank != 2:
            raise ValueError(f"words has shape {words.shape}; it has to be [N, words] or [words].")
        if isinstance(words, tf.Tensor):
            words = tf.RaggedTensor.from_tensor(words)
        pieces = self.tokenize(words.values)
        number = pieces.value_rowids()
        first = tf.gather(words.row_starts(), tf.gather(words.value_rowids(), number))
        splits = tf.gather(pieces.row_splits, words.row_splits)
        ids = tf.RaggedTensor.from_row_splits(pieces.values, splits, validate=False)
        return WordPieces(ids, ids.with_values(tf.cast(number - first, tf.int32)))

    def split_words(self, texts: Texts) -> tf.RaggedTensor | tf.Tensor:
        """The normalised words before WordPiece: as `tokenize`, but strings.

        Tokens in `never_split` are words of their own, as they are written.
        """
        return self._map_flat(texts, self._split_words_flat)

    def detokenize(
        self, ids: tf.Tensor | tf.RaggedTensor | Sequence, skip_special_tokens: bool = False
    ) -> tf.Tensor:
        """Tokens joined to text: pieces to words, words by blanks. In the graph.

        What normalisation changed stays changed: case, accents and the blanks around punctuation.

        Args:
            ids: int [N, (pieces)], ragged or not, or nested lists; or [pieces].
            skip_special_tokens: Leaves out [PAD], [CLS] and [SEP].

        Returns:
            string [N]; a scalar for [pieces].
        """
        if not isinstance(ids, (tf.Tensor, tf.RaggedTensor, np.ndarray)):
            ids = tf.ragged.constant(ids, tf.int32)
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
            if ids.shape.rank == 1:
                return self.detokenize(ids[tf.newaxis], skip_special_tokens)[0]
            ids = tf.RaggedTensor.from_tensor(ids)
        if skip_special_tokens:
            special = tf.constant([self.pad_id, self.cls_id, self.sep_id], ids.dtype)
            is_special = tf.reduce_any(ids.values[:, tf.newaxis] == special, 1)
            ids = tf.ragged.boolean_mask(ids, ids.with_values(~is_special))
        joined = tf.strings.reduce_join(tf.gather(self._tokens, ids), axis=-1, separator=" ")
        return tf.strings.regex_replace(joined, f"(^| ){vocabulary.CONTINUATION}", "")

    def ids_to_tokens(self, ids) -> list:
        """Tokens of ids given as a (nested) list, array, Tensor or RaggedTensor, same nesting."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_list()
        elif isinstance(ids, (tf.Tensor, np.ndarray)):
            ids = np.asarray(ids).tolist()
        if isinstance(ids, (list, tuple)):
            return [self.ids_to_tokens(item) for item in ids]
        return self.vocab[ids]

    def _split_words_flat(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if not self._kept:
            return self._normalizer.split_words(texts)
        words = self._normalizer.split_words(self._kept.mark(texts))
        return words.with_values(self._kept.named(words.values))

    def _tokenize_flat(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._kept:
            return self._tokenize_flat_with_offsets(texts)[0]
        ids, _, _ = self._wordpiece.tokenize(self._normalizer.normalize(texts))
        return ids

    def _tokenize_flat_with_offsets(self, texts: tf.Tensor) -> list[tf.RaggedTensor]:
        if self._kept:
            texts = self._kept.mark(texts)
        normalized, places = self._normalizer.normalize_with_places(texts)
        ids, starts, ends = self._wordpiece.tokenize(normalized)
        marks = self._normalizer.dropped_marks
        starts, ends = offsets.source_spans(texts, places, starts, ends, marks)
        values = ids.values, starts.values, ends.values
        if self._kept:
            values = self._kept.resolve(*values, self.vocab_size)
        return [ids.with_values(tf.cast(value, tf.int32)) for value in values]

    @staticmethod
    def _map_flat(texts, function):
        """Applies a function of string [N] to texts of any shape."""
        if not isinstance(texts, (tf.Tensor, tf.RaggedTensor)):
            try:
                texts = tf.convert_to_tensor(texts, tf.string)
            except ValueError:  # halves of pairs of surrogates, which UTF-8 doesn't have
                if isinstance(texts, np.ndarray):
                    texts = texts.tolist()
                texts = tf.nest.map_structure(_without_surrogates, texts)
                texts = tf.convert_to_tensor(texts, tf.string)
        if isinstance(texts, tf.RaggedTensor):
            wrap, flat = texts.with_flat_values, texts.flat_values
        else:
            rank = texts.shape.rank
            if rank is None:
                raise ValueError("The rank of texts has to be known; set it with tf.ensure_shape.")
            if rank == 0:
                wrap, flat = (lambda ragged: ragged.values), texts[tf.newaxis]
            elif rank == 1:
                wrap, flat = (lambda ragged: ragged), texts
            else:
                ragged = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
                wrap, flat = ragged.with_flat_values, ragged.flat_values
        result = function(flat)
        return [wrap(part) for part in result] if isinstance(result, list) else wrap(result)


def _without_surrogates(text):
    return text.encode("utf-8", "ignore") if isinstance(text, str) else text
