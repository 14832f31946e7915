"""Sentences to rows of pieces with the tags of first pieces, and what is predicted back to words.

rows = make_tagging_rows(tokenizer, sentences, tags, TaggingSettings(128))
batches(rows.features, Batching(32, batching_length_buckets(128)), training=True)
predicted = rows.tags_of_words(predicted_numbers, tags)
scores = rows.of_sentences(probabilities, 1.0)
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from data.features import Features, concatenated_features, feature_portions, feature_row_splits
from data.progress import work
from data.tasks.tagging.conll import ConllSentence
from data.tasks.tagging.schemes import OUTSIDE
from data.tasks.tagging.tags import NO_TAG, UNKNOWN_TAG, TagSet
from data.tasks.tagging.windows import check_tagged_word_lengths, make_windows
from data.tokenization import Tokenizer

_WORDS_AT_ONCE = 20_000


@dataclasses.dataclass(frozen=True)
class TaggingSettings:
    """How sentences become rows.

    Attributes:
        max_seq_length: Of a row, [CLS] and [SEP] counted.
        window_stride: See `windows.make_windows`; for sentences, or with document_context
            documents, that are longer than a row.
        document_context: A document is one text: rows are filled with neighbouring sentences,
            and every word is scored in the row where it has most context.
    """

    max_seq_length: int
    window_stride: int = 0
    document_context: bool = False


@dataclasses.dataclass(frozen=True)
class WordRows:
    """Rows of all sentences, one after the other, and where the words are in them.

    Attributes:
        features: A row each; `piece_labels` has the number of the tag at each word's first piece,
            in the one row where the word is scored; NO_TAG anywhere else, and at words without
            tag. (The paper, section 5.3, classifies first pieces only.)
        rows, places: int64 [K]; in which row and at which place of it each of K words is scored.
        words: int64 [K]; which word that is, counting through all sentences. Words that
            normalisation deletes have no piece, and so aren't among them.
        splits: int64 [sentences + 1]; sentence s has the words splits[s] to splits[s + 1].
        sources: Where each row comes from, "file:line" of its sentence or document.
        lengths: int64 [texts]; pieces of each sentence or document, [CLS] and [SEP] counted.
    """

    features: Features
    rows: np.ndarray
    places: np.ndarray
    words: np.ndarray
    splits: np.ndarray
    sources: Sequence[str]
    lengths: np.ndarray

    def of_words(self, values: np.ndarray, otherwise) -> np.ndarray:
        """[rows, length] → [words]; `otherwise` for words that no row has."""
        whole = np.full(int(self.splits[-1]), otherwise, values.dtype)
        whole[self.words] = values[self.rows, self.places]
        return whole

    def tags_of_words(self, numbers: np.ndarray, tags: TagSet) -> list[list[str]]:
        """Predicted tags of every sentence: exactly one for each word, O for those without piece.

        Args:
            numbers: int [rows, length], predicted at every place.
            tags: What the numbers mean.
        """
        names = np.array(tags.names, object)
        outside = tags.names.index(OUTSIDE)
        return [names[sentence].tolist() for sentence in self.of_sentences(numbers, outside)]

    def of_sentences(self, values: np.ndarray, otherwise) -> list[np.ndarray]:
        """[rows, length] → [words] of every sentence; `otherwise` for words that no row has."""
        whole = self.of_words(values, otherwise)
        edges = zip(self.splits[:-1], self.splits[1:], strict=True)
        return [whole[begin:end] for begin, end in edges]

    def mean_of_labelled(self, values: np.ndarray) -> float:
        """The mean of [rows, length] over the words whose tag has a number; 0 if none has."""
        places = self.features.splits[self.rows] + self.places
        labelled = self.features.piece_labels[places] != NO_TAG
        return float(values[self.rows, self.places][labelled].mean()) if labelled.any() else 0.0

    @property
    def words_without_piece(self) -> int:
        """How many words normalisation deletes; they are tagged O."""
        return int(self.splits[-1]) - len(self.words)

    @property
    def sentences_in_parts(self) -> int:
        """How many sentences have words that are scored in different rows."""
        sentence = np.searchsorted(self.splits, self.words, "right") - 1
        changes = (np.diff(self.rows) != 0) & (np.diff(sentence) == 0)
        return len(np.unique(sentence[1:][changes]))

    def unlabelled(self) -> "WordRows":
        """The same, no word's tag being known: UNKNOWN_TAG in place of what tags there are."""
        labels = np.full_like(self.features.piece_labels, NO_TAG)
        labels[self.features.splits[self.rows] + self.places] = UNKNOWN_TAG
        features = dataclasses.replace(self.features, piece_labels=labels)
        return dataclasses.replace(self, features=features)

    def joined(self, other: "WordRows") -> "WordRows":
        """These rows, and behind them those of other sentences."""
        more = {
            "rows": other.rows + len(self.features),
            "places": other.places,
            "words": other.words + self.splits[-1],
            "splits": other.splits[1:] + self.splits[-1],
            "sources": other.sources,
            "lengths": other.lengths,
        }
        joined = {name: np.concatenate([getattr(self, name), more[name]]) for name in more}
        return WordRows(features=self.features.joined(other.features), **joined)

    def places_in(self, other: "WordRows") -> list[np.ndarray]:
        """Where the words of these rows stand in rows that other pieces make of the same words.

        Returns:
            For each row int64 [its length, 2]: number and place of the other row that scores the
            word which is scored here; −1 where none is, here or there.
        """
        of_words = np.full((int(self.splits[-1]), 2), -1, np.int64)
        of_words[other.words] = np.stack([other.rows, other.places], 1)
        found = np.full((len(self.features.ids), 2), -1, np.int64)
        found[self.features.splits[self.rows] + self.places] = of_words[self.words]
        return np.split(found, self.features.splits[1:-1])

    def describe(self, index: np.ndarray) -> str:
        """Where the rows of a batch come from, for messages."""
        return ", ".join(dict.fromkeys(self.sources[place] for place in index if place >= 0))


