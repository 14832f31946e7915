"""[CLS] A [SEP] B [SEP]: model inputs from texts or from pieces, batched and in the graph."""

import tensorflow as tf

from data.errors import DataError
from data.tokenization.tokenizer import Tokenizer


def truncated_lengths(
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
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins pieces to input_ids and segment_ids before padding.

    Args:
        tokenizer: For the ids of [CLS] and [SEP].
        pieces_a: int32 [N, (pieces)].
        pieces_b: int32 [N, (pieces)]; a row without pieces makes a single sentence, which may
            use the place of the second [SEP].
        max_seq_length: Longest row of the result, at least 3.

    Returns:
        int32 [N, (length)] twice.
    """
    if max_seq_length < 3:
        raise DataError(
            f"max_seq_length is {max_seq_length}; [CLS], one piece and [SEP] need at least 3."
        )
    rows = pieces_a.nrows(tf.int32)
    first = tf.fill([rows, 1], tf.constant(tokenizer.cls_id, tf.int32))
    separator = tf.fill([rows, 1], tf.constant(tokenizer.sep_id, tf.int32))
    if pieces_b is None:
        pieces_a = _head(pieces_a, tf.fill([rows], max_seq_length - 2))
        ids = tf.concat([first, pieces_a, separator], 1)
        return ids, tf.zeros_like(ids)
    length_a = tf.cast(pieces_a.row_lengths(), tf.int32)
    length_b = tf.cast(pieces_b.row_lengths(), tf.int32)
    single = length_b == 0
    keep_a, keep_b = truncated_lengths(
        length_a, length_b, tf.where(single, max_seq_length - 2, max_seq_length - 3)
    )
    pieces_a, pieces_b = _head(pieces_a, keep_a), _head(pieces_b, keep_b)
    last = tf.RaggedTensor.from_tensor(
        separator, lengths=tf.cast(~single, tf.int64), row_splits_dtype=tf.int64
    )
    segment_a = tf.concat([first, pieces_a, separator], 1)
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
) -> dict[str, tf.Tensor]:
    """Model inputs of single texts or pairs.

    Args:
        tokenizer: The tokenizer.
        text_a: string [N] (or list of str), or a single string.
        text_b: As text_a, or None. A text without pieces makes a single sentence, as in the
            original release.
        max_seq_length: Longer inputs are truncated, see `truncated_lengths`.
        pad_to: None pads every row to max_seq_length; "longest" to the longest row given.

    Returns:
        input_ids, input_mask, segment_ids: int32 [N, max_seq_length] (or shorter); [S] for a
        single string.
    """
    if pad_to not in (None, "longest"):
        raise ValueError(f'pad_to is {pad_to!r}; it may be None or "longest".')
    text_a = tf.convert_to_tensor(text_a, tf.string)
    scalar = text_a.shape.rank == 0
    pieces_a = tokenizer.tokenize(tf.reshape(text_a, [-1]))
    pieces_b = None
    if text_b is not None:
        pieces_b = tokenizer.tokenize(tf.reshape(tf.convert_to_tensor(text_b, tf.string), [-1]))
    ids, segments = pack_inputs(tokenizer, pieces_a, pieces_b, max_seq_length=max_seq_length)
    shape = [None, max_seq_length if pad_to is None else None]
    inputs = {
        "input_ids": ids.to_tensor(tokenizer.pad_id, shape=shape),
        "input_mask": tf.ones_like(ids).to_tensor(shape=shape),
        "segment_ids": segments.to_tensor(shape=shape),
    }
    if scalar:
        inputs = {name: tensor[0] for name, tensor in inputs.items()}
    return inputs


def _head(pieces: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first lengths[i] values of row i."""
    splits = pieces.row_splits
    place = tf.range(splits[-1]) - tf.gather(splits, pieces.value_rowids())
    mask = place < tf.cast(tf.gather(lengths, pieces.value_rowids()), place.dtype)
    return tf.ragged.boolean_mask(pieces, pieces.with_values(mask))
