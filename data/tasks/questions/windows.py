"""Questions and contexts to windows, in the graph: for training, prediction and export alike."""

from typing import NamedTuple

import tensorflow as tf

from data.errors import DataError
from data.tokenization import Tokenizer, bytes_to_characters, long_texts
from data.tokenization.inputs import joined_pieces
from data.tokenization.offsets import text_slices


class QuestionWindows(NamedTuple):
    """Windows over the contexts of some questions.

    A row is [CLS] question [SEP] part of the context [SEP].

    Attributes:
        input_ids: int32 [rows, (length)].
        first_lengths: int32 [rows]; where the context begins in the row.
        counts: int64 [questions]; how many rows each has, one at least.
        begins: int64 [rows]; which piece of the context is the row's first.
        start_range: int32 [rows, 2]; from which place in the row to before which one a piece has
            more context in this row than in the question's others. An answer is looked for in
            the row where its first piece has most.
        ids: int32 [questions, (pieces)]; the whole contexts.
        byte_starts, byte_ends, starts, ends: [questions, (pieces)]; where the pieces lie in the
            context, in bytes and in characters.
        contexts: string [questions].
    """

    input_ids: tf.RaggedTensor
    first_lengths: tf.Tensor
    counts: tf.Tensor
    begins: tf.Tensor
    start_range: tf.Tensor
    ids: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    contexts: tf.Tensor

    def slices(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """See `data.tokenization.offsets.text_slices`."""
        return text_slices(self.contexts, rows, begins, ends)


def check_question_lengths(max_seq_length: int, max_query_length: int, doc_stride: int) -> None:
    """Raises DataError for lengths that leave no room for a context."""
    if max_query_length < 1 or doc_stride < 1 or max_seq_length < max_query_length + 4:
        raise DataError(
            f"max_seq_length is {max_seq_length}, max_query_length {max_query_length}, doc_stride "
            f"{doc_stride}; a window holds [CLS], the question, [SEP], at least one piece of the "
            f"context and [SEP], and windows have to move: make the first at least "
            f"{max(max_query_length, 1) + 4} and the others at least 1."
        )


def make_windows(
    tokenizer: Tokenizer,
    questions: tf.Tensor,
    contexts: tf.Tensor,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> QuestionWindows:
    """Cuts contexts into windows, as the original does: each `doc_stride` pieces further.

    Args:
        questions: string [N]; cut to their first `max_query_length` pieces.
        contexts: string [N].
        max_seq_length: Of a row.
        doc_stride, max_query_length: See above; `check_question_lengths` says what they may be.
    """
    query = tokenizer.tokenize(questions)
    query_lengths = tf.minimum(query.row_lengths(), max_query_length)
    query = long_texts.kept_long_text_pieces(query, query_lengths, "head")
    pieces = tokenizer.tokenize_with_offsets(contexts)
    lengths = pieces.ids.row_lengths()
    body = max_seq_length - 3 - query_lengths
    step = tf.minimum(body, doc_stride)
    counts = 1 + (tf.maximum(lengths - body, 0) + step - 1) // step

    question = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    first_row = tf.cumsum(counts, exclusive=True)
    number = tf.range(tf.size(question, tf.int64)) - tf.gather(first_row, question)
    begins = number * tf.gather(step, question)
    sizes = tf.minimum(tf.gather(body, question), tf.gather(lengths, question) - begins)
    rows = long_texts.piece_slices(
        pieces.ids, tf.gather(pieces.ids.row_starts(), question) + begins, sizes
    )
    input_ids, _ = joined_pieces(tokenizer, tf.gather(query, question), rows, always=True)
    first_lengths = tf.gather(query_lengths, question) + 2
    last = number + 1 == tf.gather(counts, question)
    places = _most_context(begins, sizes, last) + (first_lengths - begins)[:, tf.newaxis]
    return QuestionWindows(
        input_ids,
        tf.cast(first_lengths, tf.int32),
        counts,
        begins,
        tf.cast(places, tf.int32),
        pieces.ids,
        pieces.starts,
        pieces.ends,
        bytes_to_characters(contexts, pieces.starts),
        bytes_to_characters(contexts, pieces.ends),
        contexts,
    )


def _most_context(begins: tf.Tensor, sizes: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """int64 [rows, 2]: the pieces from, to before which each row gives most context.

    The original's measure is the smaller of the contexts to both sides plus 0.01 of the row's
    length; of equal rows the first counts. Rows of one question only move forward, so each has
    the most for one stretch, and the border to the next row is where its right context becomes
    less than the next one's left: half-way through what they share. Only the last row may be
    shorter than the one before; where that costs it more than it reaches further, as with one
    piece more at doc_stride 128, it has the most for none but the pieces of its own.
    """
    ends = begins + sizes
    next_begins = tf.concat([begins[1:], begins[-1:]], 0)
    next_sizes = tf.concat([sizes[1:], sizes[-1:]], 0)
    further = next_begins + next_sizes - ends
    # In hundredths, where the measure is a whole number.
    shorter = sizes - next_sizes
    border = (100 * (ends - 1 + next_begins) + shorter) // 200 + 1
    border = tf.clip_by_value(border, tf.minimum(next_begins, ends), ends)
    limits = tf.where(last | (shorter >= 100 * further), ends, border)
    first = tf.concat([[True], last[:-1]], 0)
    previous = tf.concat([[tf.constant(0, tf.int64)], limits[:-1]], 0)
    return tf.stack([tf.where(first, begins, previous), limits], 1)
