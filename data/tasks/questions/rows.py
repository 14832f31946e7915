"""Questions to rows of pieces with the places of their answers, and spans back to text.

rows = make_question_rows(tokenizer, questions, QuestionSettings(384, 128, 64), training=True)
batches(rows.features, Batching(12, batching_length_buckets(384)), training=True)
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError, error_list
from data.features import Features, concatenated_features, feature_row_splits
from data.progress import portions
from data.tasks.questions.squad import Question
from data.tasks.questions.windows import check_question_lengths, make_windows
from data.tokenization import Tokenizer

_QUESTIONS_AT_ONCE = 128


@dataclasses.dataclass(frozen=True)
class QuestionSettings:
    """How questions become rows; the names are the original's flags."""

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64


@dataclasses.dataclass(frozen=True)
class QuestionRows:
    """Rows of all questions, one after the other.

    Attributes:
        features: A row each; `label_ids` int32 [rows, 2] are the places of the answer's first and
            last piece, 0 and 0 where the row doesn't hold all of it. `extra` has `start_range`.
        counts: int64 [questions]; rows of each.
        offsets: int64 [rows]; place in the context's pieces minus place in the row.
        splits: int64 [questions + 1]; question q has the pieces splits[q] to splits[q + 1].
        starts, ends: int32 [pieces]; where each lies in its context, in characters.
        found: bool [questions]; whether the answer consists of pieces.
    """

    features: Features
    counts: np.ndarray
    offsets: np.ndarray
    splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    found: np.ndarray

    def questions_of_length(self, length: int) -> int:
        """How many questions have so many pieces, those before the first [SEP]."""
        first_rows = np.cumsum(self.counts) - self.counts
        return int((self.features.first_lengths[first_rows] == length + 2).sum())

    def characters(self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray):
        """Characters of spans given by places in rows: (from, to before which), of same shape."""
        if not len(self.starts):
            # All contexts are without pieces, such as of zero width spaces only.
            return np.zeros_like(starts), np.zeros_like(ends)
        question = np.repeat(np.arange(len(self.counts)), self.counts)[rows]
        base = self.splits[question] + self.offsets[rows]
        last = len(self.starts) - 1
        return (
            self.starts[np.clip(base + starts, 0, last)],
            self.ends[np.clip(base + ends, 0, last)],
        )


def make_question_rows(
    tokenizer: Tokenizer, questions: Sequence[Question], settings: QuestionSettings, training: bool
) -> QuestionRows:
    """Tokenises questions and contexts and cuts them into windows, see `make_windows`.

    To train the answers are looked for: the first of each question, whose pieces are all those
    that share a character with it.

    Raises:
        DataError: The lengths leave no room for a context.
    """
    check_question_lengths(settings.max_seq_length, settings.max_query_length, settings.doc_stride)

    windows = _windows_function(tokenizer, settings)
    whole = concatenated_features(
        windows(
            tf.constant([question.question for question in some]),
            tf.constant([question.context for question in some]),
        )
        for some in portions("Tokenising", "questions", questions, _QUESTIONS_AT_ONCE)
    )
    splits = feature_row_splits(whole["pieces"])
    counts, first_lengths = whole["counts"], whole["first_lengths"]
    offsets = whole["begins"] - first_lengths
    labels = np.zeros((len(offsets), 2), np.int32)
    found = np.zeros(len(questions), bool)
    if training:
        spans, found = _answer_pieces(questions, splits, whole["starts"], whole["ends"])
        # In the rows that hold the whole of them.
        of_rows = np.repeat(spans, counts, axis=0) - offsets[:, np.newaxis]
        held = (of_rows[:, 0] >= first_lengths) & (of_rows[:, 1] < whole["lengths"] - 1)
        held &= np.repeat(found, counts)
        labels[held] = of_rows[held]
    return QuestionRows(
        features=Features.of_single_rows(
            whole["lengths"],
            ids=whole["ids"],
            first_lengths=first_lengths,
            label_ids=labels,
            max_seq_length=settings.max_seq_length,
            pad_id=tokenizer.pad_id,
            extra={"start_range": whole["start_range"]},
        ),
        counts=counts,
        offsets=offsets,
        splits=splits,
        starts=whole["starts"],
        ends=whole["ends"],
        found=found,
    )


def training_question_rows(
    tokenizer: Tokenizer, questions: Sequence[Question], settings: QuestionSettings
) -> Features:
    """The rows to train on. Questions whose answer has no pieces are left out, with a warning.

    Raises:
        DataError: None is left, or the lengths leave no room for a context.
    """
    rows = make_question_rows(tokenizer, questions, settings, training=True)
    usable = rows.found | np.array([question.is_impossible for question in questions])
    lost = list(itertools.compress(questions, ~usable))
    if not lost:
        return rows.features
    if len(lost) == len(questions):
        raise DataError(
            f"{lost[0].source}: no piece of text is left of the answer, and of no other one of "
            f"{len(lost)} questions either, so that there is nothing to train on. Check that the "
            "answers have letters, and that the vocabulary is for their language."
        )
    logging.warning(
        f"{len(lost)} of {len(questions)} questions are left out, since no piece of text is left "
        f"of their answer: {error_list((question.source for question in lost), 3)}"
    )
    return training_question_rows(tokenizer, list(itertools.compress(questions, usable)), settings)


@functools.lru_cache(maxsize=2)
def _windows_function(tokenizer: Tokenizer, settings: QuestionSettings):
    """The graph of `make_question_rows`, kept: prediction calls it once per thousand questions."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def windows(texts, contexts):
        rows = make_windows(tokenizer, texts, contexts, **dataclasses.asdict(settings))
        return {
            "ids": rows.input_ids.values,
            "lengths": rows.input_ids.row_lengths(),
            "first_lengths": rows.first_lengths,
            "counts": rows.counts,
            "begins": rows.begins,
            "start_range": rows.start_range,
            "pieces": rows.starts.row_lengths(),
            "starts": tf.cast(rows.starts.values, tf.int32),
            "ends": tf.cast(rows.ends.values, tf.int32),
        }

    return windows


def _answer_pieces(questions, splits, starts, ends) -> tuple[np.ndarray, np.ndarray]:
    """(int64 [questions, 2] first and last piece of the answer, bool [questions])."""
    spans = np.zeros((len(questions), 2), np.int64)
    found = np.zeros(len(questions), bool)
    for number, question in enumerate(questions):
        if question.is_impossible or not question.answers:
            continue
        answer = question.answers[0]
        part = slice(splits[number], splits[number + 1])
        # The first piece that ends behind the answer's begin, the last that begins before its end.
        first = np.searchsorted(ends[part], answer.start, side="right")
        last = np.searchsorted(starts[part], answer.start + len(answer.text), side="left") - 1
        if first <= last:
            spans[number], found[number] = (first, last), True
    return spans, found
