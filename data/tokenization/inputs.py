"""[CLS] A [SEP] B [SEP]: model inputs from texts or from pieces, batched and in the graph."""

import tensorflow as tf

from data.errors import DataError
from data.tokenization import long_texts
from data.tokenization.tokenizer import Tokenizer

MOST_WINDOW_PLACES = 2**24
"""Of a batch of texts in windows, filled up to the text that has the most."""


def _truncated_lengths(
    length_a: tf.Tensor, length_b: tf.Tensor, limit: tf.Tensor | int
) -> tuple[tf.Tensor, tf.Tensor]:
    """How many pieces of A and of B stay when a pair must fit into `limit`.

    The original takes pieces off the end of the longer one, of B when both are equally long,
    until the pair fits. The same in closed form: the shorter one stays whole as long as it fits
    its half, and A's half is the larger.

    Args:
        length_a, length_b: int [N], pieces there are.
        limit: int, pieces there may be.

    Returns:
        int [N], int [N].
    """
    half_a, half_b = (limit + 1) // 2, limit // 2
    fits = length_a + length_b <= limit
    keep_a = tf.minimum(length_a, tf.maximum(half_a, limit - length_b))
    keep_b = tf.minimum(length_b, tf.maximum(half_b, limit - length_a))
    return tf.where(fits, length_a, keep_a), tf.where(fits, length_b, keep_b)


