"""WordPiece on normalised text: greedy longest match, in the graph (paper, section 3)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import pywrap_fast_wordpiece_tokenizer_model_builder

from data.tokenization import vocabulary

MAX_CHARS_PER_WORD = 200
# In UTF-8 no allowed word is longer, so a word that this limit turns into [UNK] always has to be.
MAX_BYTES_PER_WORD = 4 * MAX_CHARS_PER_WORD


class WordPiece:
    """Splits normalised texts at blanks, punctuation and CJK characters, then into pieces.

    A word that can't be put together from pieces, or has more than 200 characters, becomes one
    [UNK].

    Args:
        tokens: The vocabulary; index = id.
        further: Words that get the ids behind the vocabulary, from len(tokens) on. They may
            consist of control characters, which no vocabulary holds.
    """

    def __init__(self, tokens: Sequence[str], further: Sequence[str] = ()):
        self._unk_id = vocabulary.token_ids(tokens)[vocabulary.UNK]
        continues = [token.startswith(vocabulary.CONTINUATION) for token in tokens]
        with tf.init_scope():
            model = tf.constant(_model(tokens, further))
            self._continues = tf.constant(continues + [False] * len(further))
        self._op = tf_text.FastWordpieceTokenizer(model_buffer=model, token_out_type=tf.int32)

    def tokenize(
        self, normalized: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Pieces of normalised texts.

        Args:
            normalized: string [N].

        Returns:
            ids int32, starts int64 and ends int64, each [N, (pieces)]: starts and ends are byte
            offsets into the normalised text.
        """
        ids, starts, ends = self._op.tokenize_with_offsets(normalized)
        return self._refuse_long_words(normalized, ids, starts, ends)

    def _refuse_long_words(self, normalized, pieces, starts, ends):
        """Turns words of more than 200 characters into one [UNK].

        The op's own limit counts bytes. Which words are too long shows from the pieces: a word is
        a piece that continues nothing, and those behind it that do.
        """
        ids, splits, starts, ends = pieces.values, pieces.row_splits, starts.values, ends.values
        continues = tf.gather(self._continues, ids)
        first = tf.where(~continues)[:, 0]
        last = tf.concat([first, tf.size(ids, tf.int64)[tf.newaxis]], 0)[1:] - 1
        # Only between the first and last piece of the same word is this a length in bytes.
        begin = tf.gather(starts, first)
        size = tf.gather(ends, last) - begin
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
            keep = ~(in_refused & continues)
            new_ids = tf.where(in_refused, self._unk_id, ids)
            new_ends = tf.where(in_refused, tf.gather(begin + size, word_of_piece), ends)
            kept = tf.concat([[0], tf.cumsum(tf.cast(keep, tf.int64))], 0)
            return (
                tf.boolean_mask(new_ids, keep),
                tf.boolean_mask(starts, keep),
                tf.boolean_mask(new_ends, keep),
                tf.gather(kept, splits),
            )

        *values, splits = tf.cond(
            tf.reduce_any(suspect),
            shorten,
            lambda: tuple(tf.identity(tensor) for tensor in (ids, starts, ends, splits)),
        )
        partition = tf.RaggedTensor.from_row_splits(values[0], splits, validate=False)
        return partition, *(partition.with_values(value) for value in values[1:])


def _model(tokens: Sequence[str], further: Sequence[str]) -> np.ndarray:
    """The vocabulary as `FastWordpieceTokenizeWithOffsets` takes it: uint8 [bytes]."""
    # Tokens that no text yields are renamed to what none contains: the builder refuses
    # duplicates, and one token with a blank in it makes the op return wrong ids for all texts.
    unk_id = vocabulary.token_ids(tokens)[vocabulary.UNK]
    possible = zip(tokens, vocabulary.reachable_wordpieces(tokens), strict=True)
    named = [
        token if can_occur or index == unk_id else f"\x7f{index}"
        for index, (token, can_occur) in enumerate(possible)
    ]
    model = pywrap_fast_wordpiece_tokenizer_model_builder.build_fast_wordpiece_model(
        [*named, *further],
        MAX_BYTES_PER_WORD,
        vocabulary.CONTINUATION,
        vocabulary.UNK,
        False,  # no_pretokenization
        False,  # support_detokenization
    )
    return np.frombuffer(model, np.uint8)
