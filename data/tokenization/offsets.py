"""From places in normalised text to places in the text as it was given, in bytes or characters."""

import numpy as np
import tensorflow as tf

# Bytes of a UTF-8 character by its first byte. A byte that continues one counts for itself: it
# is only looked at where it is the last of its character.
_SIZES = np.ones(256, np.int64)
_SIZES[0xC0:0xE0], _SIZES[0xE0:0xF0], _SIZES[0xF0:0xF8] = 2, 3, 4


def source_spans(
    texts: tf.Tensor,
    places: tf.RaggedTensor,
    starts: tf.RaggedTensor,
    ends: tf.RaggedTensor,
    dropped: str | None,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Spans of the source text from spans of the normalised text.

    A span starts with the character that its first character came from, and ends with the one
    that its last came from and the `dropped` characters directly behind that.

    Args:
        texts: string [N], the source.
        places: int64 [N, (bytes + 1)]: where in the source each byte of the normalised text came
            from, a replaced character's first byte for all bytes of its replacement; then the
            source's length.
        starts, ends: int64 [N, (spans)], in the normalised text, none empty.
        dropped: Characters as the inside of a regular expression's class, or None.

    Returns:
        int64 [N, (spans)] twice: first byte, and one past the last.
    """
    row = starts.value_rowids()
    base = tf.gather(places.row_starts(), row)
    begin = tf.gather(places.values, base + starts.values)
    last = tf.gather(places.values, base + ends.values - 1)
    data, text_starts = bytes_and_offsets(texts)
    first_byte = tf.gather(data, tf.gather(text_starts, row) + last)
    end = last + tf.gather(tf.constant(_SIZES), tf.cast(first_byte, tf.int32))
    if dropped is not None:
        gap = tf.gather(places.values, base + ends.values) - end
        end += _size_of_leading(texts, row, end, gap, dropped)
    return starts.with_values(begin), starts.with_values(end)


def bytes_to_characters(
    texts: tf.Tensor | list[str] | str, offsets: tf.RaggedTensor | tf.Tensor
) -> tf.RaggedTensor | tf.Tensor:
    """Byte offsets to character offsets, such as index a Python str.

    Args:
        texts: Valid UTF-8, string [N] or a single string.
        offsets: int [N, (offsets)], or [offsets] for a single string: bytes from the text's start,
            at most its length.

    Returns:
        The same shape and dtype: how many characters begin before each offset.
    """
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank == 0:
        ragged = tf.RaggedTensor.from_row_lengths(offsets, [tf.size(offsets)], validate=False)
        return bytes_to_characters(texts[tf.newaxis], ragged).values
    data, text_starts = bytes_and_offsets(texts)
    begins = tf.cast(tf.bitwise.bitwise_and(data, 0xC0) != 0x80, tf.int64)
    before = tf.concat([[0], tf.cumsum(begins)], 0)
    base = tf.gather(text_starts, offsets.value_rowids())
    count = tf.gather(before, base + tf.cast(offsets.values, tf.int64)) - tf.gather(before, base)
    return offsets.with_values(tf.cast(count, offsets.dtype))


def bytes_and_offsets(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """All bytes of string [N] in a row, uint8 [bytes], and where each text starts, int64 [N]."""
    starts = tf.cumsum(tf.cast(tf.strings.length(texts), tf.int64), exclusive=True)
    return tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8), starts


def _size_of_leading(texts, row, begin, gap, characters: str) -> tf.Tensor:
    """How many bytes of texts[row][begin : begin + gap] are `characters` from the first on."""

    def measure():
        at = tf.where(gap > 0)[:, 0]
        between = tf.strings.substr(
            tf.gather(texts, tf.gather(row, at)),
            tf.cast(tf.gather(begin, at), tf.int32),
            tf.cast(tf.gather(gap, at), tf.int32),
        )
        # \C is any byte: what follows may be broken UTF-8.
        leading = tf.strings.regex_replace(between, rf"^([{characters}]*)\C*$", r"\1")
        size = tf.cast(tf.strings.length(leading), tf.int64)
        return tf.tensor_scatter_nd_update(tf.zeros_like(gap), at[:, tf.newaxis], size)

    return tf.cond(tf.reduce_any(gap > 0), measure, lambda: tf.zeros_like(gap))