def pack_inputs(
    tokenizer: Tokenizer,
    pieces_a: tf.RaggedTensor,
    pieces_b: tf.RaggedTensor | None = None,
    *,
    max_seq_length: int,
    long_text: str = "head",
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins pieces to input_ids and segment_ids before padding.

    Args:
        tokenizer: For the ids of [CLS] and [SEP].
        pieces_a: int32 [N, (pieces)].
        pieces_b: int32 [N, (pieces)]; a row without pieces makes a single sentence, which may
            use the place of the second [SEP].
        max_seq_length: Longest row of the result, at least 3.
        long_text: What stays of too long a text: "head", "tail" or "head_tail", see
            `long_texts.kept_long_text_pieces`.

    Returns:
        int32 [N, (length)] twice.
    """
    check_token_length(max_seq_length)
    length_a = tf.cast(pieces_a.row_lengths(), tf.int32)
    if pieces_b is None:
        keep_a = tf.minimum(length_a, max_seq_length - 2)
        return joined_pieces(
            tokenizer, long_texts.kept_long_text_pieces(pieces_a, keep_a, long_text), None
        )
    length_b = tf.cast(pieces_b.row_lengths(), tf.int32)
    limit = tf.where(length_b == 0, max_seq_length - 2, max_seq_length - 3)
    keep_a, keep_b = _truncated_lengths(length_a, length_b, limit)
    return joined_pieces(
        tokenizer,
        long_texts.kept_long_text_pieces(pieces_a, keep_a, long_text),
        long_texts.kept_long_text_pieces(pieces_b, keep_b, long_text),
    )


def pack_piece_windows(
    tokenizer: Tokenizer,
    pieces_a: tf.RaggedTensor,
    pieces_b: tf.RaggedTensor | None = None,
    *,
    max_seq_length: int,
    stride: int = 0,
    max_windows: int = long_texts.MAX_WINDOWS,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor]:
    """Like `pack_inputs`, but a too long text makes several rows; see `long_texts.piece_windows`.

    Returns:
        int32 [rows, (length)] twice; int64 [N], how many rows each text or pair has.
    """
    check_token_length(max_seq_length)
    rows_a, rows_b, counts = long_texts.piece_windows(
        pieces_a, pieces_b, max_seq_length, stride, max_windows
    )
    return *joined_pieces(tokenizer, rows_a, rows_b), counts


def check_token_length(max_seq_length: int) -> None:
    """Raises DataError for a length that no text fits into."""
    if max_seq_length < 3:
        raise DataError(
            f"max_seq_length is {max_seq_length}; [CLS], one piece and [SEP] need at least 3."
        )


def joined_pieces(
    tokenizer: Tokenizer, pieces_a: tf.RaggedTensor, pieces_b: tf.RaggedTensor | None, always=False
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """[CLS] A [SEP], and where B has pieces (or `always`) B [SEP]: ids and segments."""
    rows = pieces_a.nrows(tf.int32)
    first = tf.fill([rows, 1], tf.constant(tokenizer.cls_id, tf.int32))
    separator = tf.fill([rows, 1], tf.constant(tokenizer.sep_id, tf.int32))
    segment_a = tf.concat([first, pieces_a, separator], 1)
    if pieces_b is None:
        return segment_a, tf.zeros_like(segment_a)
    has_b = tf.cast((pieces_b.row_lengths() > 0) | always, tf.int64)
    last = tf.RaggedTensor.from_tensor(separator, lengths=has_b, row_splits_dtype=tf.int64)
    segment_b = tf.concat([pieces_b, last], 1)
    ids = tf.concat([segment_a, segment_b], 1)
    segments = tf.concat([tf.zeros_like(segment_a), tf.ones_like(segment_b)], 1)
    return ids, segments


def build_inputs(
    tokenizer: Tokenizer,
    text_a: tf.Tensor,
    text_b: tf.Tensor | None = None,
    max_seq_length: int = 128,
    pad_to: str | None = None,
    long_text: str = "head",
    window_stride: int = 0,
    max_windows: int = long_texts.MAX_WINDOWS,
) -> dict[str, tf.Tensor]:
    """Model inputs of single texts or pairs.

    Args:
        tokenizer: The tokenizer.
        text_a: string [N] (or list of str), or a single string.
        text_b: As text_a, or None. A text without pieces makes a single sentence, as in the
            original release.
        max_seq_length: Longer inputs are truncated, see `_truncated_lengths`.
        pad_to: None pads every row to max_seq_length; "longest" to the longest row given.
        long_text: What stays of too long a text, see `long_texts`.
        window_stride, max_windows: With long_text "windows".

    Returns:
        input_ids, input_mask, segment_ids: int32 [N, max_seq_length] (or shorter); [S] for a
        single string. With "windows" [N, R, max_seq_length], where R is the most windows that one
        of the texts has; rows that are too many for the others have no pieces.
    """
    long_texts.check_long_text(long_text, window_stride, max_seq_length, max_windows)
    text_a = tf.convert_to_tensor(text_a, tf.string)
    scalar = text_a.shape.rank == 0
    pieces_a = tokenizer.tokenize(tf.reshape(text_a, [-1]))
    pieces_b = None
    if text_b is not None:
        pieces_b = tokenizer.tokenize(tf.reshape(tf.convert_to_tensor(text_b, tf.string), [-1]))
    if long_text == "windows":
        *packed, counts = pack_piece_windows(
            tokenizer,
            pieces_a,
            pieces_b,
            max_seq_length=max_seq_length,
            stride=window_stride,
            max_windows=max_windows,
        )
        with tf.control_dependencies([_windows_fit(counts, max_seq_length)]):
            counts = tf.identity(counts)
        ids, segments = (tf.RaggedTensor.from_row_lengths(rows, counts) for rows in packed)
    else:
        ids, segments = pack_inputs(
            tokenizer, pieces_a, pieces_b, max_seq_length=max_seq_length, long_text=long_text
        )
    inputs = _padded(tokenizer, ids, segments, max_seq_length, pad_to)
    if scalar:
        inputs = {name: tensor[0] for name, tensor in inputs.items()}
    return inputs


def _windows_fit(counts: tf.Tensor, max_seq_length: int) -> tf.Operation:
    """Fails if texts of so many windows each, filled up to the most, have too many places.

    A few short texts beside a long one would take memory that no size of theirs explains.
    """
    rows, most = tf.size(counts, tf.int64), tf.reduce_max(tf.concat([counts, [0]], 0))
    words = [f"The windows of {max_seq_length} pieces of", rows, "texts are filled up to", most]
    words.append(
        f"each, and {MOST_WINDOW_PLACES} pieces may be at once. Send fewer texts at once, or the "
        "long ones by themselves."
    )
    places = rows * tf.cast(most, tf.int64) * max_seq_length
    return tf.debugging.Assert(places <= MOST_WINDOW_PLACES, words)


def build_choice_inputs(
    tokenizer: Tokenizer,
    context: tf.Tensor,
    choices: tf.Tensor,
    max_seq_length: int = 128,
    pad_to: str | None = None,
    long_text: str = "head",
) -> dict[str, tf.Tensor]:
    """Model inputs of contexts with choices (paper, section 4.4): every row one continuation.

    Args:
        context: string [N].
        choices: string [N, C]; an empty string is no choice.
        max_seq_length, pad_to: As in `build_inputs`.
        long_text: As in `build_inputs`, but for "windows".

    Returns:
        input_ids, input_mask, segment_ids: int32 [N, C, length]; no pieces at all where there is
        no choice.
    """
    number = tf.shape(choices)[1]
    texts = tf.reshape(choices, [-1])
    pieces = tokenizer.tokenize(tf.convert_to_tensor(context, tf.string))
    # Not the texts themselves for each choice, which may be long and many.
    lengths = tf.minimum(pieces.row_lengths(), max_seq_length)
    pieces = long_texts.kept_long_text_pieces(pieces, lengths, long_text)
    pieces = tf.gather(pieces, tf.repeat(tf.range(pieces.nrows()), number))
    both = pieces, tokenizer.tokenize(texts)
    packed = pack_inputs(tokenizer, *both, max_seq_length=max_seq_length, long_text=long_text)
    inputs = _padded(tokenizer, *packed, max_seq_length, pad_to)
    is_choice = (tf.strings.length(texts) > 0)[:, tf.newaxis]
    for name, filling in (("input_ids", tokenizer.pad_id), ("input_mask", 0), ("segment_ids", 0)):
        inputs[name] = tf.where(is_choice, inputs[name], filling)
    # Not -1 for the length, which can't be inferred where there are no contexts.
    shape = tf.concat([tf.shape(choices), tf.shape(inputs["input_ids"])[1:]], 0)
    return {name: tf.reshape(tensor, shape) for name, tensor in inputs.items()}


def _padded(
    tokenizer, ids, segments, max_seq_length: int, pad_to: str | None
) -> dict[str, tf.Tensor]:
    if pad_to not in (None, "longest"):
        raise ValueError(f'pad_to is {pad_to!r}; it may be None or "longest".')
    width = None if pad_to else max_seq_length
    shape = [*(None for _ in range(ids.shape.rank - 1)), width]
    return {
        "input_ids": ids.to_tensor(tokenizer.pad_id, shape=shape),
        "input_mask": tf.ones_like(ids).to_tensor(shape=shape),
        "segment_ids": segments.to_tensor(shape=shape),
    }
