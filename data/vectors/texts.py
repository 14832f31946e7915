"""Lines of text to rows for a model and back: the text side of `modeling.extract_features`.

for chunk in read_vector_texts("input.txt", tokenizer, settings):
    vectors = …  # of chunk.features
    writer.write(chunk.rows(vectors))
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.features import Features, feature_portions
from data.files.lines import numbered_lines, text_portions
from data.tokenization import Tokenizer
from data.tokenization.inputs import check_token_length, pack_inputs
from data.tokenization.offsets import bytes_to_characters
from data.tokenization.words import separated_words

WORD_POOLINGS = ("mean", "max", "first")

_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_LINES_AT_ONCE = 4096
_CHARACTERS_AT_ONCE = 2**21


@dataclasses.dataclass(frozen=True)
class VectorTextSettings:
    """How lines become rows and rows what is written.

    Attributes:
        max_seq_length: Of a row, [CLS] and [SEP] counted; longer texts are cut as for
            classification.
        max_pieces: Most pieces of a chunk of several lines, for where the vectors of every piece
            are held in memory; 0 for no limit.
        word_pooling: Vectors of words instead of pieces: "mean" or "max" of the word's pieces, or
            its "first"; None for pieces.
        normalize: Scales the vectors of words to length 1, layer by layer. Those of pieces and of
            whole texts come scaled.
    """

    max_seq_length: int
    max_pieces: int = 0
    word_pooling: str | None = None
    normalize: bool = False

    def __post_init__(self):
        check_token_length(self.max_seq_length)
        if self.word_pooling not in (None, *WORD_POOLINGS):
            raise DataError(
                f"The pooling of words is {self.word_pooling!r}; it may be one of "
                f"{', '.join(WORD_POOLINGS)}."
            )


class LineVectors(NamedTuple):
    """What is written of a line.

    Attributes:
        index: The line's number, from 0.
        vectors: float32 [V, layers, width].
        ids: int32 [V], of pieces; None where the vectors are of words or of the whole line.
        tokens: Pieces or words, V of them; None where the vector is of the whole line.
        spans: int32 [V, 2], where words stand in the line, in characters; else None.
    """

    index: int
    vectors: np.ndarray
    ids: np.ndarray | None = None
    tokens: Sequence[str] | None = None
    spans: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class _LineChunk:
    """Some lines in a row.

    Attributes:
        first: Number of the first one, from 0.
        lines: As they stand in the file.
        features: Their rows.
        vocab: The tokenizer's.
        word_pooling, normalize: See `VectorTextSettings`.
        spans: Only with `word_pooling`: int32 [pieces, 2], characters in the line of the word that
            each piece is of; -1 at [CLS] and [SEP].
    """

    first: int
    lines: Sequence[str]
    features: Features
    vocab: Sequence[str]
    word_pooling: str | None = None
    spans: np.ndarray | None = None
    normalize: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self, vectors: np.ndarray) -> Iterator[LineVectors]:
        """What is to be written.

        Args:
            vectors: float32 [lines, layers, width], or [pieces, layers, width] of all pieces.
        """
        pooled = len(vectors) == len(self)  # every line has [CLS] and [SEP] at least
        if self.spans is not None:
            yield from self._word_rows(vectors)
            return
        for number in range(len(self)):
            index = self.first + number
            if pooled:
                yield LineVectors(index, vectors[number : number + 1])
                continue
            span = slice(*self.features.splits[number : number + 2])
            ids = self.features.ids[span]
            yield LineVectors(index, vectors[span], ids, [self.vocab[i] for i in ids])

    def _word_rows(self, vectors: np.ndarray) -> Iterator[LineVectors]:
        places = np.flatnonzero(self.spans[:, 0] >= 0)
        line_of = np.repeat(np.arange(len(self)), self.features.lengths)[places]
        changes = np.diff(np.stack([line_of, self.spans[places, 0]]), prepend=-1).any(axis=0)
        firsts = np.flatnonzero(changes)
        vectors = _pooled_words(vectors[places], firsts, self.word_pooling)
        if self.normalize:
            lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
            vectors = vectors / np.where(lengths > 0, lengths, 1)
        spans = self.spans[places[firsts]]
        splits = np.searchsorted(line_of[firsts], np.arange(len(self) + 1))
        for number, line in enumerate(self.lines):
            part = slice(*splits[number : number + 2])
            tokens = [line[start:end] for start, end in spans[part]]
            yield LineVectors(self.first + number, vectors[part], None, tokens, spans[part])


def _pooled_words(vectors: np.ndarray, firsts: np.ndarray, pooling: str) -> np.ndarray:
    """[pieces, …] → [words, …]; `firsts` int [words] are the first pieces, ascending."""
    if pooling == "first" or not len(firsts):
        return vectors[firsts]
    if pooling == "max":
        return np.maximum.reduceat(vectors, firsts)
    counts = np.diff(np.append(firsts, len(vectors))).astype(np.float32)
    counts = counts.reshape(-1, *(1 for _ in vectors.shape[1:]))
    return np.add.reduceat(vectors, firsts) / counts


def read_vector_texts(
    path: str, tokenizer: Tokenizer, settings: VectorTextSettings
) -> Iterator[_LineChunk]:
    """Reads a file of lines, some thousands at a time; memory doesn't grow with the file.

    A line is a text, or a pair of texts with " ||| " between them (of several the last one
    counts, as in the original). An empty line is an empty text.

    Raises:
        DataError: The file can't be read or isn't UTF-8 text; names the line.
    """
    pack = _packer(tokenizer, settings)
    first = 0
    for lines in _some_lines(path):
        arrays = {name: tensor.numpy() for name, tensor in pack(lines).items()}
        spans = arrays.pop("spans", None)
        features = Features.of_single_rows(
            **arrays, max_seq_length=settings.max_seq_length, pad_id=tokenizer.pad_id
        )
        for some in feature_portions(features.lengths, settings.max_pieces or len(features.ids)):
            pieces = slice(*features.splits[[some.start, some.stop]])
            yield _LineChunk(
                first + some.start,
                lines[some],
                features.part(some.start, some.stop),
                tokenizer.vocab,
                settings.word_pooling,
                None if spans is None else spans[pieces],
                settings.normalize,
            )
        first += len(lines)


def _split_pair(line: str) -> tuple[str, int, str, int]:
    """(text A, its place in the line, text B or "", its place), without white space around."""
    text = line.strip()
    offset = len(line) - len(line.lstrip()) if text else 0
    match = _PAIR.match(text)
    if not match:
        return text, offset, "", 0
    return match[1], offset, match[2], offset + match.start(2)


def _some_lines(path: str) -> Iterator[list[str]]:
    lines = (line for _, line in numbered_lines(path, strip=False))
    return text_portions(lines, _LINES_AT_ONCE, _CHARACTERS_AT_ONCE)


class _Specials(NamedTuple):
    """In place of a tokenizer: numbers that are no pieces'."""

    cls_id: int = -1
    sep_id: int = -2