def make_tagging_rows(
    tokenizer: Tokenizer,
    sentences: Sequence[ConllSentence],
    tags: TagSet,
    settings: TaggingSettings,
) -> WordRows:
    """Tokenises words one by one and cuts what is longer than a row into windows.

    Raises:
        DataError: The lengths leave no room.
    """
    check_tagged_word_lengths(settings.max_seq_length, settings.window_stride)

    windows = _windows_function(tokenizer, settings)
    texts = list(_texts(sentences, settings.document_context))
    lengths = [len(text) for text, _ in texts]
    parts = []
    before = 0
    with work("Tokenising", "sentences", len(texts)) as shown:
        for some in feature_portions(lengths, _WORDS_AT_ONCE):
            flat = [word for text, _ in texts[some] for word in text]
            ragged = tf.RaggedTensor.from_row_lengths(
                tf.constant(flat, tf.string, [len(flat)]), tf.constant(lengths[some], tf.int64)
            )
            part = windows(ragged)
            parts.append(part | {"words": part["words"] + before})
            before += len(flat)
            shown.add(some.stop - some.start)
    whole = concatenated_features(parts)

    # What the rows are scored for, in order, are the pieces in order.
    begin, end = whole["scored"].T
    row = np.repeat(np.arange(len(begin)), end - begin)
    text = np.repeat(np.arange(len(texts)), whole["counts"])
    place = np.arange(len(row)) - np.repeat(np.cumsum(end - begin) - end, end - begin)
    words = whole["words"]
    first = np.diff(words, prepend=-1) > 0
    row, place, words = row[first], place[first], words[first]
    splits = feature_row_splits(whole["lengths"])
    labels = np.full(len(whole["ids"]), NO_TAG, np.int32)
    labels[splits[row] + place] = tags.numbers(sentences)[words]
    return WordRows(
        features=Features.of_single_rows(
            whole["lengths"],
            ids=whole["ids"],
            first_lengths=whole["lengths"].astype(np.int32),
            max_seq_length=settings.max_seq_length,
            pad_id=tokenizer.pad_id,
            piece_labels=labels,
        ),
        rows=row,
        places=place,
        words=words,
        splits=feature_row_splits([len(sentence.words) for sentence in sentences]),
        sources=np.repeat([source for _, source in texts], whole["counts"]),
        lengths=np.bincount(text, end - begin, len(texts)).astype(np.int64) + 2,
    )


@functools.lru_cache(maxsize=2)
def _windows_function(tokenizer: Tokenizer, settings: TaggingSettings):
    """The graph of `make_tagging_rows`, the same for all files of a run."""

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.string)], autograph=False)
    def windows(words):
        pieces = tokenizer.tokenize_words(words)
        rows = make_windows(tokenizer, pieces.ids, settings.max_seq_length, settings.window_stride)
        base = tf.gather(words.row_starts(), pieces.words.value_rowids())
        return {
            "ids": rows.input_ids.values,
            "lengths": rows.input_ids.row_lengths(),
            "counts": rows.counts,
            "scored": rows.scored,
            "words": base + tf.cast(pieces.words.values, tf.int64),
        }

    return windows


def _texts(sentences, document_context: bool) -> Iterator[tuple[list[str], str]]:
    """Words and source of every sentence, or of every document."""
    words: list[str] = []
    for place, sentence in enumerate(sentences):
        if not words:
            source = sentence.source
        words.extend(sentence.words)
        last = place + 1 == len(sentences)
        if not document_context or last or sentences[place + 1].document != sentence.document:
            yield words, source
            words = []
