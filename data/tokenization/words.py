"""The words that white space separates in a text as given, and which of them a piece is of."""

from typing import NamedTuple

import tensorflow as tf

from data.tokenization.offsets import bytes_and_offsets

# What the tokenizer takes for white space, by its number of bytes in UTF-8: separators of all
# kinds, but no control characters, which it deletes.
_TWO_BYTES = "\u00a0"
_THREE_BYTES = "\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ONE_BYTE = b" \t\n\r"


class SeparatedWords(NamedTuple):
    """Words of texts, in bytes.

    Attributes:
        starts, ends: int64 [N, (words)]; a word is text[start:end].
        numbers: int32 [N, (pieces)]; the word of each piece, counted in its text.
    """

    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    numbers: tf.RaggedTensor


def separated_words(texts: tf.Tensor, piece_starts: tf.RaggedTensor) -> SeparatedWords:
    """Splits texts at white space and nothing else, and gives each piece its word. In the graph.

    Punctuation belongs to the word that it is written with. A word may have no piece: one of
    control characters only.

    Args:
        texts: string [N].
        piece_starts: int [N, (pieces)]; the first byte of each, as of `tokenize_with_offsets`.
    """
    texts = tf.strings.regex_replace(texts, f"[{_TWO_BYTES}]", "  ")
    texts = tf.strings.regex_replace(texts, f"[{_THREE_BYTES}]", "   ")
    data, text_starts = bytes_and_offsets(texts)
    lengths = tf.cast(tf.strings.length(texts), tf.int64)
    space = tf.reduce_any(data[:, tf.newaxis] == tf.constant(list(_ONE_BYTE), tf.uint8), 1)
    # One more byte, so that there is a border behind the last one too.
    count = tf.size(data)
    border = tf.scatter_nd(
        tf.concat([text_starts, [tf.cast(count, tf.int64)]], 0)[:, tf.newaxis],
        tf.ones([tf.size(text_starts) + 1], tf.int32),
        [count + 1],
    )
    is_word = ~space
    after_space = tf.concat([[True], space], 0)[:-1] | (border[:-1] > 0)
    before_space = tf.concat([space, [True]], 0)[1:] | (border[1:] > 0)
    begins = is_word & after_space

    row_of_byte = tf.repeat(tf.range(tf.size(texts, tf.int64)), lengths)
    places = tf.where(begins)[:, 0]
    rows = tf.gather(row_of_byte, places)
    base = tf.gather(text_starts, rows)
    ends = tf.where(is_word & before_space)[:, 0] + 1 - base
    nrows = tf.size(texts, tf.int64)
    starts = tf.RaggedTensor.from_value_rowids(places - base, rows, nrows, validate=False)

    # Words begun up to each byte, itself included; those of texts before are taken off.
    begun = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], 0)
    row = piece_starts.value_rowids()
    at = tf.gather(text_starts, row)
    number = tf.gather(begun, at + tf.cast(piece_starts.values, tf.int64) + 1)
    number -= tf.gather(begun, at) + 1
    return SeparatedWords(starts, starts.with_values(ends), piece_starts.with_values(number))
