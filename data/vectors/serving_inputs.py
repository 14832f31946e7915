"""Texts to model inputs with the places of pieces and words, in the graph: for exported models."""

from typing import NamedTuple

import tensorflow as tf

from data.tokenization import Tokenizer
from data.tokenization.inputs import check_token_length, joined_pieces
from data.tokenization.long_texts import kept_long_text_pieces
from data.tokenization.offsets import bytes_to_characters
from data.tokenization.words import separated_words


class _TextPieces(NamedTuple):
    """Rows of texts, padded to the longest one. All but `inputs` are of single texts.

    Attributes:
        inputs: `input_ids`, `input_mask`, `segment_ids` int32 [B, T].
        tokens: string [B, T]; "" at padding.
        starts, ends: int32 [B, T]; characters of the text; -1 at [CLS], [SEP] and padding.
        word_numbers: int32 [B, T]; which of `words` a piece is of, -1 for none.
        words: string [B, W], what white space separates, if a piece of it is in the row; "" for
            what is lacking.
        word_starts, word_ends: int32 [B, W]; -1 for what is lacking.
    """

    inputs: dict[str, tf.Tensor]
    tokens: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    word_numbers: tf.Tensor
    words: tf.Tensor
    word_starts: tf.Tensor
    word_ends: tf.Tensor


def vector_serving_inputs(
    tokenizer: Tokenizer, max_seq_length: int, texts: tf.Tensor
) -> _TextPieces:
    """Tokenises texts, string [B]; what is longer than `max_seq_length` is cut.

    Raises:
        DataError: No text fits into that length.
    """
    check_token_length(max_seq_length)
    pieces = tokenizer.tokenize_with_offsets(texts)
    lengths = tf.minimum(tf.cast(pieces.ids.row_lengths(), tf.int32), max_seq_length - 2)
    ids, starts, ends = (kept_long_text_pieces(part, lengths, "head") for part in pieces)
    row_ids, segments = joined_pieces(tokenizer, ids, None)

    # Only words with a piece in the row, in their order: a new one where the number changes.
    separated = separated_words(texts, starts)
    numbers = separated.numbers.values
    row = starts.value_rowids()
    change = (numbers[1:] != numbers[:-1]) | (row[1:] != row[:-1])
    first = tf.concat([tf.ones_like(numbers[:1], tf.bool), change], 0)
    counted = tf.concat([[0], tf.cumsum(tf.cast(first, tf.int32))], 0)
    own = counted[1:] - tf.gather(counted, tf.gather(starts.row_starts(), row)) - 1
    at = tf.where(first)[:, 0]
    word_rows = tf.gather(row, at)
    global_number = tf.gather(separated.starts.row_starts(), word_rows) + tf.cast(
        tf.gather(numbers, at), tf.int64
    )
    begins, stops = (
        tf.cast(tf.gather(part.values, global_number), tf.int32)
        for part in (separated.starts, separated.ends)
    )
    words = tf.strings.substr(tf.gather(texts, word_rows), begins, stops - begins)
    per_row = tf.RaggedTensor.from_value_rowids(words, word_rows, starts.nrows(), validate=False)

    def around(ragged, value):
        """With a value for [CLS] and [SEP]; padded with it too."""
        edge = tf.fill([ragged.nrows(), 1], tf.constant(value, ragged.dtype))
        return tf.concat([edge, ragged, edge], 1).to_tensor(value)

    def characters(ragged):
        return bytes_to_characters(texts, ragged)

    return _TextPieces(
        inputs={
            "input_ids": row_ids.to_tensor(tokenizer.pad_id),
            "input_mask": tf.ones_like(row_ids).to_tensor(),
            "segment_ids": segments.to_tensor(),
        },
        tokens=tf.gather(tf.constant(tokenizer.vocab), row_ids).to_tensor(""),
        starts=around(characters(starts), -1),
        ends=around(characters(ends), -1),
        word_numbers=around(starts.with_values(own), -1),
        words=per_row.to_tensor(""),
        word_starts=characters(per_row.with_values(begins)).to_tensor(-1),
        word_ends=characters(per_row.with_values(stops)).to_tensor(-1),
    )
