"""SQuAD examples and windows exactly as the original release makes them.

For `--original_postprocessing` of run_squad.py, and to compare with the original. Here a context
is a list of words, cut at " ", tab, CR, LF and U+202F only; a training answer is located by words,
and left out when the words don't hold it. What answers become of logits over these windows is
`data.tasks.questions.original_answers`' matter.
"""

import bisect
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.features import Features, feature_portions
from data.tasks.questions.squad import Question
from data.tasks.questions.windows import check_question_lengths
from data.tokenization.tokenizer import Tokenizer

FIRST_UNIQUE_ID = 1_000_000_000

_WORD = re.compile(r"[^ \t\r\n\u202f]+")
# So much is tokenized in one graph call, a question counting as some words.
_CHUNK_WORDS = 100_000
_QUESTION_WORDS = 100
# So many of the answers left out are logged one by one.
_LOGGED_SKIPS = 20


@dataclasses.dataclass(frozen=True)
class OriginalExample:
    """A question as the original reads it.

    Attributes:
        id: Of the question.
        question: Its text.
        doc_tokens: Words of the context; questions about one context share the list.
        answer: Text of the answer to train on, "" if there is none; None in prediction.
        start_position: Index of the word that holds the answer's first character; -1 without
            answer. None in prediction.
        end_position: Index of the word that holds its last one, as start_position.
        is_impossible: Has no answer; always False in prediction and without SQuAD 2.0.
        source: "file: place", for messages.
    """

    id: str
    question: str
    doc_tokens: list[str]
    answer: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    source: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeature:
    """One window: [CLS] question [SEP] part of the context [SEP].

    Attributes:
        unique_id: Counts windows, from 1000000000.
        example_index: Which example, from 0.
        doc_span_index: Which window of the example, from 0.
        tokens: Pieces as text.
        input_ids: int32 [num_tokens], not padded.
        segment_b_start: Index of the first piece of the context.
        token_to_orig_map: int32 [pieces of the context]: the word that each of them is part of.
            The first stands at segment_b_start.
        token_is_max_context: bool [pieces of the context]: no other window shows the piece with
            more on both sides.
        padded_length: max_seq_length.
        start_position: First piece of the answer, 0 if the window doesn't hold all of it or there
            is none. None in prediction.
        end_position: Its last piece, as start_position.
        is_impossible: As the example's.
    """

    unique_id: int
    example_index: int
    doc_span_index: int
    tokens: tuple[str, ...]
    input_ids: np.ndarray
    segment_b_start: int
    token_to_orig_map: np.ndarray
    token_is_max_context: np.ndarray
    padded_length: int
    start_position: int | None
    end_position: int | None
    is_impossible: bool

    @property
    def num_tokens(self) -> int:
        """How many pieces there are before padding."""
        return len(self.tokens)


def read_squad_examples(
    questions: Iterable[Question], is_training: bool, version_2_with_negative: bool
) -> list[OriginalExample]:
    """Questions as the original reads them.

    In prediction every question becomes an example, and neither answers nor is_impossible are
    looked at. In training a question is left out, and a warning logged, if its answer isn't found
    in the words around its place. The original ends with an IndexError where that place is
    outside of the context; here such a question is left out as well.

    Args:
        questions: With answers as in the file: read with `training=False` even to train, since
            otherwise the reader mends places that the original doesn't.
        is_training: Whether answers are needed.
        version_2_with_negative: Whether a question may be without answer.

    Raises:
        DataError: In training, a question that hasn't exactly one answer.
    """
    examples = []
    left_out = 0
    context, words, starts = None, [], []
    for question in questions:
        if question.context != context:
            context = question.context
            matches = list(_WORD.finditer(context))
            words = [match.group() for match in matches]
            starts = [match.start() for match in matches]
        example = OriginalExample(question.id, question.question, words, source=question.source)
        if is_training:
            example = _with_answer(example, question, starts, version_2_with_negative)
        if example is not None:
            examples.append(example)
            continue
        left_out += 1
        if left_out <= _LOGGED_SKIPS:
            answer = question.answers[0]
            logging.warning(
                f"{question.source}: question {question.id} is left out: its answer "
                f"{answer.text!r} isn't at character {answer.start}."
            )
    if left_out:
        logging.warning(
            f"{left_out} of {left_out + len(examples)} questions are left out, since the words of "
            "the context don't hold their answers where they should be."
        )
    return examples


