"""The one tokenizer of the project: the original's tokens, computed in the TensorFlow graph."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import pywrap_fast_wordpiece_tokenizer_model_builder

from data.tokenization import vocabulary
from data.tokenization.normalizer import Normalizer

MAX_CHARS_PER_WORD = 200
# In UTF-8 no allowed word is longer, so a word that this limit turns into [UNK] always has to be.
MAX_BYTES_PER_WORD = 4 * MAX_CHARS_PER_WORD


class Tokenizer:
    """WordPiece tokenization equal to the original release's (under Python 3.11).

    Works eagerly, in `tf.data` maps, and in SavedModels: keep the tokenizer as an attribute of a
    `tf.Module` and call it in the exported function. The graph uses core TensorFlow ops and
    TF Text's `FastBertNormalize` and `FastWordpieceTokenizeWithOffsets`, which TF Serving links.

    Attributes:
        vocab: list of str; index = id.
        vocab_size: Number of ids.
        vocab_file: Where the vocabulary came from, or None.
        do_lower_case: Whether case is folded and accents are stripped.
        pad_id, unk_id, cls_id, sep_id, mask_id: Ids of the special tokens.
        is_continuation: bool [vocab_size]: the piece continues a word ("##…").
    """

    def __init__(self, vocab_file: str, do_lower_case: bool = True):
        """Raises DataError if the file is missing or lacks a special token."""
        self._set_up(vocabulary.load_vocab(vocab_file), do_lower_case, vocab_file)

    @classmethod
    def from_vocab(cls, tokens: Sequence[str], do_lower_case: bool = True) -> "Tokenizer":
        """A tokenizer of a vocabulary in memory (index = id)."""
        vocabulary.check_special_tokens(tokens, "given as a list")
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(list(tokens), do_lower_case, None)
        return tokenizer

    def _set_up(self, tokens: list[str], do_lower_case: bool, vocab_file: str | None) -> None:
        self.vocab = tokens
        self.vocab_size = len(tokens)
        self.vocab_file = vocab_file
        self.do_lower_case = do_lower_case
        self._ids = vocabulary.token_ids(tokens)
        self.pad_id = self._ids[vocabulary.PAD]
        self.unk_id = self._ids[vocabulary.UNK]
        self.cls_id = self._ids[vocabulary.CLS]
        self.sep_id = self._ids[vocabulary.SEP]
        self.mask_id = self._ids[vocabulary.MASK]
        self.is_continuation = np.array(
            [token.startswith(vocabulary.CONTINUATION) for token in tokens], bool
        )
        self._normalizer = Normalizer(do_lower_case)
        with tf.init_scope():
            model = tf.constant(_wordpiece_model(tokens))
            self._continues = tf.constant(self.is_continuation)
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            model_buffer=model, token_out_type=tf.int32
        )

    def tokenize(self, texts: tf.Tensor | tf.RaggedTensor | Sequence[str] | str):
        """Ids of the texts, without [CLS] and [SEP].

        Args:
            texts: UTF-8 strings of any shape of known rank, ragged or not, or a list of str.

        Returns:
            int32 with one more, ragged dimension: string [N] gives a RaggedTensor [N, (pieces)],
            a single string a Tensor [pieces]. Special tokens written in a text are split like
            any other text, as the original does.
        """
        return self._map_flat(texts, self._tokenize_flat)

    def split_words(self, texts: tf.Tensor | tf.RaggedTensor | Sequence[str] | str):
        """The normalised words before WordPiece: as `tokenize`, but strings."""
        return self._map_flat(texts, self._normalizer.split_words)

    def ids_to_tokens(self, ids) -> list:
        """Tokens of ids given as a (nested) list, array, Tensor or RaggedTensor, same nesting."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_list()
        elif isinstance(ids, (tf.Tensor, np.ndarray)):
            ids = np.asarray(ids).tolist()
        if isinstance(ids, (list, tuple)):
            return [self.ids_to_tokens(item) for item in ids]
        return self.vocab[ids]

    def tokens_to_ids(self, tokens: Sequence[str]) -> list[int]:
        """Ids of tokens; KeyError for one that the vocabulary lacks."""
        return [self._ids[token] for token in tokens]

    @staticmethod
    def _map_flat(texts, function):
        if not isinstance(texts, tf.RaggedTensor):
            texts = tf.convert_to_tensor(texts, tf.string)
        if isinstance(texts, tf.RaggedTensor):
            return texts.with_flat_values(function(texts.flat_values))
        rank = texts.shape.rank
        if rank is None:
            raise ValueError("The rank of texts has to be known; set it with tf.ensure_shape.")
        if rank == 0:
            return function(texts[tf.newaxis]).values
        if rank == 1:
            return function(texts)
        ragged = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
        return ragged.with_flat_values(function(ragged.flat_values))

    def _tokenize_flat(self, texts: tf.Tensor) -> tf.RaggedTensor:
        normalized = self._normalizer.normalize(texts)
        pieces, starts, ends = self._wordpiece.tokenize_with_offsets(normalized)
        return self._refuse_long_words(normalized, pieces, starts, ends)

    def _refuse_long_words(
        self,
        normalized: tf.Tensor,
        pieces: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> tf.RaggedTensor:
        """Turns words of more than 200 characters into one [UNK].

        The op's own limit counts bytes. Which words are too long shows from the pieces: a word is
        a piece that continues nothing, and those behind it that do.
        """
        ids, splits = pieces.values, pieces.row_splits
        continues = tf.gather(self._continues, ids)
        first = tf.where(~continues)[:, 0]
        last = tf.concat([first, tf.size(ids, tf.int64)[tf.newaxis]], 0)[1:] - 1
        # Only between the first and last piece of the same word is this a length in bytes.
        begin = tf.gather(starts.values, first)
        size = tf.gather(ends.values, last) - begin
        suspect = size > MAX_CHARS_PER_WORD

        def shorten():
            at = tf.where(suspect)[:, 0]
            row = tf.searchsorted(splits, tf.gather(first, at), side="right", out_type=tf.int64) - 1
            words = tf.strings.substr(
                tf.gather(normalized, row),
                tf.cast(tf.gather(begin, at), tf.int32),
                tf.cast(tf.gather(size, at), tf.int32),
            )
            too_long = tf.strings.length(words, unit="UTF8_CHAR") > MAX_CHARS_PER_WORD
            at = tf.boolean_mask(at, too_long)
            refused = tf.scatter_nd(
                at[:, tf.newaxis], tf.ones_like(at, tf.bool), tf.shape(first, tf.int64)
            )
            word_of_piece = tf.cumsum(tf.cast(~continues, tf.int64)) - 1
            in_refused = tf.gather(refused, word_of_piece)
            new_ids = tf.where(in_refused, self.unk_id, ids)
            keep = ~(in_refused & continues)
            kept = tf.concat([[0], tf.cumsum(tf.cast(keep, tf.int64))], 0)
            return tf.boolean_mask(new_ids, keep), tf.gather(kept, splits)

        ids, splits = tf.cond(
            tf.reduce_any(suspect), shorten, lambda: (tf.identity(ids), tf.identity(splits))
        )
        return tf.RaggedTensor.from_row_splits(ids, splits, validate=False)


def _wordpiece_model(tokens: Sequence[str]) -> np.ndarray:
    """The vocabulary as `FastWordpieceTokenizeWithOffsets` takes it: uint8 [bytes]."""
    # Tokens that no text yields are renamed to what none contains: the builder refuses
    # duplicates, and one token with a blank in it makes the op return wrong ids for all texts.
    named = [
        token if can_occur or token == vocabulary.UNK else f"\x01{index}"
        for index, (token, can_occur) in enumerate(
            zip(tokens, vocabulary.reachable(tokens), strict=True)
        )
    ]
    unk_id = vocabulary.token_ids(tokens)[vocabulary.UNK]
    for index, token in enumerate(named):
        if token == vocabulary.UNK and index != unk_id:
            named[index] = f"\x01{index}"
    model = pywrap_fast_wordpiece_tokenizer_model_builder.build_fast_wordpiece_model(
        named,
        MAX_BYTES_PER_WORD,
        vocabulary.CONTINUATION,
        vocabulary.UNK,
        False,  # no_pretokenization
        False,  # support_detokenization
    )
    return np.frombuffer(model, np.uint8)
