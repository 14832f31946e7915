"""Pieces of words to rows that overlap, in the graph: for training, prediction and export alike."""

from typing import NamedTuple

import tensorflow as tf

from data.errors import DataError
from data.tokenization import Tokenizer, long_texts
from data.tokenization.inputs import check_token_length, joined_pieces


class WordWindows(NamedTuple):
    """Windows over texts. A row is [CLS] part of the text [SEP].

    Attributes:
        input_ids: int32 [rows, (length)].
        counts: int64 [N]; how many rows each text has, one at least.
        scored: int64 [rows, 2]; from which place in the row to before which one a piece has more
            context in this row than in the text's others. Taken from all rows in their order,
            these are the pieces of all texts in theirs, each once.
    """

    input_ids: tf.RaggedTensor
    counts: tf.Tensor
    scored: tf.Tensor


def check_tagged_word_lengths(max_seq_length: int, stride: int) -> None:
    """Raises DataError for lengths that leave no room, or would skip pieces."""
    check_token_length(max_seq_length)
    if not 0 <= stride <= max_seq_length - 2:
        raise DataError(
            f"The window stride is {stride}; windows of max_seq_length {max_seq_length} need one "
            f"from 1 to {max_seq_length - 2}, or pieces would be skipped. 0 is for half a window."
        )


def make_windows(
    tokenizer: Tokenizer, pieces: tf.RaggedTensor, max_seq_length: int, stride: int = 0
) -> WordWindows:
    """Cuts texts into windows, each full if its text is long enough, evenly spread over it.

    The context of a piece in a row is the smaller of those to its left and right, ends of the
    text not counting as ends; so the border between two rows lies half-way through what they
    share.

    Args:
        pieces: int32 [N, (pieces)].
        max_seq_length: Of a row.
        stride: Most pieces from one window to the next; 0 for half a window. Small ones give
            more context, and more rows.

    Raises:
        DataError: See `check_tagged_word_lengths`.
    """
    check_tagged_word_lengths(max_seq_length, stride)
    body = max_seq_length - 2
    stride = stride or max(body // 2, 1)
    lengths = pieces.row_lengths()
    beyond = tf.maximum(lengths - body, 0)
    counts = 1 + (beyond + stride - 1) // stride

    text = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    number = tf.range(tf.size(text, tf.int64)) - tf.gather(tf.cumsum(counts, exclusive=True), text)
    begins = number * tf.gather(beyond, text) // tf.maximum(tf.gather(counts, text) - 1, 1)
    sizes = tf.minimum(tf.gather(lengths, text), body)
    rows = long_texts.piece_slices(pieces, tf.gather(pieces.row_starts(), text) + begins, sizes)
    input_ids, _ = joined_pieces(tokenizer, rows, None)

    last = number + 1 == tf.gather(counts, text)
    next_begins = tf.concat([begins[1:], begins[-1:]], 0)
    limits = tf.where(last, begins + sizes, (begins + sizes + next_begins + 1) // 2)
    previous = tf.concat([limits[-1:], limits[:-1]], 0)
    scored = tf.stack([tf.where(number == 0, tf.zeros_like(previous), previous), limits], 1)
    return WordWindows(input_ids, counts, scored - begins[:, tf.newaxis] + 1)