def build_squad_features(
    examples: Sequence[OriginalExample],
    tokenizer: Tokenizer,
    is_training: bool,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> Iterator[SquadFeature]:
    """The windows of all examples, in order.

    A question is cut at its end to max_query_length pieces. The next window begins doc_stride
    pieces behind the last one's beginning, or right behind it if it is shorter than that. An
    example whose context has no pieces has no window. In training the answer's words are narrowed
    to the first pieces among them that equal the pieces of its text, if there are any.

    Args:
        examples: From `read_squad_examples`.
        tokenizer: Makes the pieces, of every word on its own.
        is_training: Whether to find the positions of answers.
        max_seq_length, doc_stride, max_query_length: In pieces.

    Raises:
        DataError: Nothing of the context would fit, or windows would not move on.
    """
    # Not a generator itself, so that wrong lengths are told at once.
    check_question_lengths(max_seq_length, max_query_length, doc_stride)
    return _features(examples, tokenizer, is_training, max_seq_length, doc_stride, max_query_length)


def squad_feature_rows(
    features: Sequence[SquadFeature], max_seq_length: int, pad_id: int
) -> Features:
    """The features as arrays that batches are made of; see `data.batching`."""
    places = [(feature.start_position or 0, feature.end_position or 0) for feature in features]
    return Features.of_single_rows(
        np.array([feature.num_tokens for feature in features]),
        ids=np.concatenate([feature.input_ids for feature in features]),
        first_lengths=np.array([feature.segment_b_start for feature in features], np.int32),
        label_ids=np.array(places, np.int32).reshape(-1, 2),
        max_seq_length=max_seq_length,
        pad_id=pad_id,
    )


def _with_answer(
    example: OriginalExample, question: Question, starts: list[int], version_2_with_negative: bool
) -> OriginalExample | None:
    """The example with its answer; None if the words don't hold it."""
    if version_2_with_negative and question.is_impossible:
        return dataclasses.replace(
            example, answer="", start_position=-1, end_position=-1, is_impossible=True
        )
    if len(question.answers) != 1:
        raise DataError(
            f"{question.source}: question {question.id} has {len(question.answers)} answers; to "
            "train as the original release does, a question has exactly one"
            + (", or none and is_impossible" if version_2_with_negative else "")
            + ". Take the training file; if it is of SQuAD 2.0, with --version_2_with_negative."
        )
    answer = question.answers[0]
    last = answer.start + len(answer.text) - 1
    length = len(question.context)
    if not starts or not 0 <= answer.start < length or last >= length:
        return None
    # The character before an empty answer at the context's beginning is the context's last one.
    last %= length
    # White space belongs to the word before it; before the first word that is -1, and as an
    # index the last word.
    start = bisect.bisect_right(starts, answer.start) - 1
    end = bisect.bisect_right(starts, last) - 1
    # Unlike contexts, answers are split at every white space that Python knows.
    if " ".join(answer.text.split()) not in " ".join(example.doc_tokens[start : end + 1]):
        return None
    return dataclasses.replace(example, answer=answer.text, start_position=start, end_position=end)


def _features(
    examples, tokenizer, is_training, max_seq_length, doc_stride, max_query_length
) -> Iterator[SquadFeature]:
    unique_id = FIRST_UNIQUE_ID
    for chunk in feature_portions(_sizes(examples), _CHUNK_WORDS):
        some = examples[chunk]
        contexts = _contexts(tokenizer, some)
        queries = _pieces(tokenizer, [example.question for example in some])
        answers = [None] * len(some)
        if is_training:
            answers = _pieces(tokenizer, [example.answer for example in some])
        for place, (example, query, answer) in enumerate(zip(some, queries, answers, strict=True)):
            ids, words = contexts[id(example.doc_tokens)]
            query = query[:max_query_length]
            offset = len(query) + 2
            span = None if answer is None else _answer_span(example, answer, ids, words)
            windows, is_best = _windows(len(ids), max_seq_length - offset - 1, doc_stride)
            for number, (start, end) in enumerate(windows):
                parts = [[tokenizer.cls_id], query, [tokenizer.sep_id], ids[start:end]]
                input_ids = np.concatenate([*parts, [tokenizer.sep_id]]).astype(np.int32)
                first = last = None
                if span is not None:
                    # An impossible question's answer, -1 to -1, is in no window.
                    whole = start <= span[0] and span[1] < end
                    first, last = (p - start + offset if whole else 0 for p in span)
                yield SquadFeature(
                    unique_id=unique_id,
                    example_index=chunk.start + place,
                    doc_span_index=number,
                    tokens=tuple(map(tokenizer.vocab.__getitem__, input_ids.tolist())),
                    input_ids=input_ids,
                    segment_b_start=offset,
                    token_to_orig_map=words[start:end],
                    token_is_max_context=is_best[number],
                    padded_length=max_seq_length,
                    start_position=first,
                    end_position=last,
                    is_impossible=example.is_impossible,
                )
                unique_id += 1


def _answer_span(
    example: OriginalExample, answer: np.ndarray, ids: np.ndarray, words: np.ndarray
) -> tuple[int, int]:
    """First and last piece of the answer, narrowed to the pieces of its text."""
    if example.is_impossible:
        return -1, -1
    start_word = example.start_position % len(example.doc_tokens)
    start = int(np.searchsorted(words, start_word))
    end = int(np.searchsorted(words, example.end_position, side="right")) - 1
    # Of the spans that equal the answer, all as long as it, the first counts.
    for first in range(start, end - len(answer) + 2 if len(answer) else start):
        if np.array_equal(ids[first : first + len(answer)], answer):
            return first, first + len(answer) - 1
    return start, end


@functools.lru_cache(maxsize=256)
def _windows(length: int, room: int, stride: int) -> tuple[list[tuple[int, int]], list[np.ndarray]]:
    windows = []
    start = 0
    while start < length:
        end = min(start + room, length)
        windows.append((start, end))
        if end == length:
            break
        start += min(end - start, stride)
    best_score = np.full(length, -1.0)
    best_window = np.zeros(length, np.int32)
    for number, (start, end) in enumerate(windows):
        left = np.arange(end - start)
        score = np.minimum(left, left[::-1]) + 0.01 * (end - start)
        # Only a better one counts, so of equal windows the first.
        better = score > best_score[start:end]
        best_score[start:end][better] = score[better]
        best_window[start:end][better] = number
    return windows, [best_window[s:e] == number for number, (s, e) in enumerate(windows)]


def _sizes(examples: Sequence[OriginalExample]) -> list[int]:
    """Words of each context where it comes first, and some for the question."""
    contexts = [None, *(example.doc_tokens for example in examples)]
    pairs = itertools.pairwise(contexts)
    return [_QUESTION_WORDS + (len(own) if own is not last else 0) for last, own in pairs]


def _contexts(
    tokenizer: Tokenizer, examples: Sequence[OriginalExample]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """int32 pieces, and the word of each, by the identity of the list of words."""
    lists = {id(example.doc_tokens): example.doc_tokens for example in examples}
    flat = [word for words in lists.values() for word in words]
    words = tf.RaggedTensor.from_row_lengths(
        tf.constant(flat, tf.string, [len(flat)]), [len(words) for words in lists.values()]
    )
    pieces = tokenizer.tokenize_words(words)
    return dict(zip(lists, zip(_rows(pieces.ids), _rows(pieces.words), strict=True), strict=True))


def _pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    return _rows(tokenizer.tokenize(tf.constant(texts, tf.string, [len(texts)])))


def _rows(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])
