"""What becomes of texts that are longer than the model: parts of them, or windows over them."""

import tensorflow as tf

from data.errors import DataError

LONG_TEXT = ("head", "tail", "head_tail", "windows")
MAX_WINDOWS = 16
HEAD_SHARE = 4  # With "head_tail" one piece in so many is of the head, rounded up.


def check_long_text(
    long_text: str, window_stride: int, max_seq_length: int, max_windows: int = MAX_WINDOWS
) -> None:
    """Raises DataError for an unknown name, a stride that would skip pieces, or no windows."""
    if long_text not in LONG_TEXT:
        raise DataError(f"long_text is {long_text!r}; it may be one of {', '.join(LONG_TEXT)}.")
    if window_stride and not 0 < window_stride <= max_seq_length - 3:
        raise DataError(
            f"The window stride is {window_stride}; windows of max_seq_length {max_seq_length} "
            f"need one from 1 to {max_seq_length - 3}, or pieces would be skipped. 0 is for half "
            f"a window."
        )
    if max_windows < 1:
        raise DataError(f"max_windows is {max_windows}; a text needs at least 1.")


def kept_long_text_pieces(
    pieces: tf.RaggedTensor, lengths: tf.Tensor, long_text: str
) -> tf.RaggedTensor:
    """So many pieces of each row.

    Args:
        pieces: [N, (pieces)].
        lengths: int [N], at most as many as there are.
        long_text: "head" keeps the first, as the original does, "tail" the last; "head_tail" a
            quarter from the beginning and the rest from the end, which Sun et al. 2019 ("How to
            fine-tune BERT for text classification?", section 5.3.1) found best for reviews: 128
            and 382 of 510.
    """
    starts, present = pieces.row_starts(), pieces.row_lengths()
    lengths = tf.cast(lengths, present.dtype)
    if long_text == "head":
        return piece_slices(pieces, starts, lengths)
    if long_text == "tail":
        return piece_slices(pieces, starts + present - lengths, lengths)
    head = tf.where(lengths < present, -(-lengths // HEAD_SHARE), lengths)
    tail = lengths - head
    return tf.concat(
        [piece_slices(pieces, starts, head), piece_slices(pieces, starts + present - tail, tail)], 1
    )


def piece_windows(
    pieces_a: tf.RaggedTensor,
    pieces_b: tf.RaggedTensor | None,
    max_seq_length: int,
    stride: int,
    max_windows: int,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None, tf.Tensor]:
    """Windows over the longer text of each pair, the other one in all of them.

    The other one, if need be, is cut to half of a window, at its end. Text behind the last of
    `max_windows` isn't seen.

    Args:
        pieces_a: [N, (pieces)].
        pieces_b: [N, (pieces)] or None; a row without pieces makes a single text.
        max_seq_length: With [CLS] and [SEP].
        stride: Pieces from one window to the next; 0 for half of the window.
        max_windows: Most rows per text or pair.

    Returns:
        A and B of each row [rows, (pieces)] (B None without pieces_b); int64 [N]: rows.
    """
    length_a = pieces_a.row_lengths()
    length_b = tf.zeros_like(length_a) if pieces_b is None else pieces_b.row_lengths()
    limit = tf.where(length_b == 0, tf.constant(max_seq_length - 2, tf.int64), max_seq_length - 3)
    fixed = tf.minimum(tf.minimum(length_a, length_b), limit // 2)
    body = limit - fixed
    step = tf.minimum(body, stride) if stride else tf.maximum(body // 2, 1)
    longest = tf.maximum(length_a, length_b)
    beyond = tf.maximum(longest - body, 0)
    counts = tf.minimum(1 + (beyond + step - 1) // step, max_windows)

    example = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    number = tf.range(tf.size(example, tf.int64)) - tf.gather(
        tf.cumsum(counts, exclusive=True), example
    )
    begin = number * tf.gather(step, example)
    size = tf.minimum(tf.gather(body, example), tf.gather(longest, example) - begin)
    # B of two equally long ones, as with truncation.
    a_moves = tf.gather(length_a > length_b, example)

    def rows(pieces, moves):
        starts = tf.gather(pieces.row_starts(), example)
        return piece_slices(
            pieces,
            starts + tf.where(moves, begin, 0),
            tf.where(moves, size, tf.gather(fixed, example)),
        )

    rows_a = rows(pieces_a, a_moves)
    return rows_a, None if pieces_b is None else rows(pieces_b, ~a_moves), counts


def piece_slices(pieces: tf.RaggedTensor, begins: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Row i is pieces.values[begins[i] : begins[i] + lengths[i]]; both int64 [rows]."""
    places = tf.ragged.range(begins, begins + lengths)
    return places.with_values(tf.gather(pieces.values, places.values))