def _packer(tokenizer: Tokenizer, settings: VectorTextSettings):
    """The function from lines to arrays of rows: `Features`' and, with words, the words' spans."""
    limit = settings.max_seq_length
    strings = [tf.TensorSpec([None], tf.string)] * 2

    def of_rows(ids, lengths, segments) -> dict[str, tf.Tensor]:
        lengths = tf.cast(lengths, tf.int32)
        first_lengths = lengths - tf.reduce_sum(segments, 1)
        return {"ids": ids, "lengths": lengths, "first_lengths": first_lengths}

    @tf.function(input_signature=strings, autograph=False)
    def pieces(texts_a, texts_b):
        tokenized = tokenizer.tokenize(texts_a), tokenizer.tokenize(texts_b)
        ids, segments = pack_inputs(tokenizer, *tokenized, max_seq_length=limit)
        return of_rows(ids.values, ids.row_lengths(), segments)

    @tf.function(input_signature=[*strings, tf.TensorSpec([None], tf.int32)], autograph=False)
    def words(texts_a, texts_b, offsets):
        texts = tf.concat([texts_a, texts_b], 0)
        tokenized = tokenizer.tokenize_with_offsets(texts)
        numbers, segments = _packed_numbers(tokenized.ids, limit)
        is_piece = numbers.values >= 0
        at = tf.where(is_piece, numbers.values, 0)
        flat = tf.concat([tokenized.ids.values, [0]], 0)
        special = tf.where(numbers.values == -1, tokenizer.cls_id, tokenizer.sep_id)
        ids = tf.where(is_piece, tf.gather(flat, at), special)
        separated = separated_words(texts, tokenized.starts)
        text = tokenized.starts.value_rowids()
        word = tf.gather(separated.starts.row_starts(), text)
        word += tf.cast(separated.numbers.values, tf.int64)

        def in_line(places: tf.RaggedTensor) -> tf.Tensor:
            characters = tf.gather(bytes_to_characters(texts, places).values, word)
            own = tf.cast(characters, tf.int32) + tf.gather(offsets, text)
            return tf.where(is_piece, tf.gather(tf.concat([own, [-1]], 0), at), -1)

        spans = tf.stack([in_line(separated.starts), in_line(separated.ends)], 1)
        return of_rows(ids, numbers.row_lengths(), segments) | {"spans": spans}

    def pack(lines: Sequence[str]) -> dict[str, tf.Tensor]:
        texts_a, offsets_a, texts_b, offsets_b = zip(*map(_split_pair, lines), strict=True)
        texts = tf.constant(texts_a), tf.constant(texts_b)
        if not settings.word_pooling:
            return pieces(*texts)
        return words(*texts, tf.constant([*offsets_a, *offsets_b]))

    return pack


def _packed_numbers(ids: tf.RaggedTensor, limit: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Rows of texts A, then as many texts B, packed: numbers of pieces, -1 [CLS], -2 [SEP]."""
    numbers = ids.with_values(tf.range(tf.size(ids.values)))
    half = numbers.nrows() // 2
    return pack_inputs(_Specials(), numbers[:half], numbers[half:], max_seq_length=limit)
