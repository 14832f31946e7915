"""Texts or words to what a tagger reads, in the graph; for exported models.

Texts are split into words as people write them down for tagging, as far as a rule can do it for
any language: at blanks; before and behind each Chinese character; punctuation at either end of
what stands between blanks is words of its own, while inside it isn't ("U.S", "well-known", "3.5").
An apostrophe with an s at the end, however, is a word, as it is in the English CoNLL corpora.
"""

from typing import NamedTuple

import tensorflow as tf

from data.tasks.tagging.characters import split_texts
from data.tasks.tagging.windows import WordWindows, make_windows
from data.tokenization import Tokenizer, bytes_to_characters
from data.tokenization.offsets import text_slices
from data.tokenization.tokenizer import Pieces

_PUNCTUATION = r"[\p{P}\p{S}]"
_CHINESE = r"\p{Han}+"
_APOSTROPHES = ("'", "’")


class TagInputs(NamedTuple):
    """See `modeling.serving.tagging.ServingTagInputs`, which says what these are."""

    texts: tf.Tensor
    words: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    input_ids: tf.RaggedTensor
    scored: tf.Tensor
    first_pieces: tf.Tensor
    tagged_words: tf.Tensor

    def slices(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """See `data.tokenization.offsets.text_slices`."""
        return text_slices(self.texts, rows, begins, ends)


def tag_inputs_from_words(
    tokenizer: Tokenizer,
    words: tf.Tensor,
    *,
    max_seq_length: int,
    window_stride: int = 0,
    max_windows: int = 0,
    separator: str = " ",
) -> TagInputs:
    """Of texts that are split already.

    Args:
        words: string [N, W]; "" is a word too.
        max_seq_length, window_stride: See `make_windows`.
        max_windows: A text that makes more is refused; 0: none is.
        separator: Between the words in the text that places refer to.
    """
    texts = tf.strings.reduce_join(words, axis=1, separator=separator)
    sizes = tf.strings.length(words)
    byte_starts = tf.cumsum(sizes + len(separator.encode()), axis=1, exclusive=True)
    ragged = tf.RaggedTensor.from_tensor(words)
    begins, ends = (
        tf.RaggedTensor.from_tensor(places) for places in (byte_starts, byte_starts + sizes)
    )
    lengths = (max_seq_length, window_stride, max_windows)
    return _of_words(tokenizer, texts, ragged, begins, ends, *lengths)


def tag_inputs_from_characters(
    tokenizer: Tokenizer,
    texts: tf.Tensor,
    *,
    max_seq_length: int,
    window_stride: int = 0,
    max_windows: int = 0,
) -> TagInputs:
    """Of running texts, string [N], each of whose characters is a word; see `characters`."""
    lengths = (max_seq_length, window_stride, max_windows)
    return _of_words(tokenizer, texts, *split_texts(texts, tokenizer), *lengths)


def _of_words(
    tokenizer: Tokenizer,
    texts: tf.Tensor,
    words: tf.RaggedTensor,
    begins: tf.RaggedTensor,
    ends: tf.RaggedTensor,
    max_seq_length: int,
    window_stride: int,
    max_windows: int,
) -> TagInputs:
    """Of words [N, (words)], which lie at these bytes of the texts."""
    ids, index = tokenizer.tokenize_words(words)
    windows = make_windows(tokenizer, ids, max_seq_length, window_stride)
    with tf.control_dependencies(_refusals(windows, max_windows)):
        number = tf.gather(words.row_starts(), ids.value_rowids())
        number += tf.cast(index.values, tf.int64)
        return _inputs(texts, words, begins, ends, windows, number)


def tag_inputs_from_texts(
    tokenizer: Tokenizer,
    texts: tf.Tensor,
    *,
    max_seq_length: int,
    window_stride: int = 0,
    max_windows: int = 0,
) -> TagInputs:
    """Of running texts, string [N], split as said above; else as `tag_inputs_from_words`."""
    pieces = tokenizer.tokenize_with_offsets(texts)
    windows = make_windows(tokenizer, pieces.ids, max_seq_length, window_stride)
    with tf.control_dependencies(_refusals(windows, max_windows)):
        return _split(tokenizer, texts, pieces, windows)


def _refusals(windows: WordWindows, max_windows: int) -> list[tf.Operation]:
    """What fails, before more is done with it, for too long a text."""
    if not max_windows:
        return []
    most = tf.reduce_max(tf.concat([windows.counts, [0]], 0))
    words = ["A text makes", most, f"windows; this model takes {max_windows} at most. Send it in"]
    words.append("parts, or export the model with a larger --export_max_windows.")
    return [tf.debugging.Assert(most <= max_windows, words)]


def _split(
    tokenizer: Tokenizer, texts: tf.Tensor, pieces: Pieces, windows: WordWindows
) -> TagInputs:
    ids, starts, ends = pieces
    continues = tf.gather(tf.constant(tokenizer.is_continuation), ids.values)
    row = ids.value_rowids()
    same = tf.concat([[False], row[1:] == row[:-1]], 0)[: tf.size(row)]
    token, first_of_token, last_of_token = _groups(~(same & continues))
    text = tf.gather(ids.value_rowids(), first_of_token)
    begins = tf.gather(starts.values, first_of_token)
    finishes = tf.gather(ends.values, last_of_token)
    new_word = _word_begins(texts, text, begins, finishes)

    word, first_of_word, last_of_word = _groups(new_word)
    text = tf.gather(text, first_of_word)
    begins, finishes = tf.gather(begins, first_of_word), tf.gather(finishes, last_of_word)
    words = tf.RaggedTensor.from_value_rowids(
        text_slices(texts, text, begins, finishes),
        text,
        nrows=ids.nrows(),
        validate=False,
    )
    begins, finishes = words.with_values(begins), words.with_values(finishes)
    return _inputs(texts, words, begins, finishes, windows, tf.gather(word, token))


def _groups(begins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """int64: the group of each item; the first and the last item of each group."""
    number = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    firsts = tf.where(begins)[:, 0]
    lasts = tf.concat([firsts[1:], [tf.size(begins, tf.int64)]], 0) - 1
    # Of no group there is no last item either.
    return number, firsts, lasts[: tf.size(firsts)]


def _word_begins(texts, text, begins, ends) -> tf.Tensor:
    """bool [tokens]: a word begins here.

    Args:
        texts: string [N].
        text: int64 [tokens]; which text each is of.
        begins, ends: int32 [tokens]; its place there, in bytes.
    """
    size = tf.size(text)
    slices = text_slices(texts, text, begins, ends)
    punctuation = tf.strings.regex_full_match(slices, _PUNCTUATION)
    chinese = tf.strings.regex_full_match(slices, _CHINESE)
    touches = (text[1:] == text[:-1]) & (begins[1:] == ends[:-1])
    touches &= ~chinese[1:] & ~chinese[:-1]
    touches = tf.concat([[False], touches], 0)[:size]

    # How many tokens that are no punctuation there are in the chunk, before and from here on.
    chunk = tf.cumsum(tf.cast(~touches, tf.int64)) - 1
    other = tf.cast(~punctuation, tf.int32)
    upto = tf.cumsum(other, exclusive=True)
    chunks = tf.where(size > 0, tf.reduce_max(chunk) + 1, 0)
    of_chunk = tf.math.unsorted_segment_sum(other, chunk, chunks)
    before = upto - tf.gather(tf.cumsum(of_chunk, exclusive=True), chunk)
    from_here = tf.gather(of_chunk, chunk) - before
    begin = ~touches | (before == 0) | (from_here == 0)

    # 's
    apostrophe = tf.reduce_any(slices[:, tf.newaxis] == tf.constant(_APOSTROPHES), 1)
    s = (tf.strings.lower(slices) == "s") & (from_here == 1)
    nothing = tf.zeros([1], tf.bool)
    owner = apostrophe & tf.concat([(s & touches)[1:], nothing], 0)[:size]
    owner &= before > 0
    owned = tf.concat([nothing, owner[:-1]], 0)[:size]
    return (begin | owner) & ~owned


def _inputs(texts, words, byte_starts, byte_ends, windows: WordWindows, number) -> TagInputs:
    """Puts together what both ways have; `number` int64 [pieces]: the word of each piece."""
    first = tf.concat([[True], number[1:] != number[:-1]], 0)[: tf.size(number)]
    pieces = tf.where(first)[:, 0]
    return TagInputs(
        texts,
        words,
        byte_starts,
        byte_ends,
        bytes_to_characters(texts, byte_starts),
        bytes_to_characters(texts, byte_ends),
        windows.input_ids,
        windows.scored,
        pieces,
        tf.gather(number, pieces),
    )
