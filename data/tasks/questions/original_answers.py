"""From logits to SQuAD answers exactly as the original release makes them.

For `--original_postprocessing` of run_squad.py. An answer here is words of the context joined by
blanks, from which `final_answer_text` cuts what the pieces don't hold, as well as it can.

One thing differs: where SQuAD 2.0 is on and no span may be an answer, the original ends with an
AttributeError, or with an IndexError if the context has no window. Here the prediction is "".
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.tasks.questions.answers import question_softmax
from data.tasks.questions.original import OriginalExample, SquadFeature
from data.tokenization.tokenizer import Tokenizer

NO_ANSWER_ODDS = 1e6
"""Null odds of a question for which no span may be an answer."""

Window = tuple[SquadFeature, np.ndarray, np.ndarray]
"""A feature, its start logits and its end logits, float32 [max_seq_length], padding included."""

# So many different words are remembered.
_REMEMBERED = 200_000


@dataclasses.dataclass(frozen=True)
class OriginalSettings:
    """What the original has as flags of the same names."""

    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False
    null_score_diff_threshold: float = 0.0

    def __post_init__(self):
        if self.n_best_size < 1 or self.max_answer_length < 1:
            raise DataError(
                f"n_best_size is {self.n_best_size} and max_answer_length "
                f"{self.max_answer_length}; both have to be at least 1."
            )


class OriginalCandidate(NamedTuple):
    """One of the n best answers; "" says that there is none."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class _Prediction:
    """What is predicted for a question.

    Attributes:
        id: Of the question.
        text: The answer; "" for none with SQuAD 2.0, "empty" if no span is one without it.
        nbest: The best candidates first. With SQuAD 2.0 "" is one of them, and may be one more
            than n_best_size.
        null_odds: With SQuAD 2.0 the score of no answer less that of the best one, else None.
    """

    id: str
    text: str
    nbest: list[OriginalCandidate]
    null_odds: float | None

    @property
    def best_text(self) -> str:
        """What is answered if something is."""
        if self.null_odds is None:
            return self.text
        return next((candidate.text for candidate in self.nbest if candidate.text), "")

    def n_best(self) -> list[dict]:
        """Entries of nbest_predictions.json."""
        return [candidate._asdict() for candidate in self.nbest]


class _BasicWords:
    """The original's basic tokenization of words, which are remembered.

    Args:
        tokenizer: Only its normalisation and splitting are used, not its vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._known: dict[str, str] = {}

    def join(self, words: Sequence[str]) -> str:
        """Basic tokens of words that no white space is in, joined by blanks."""
        self.learn(words)
        return " ".join(filter(None, map(self._known.__getitem__, words)))

    def learn(self, words: Iterable[str]) -> None:
        """Tokenizes all words that aren't known, at once."""
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        if not new:
            return
        if len(self._known) > _REMEMBERED:
            new = list(dict.fromkeys(words))
            self._known = {}
        # JSON can write half a surrogate pair, which UTF-8 can't.
        encoded = tf.constant([word.encode("utf-8", "ignore") for word in new], tf.string)
        tokens = tf.strings.reduce_join(
            self._tokenizer.split_words(encoded), axis=-1, separator=" "
        )
        joined = (token.decode("utf-8") for token in tokens.numpy())
        self._known.update(zip(new, joined, strict=True))


def predict_as_original(
    examples: Iterable[OriginalExample],
    windows: Iterable[Window],
    tokenizer: Tokenizer,
    settings: OriginalSettings,
) -> Iterator[_Prediction]:
    """Predictions, question by question; only one question's windows are held.

    Args:
        examples: All of them, those without windows too.
        windows: In the order of `build_squad_features`, whose tokenizer it has to be.

    Raises:
        ValueError: The windows aren't in order, or are not of these examples.
    """
    basic = _BasicWords(tokenizer)
    windows = iter(windows)
    following = next(windows, None)
    for index, example in enumerate(examples):
        own = []
        while following is not None and following[0].example_index == index:
            own.append(following)
            following = next(windows, None)
        yield _prediction(example, own, basic, settings)
    if following is not None:
        raise ValueError(
            f"Window {following[0].unique_id} of example {following[0].example_index} is out of "
            "order or of no example."
        )


def _prediction(
    example: OriginalExample, windows: Sequence[Window], basic: _BasicWords, settings
) -> _Prediction:
    """The prediction for one question from all its windows."""
    if windows:
        basic.learn(example.doc_tokens)
    null_logits, spans = _spans(windows, settings)
    logits: dict[str, tuple[float, float]] = {}
    for span in spans:
        if len(logits) == settings.n_best_size:
            break
        text = _text(windows, span, example, basic) if span else ""
        logits.setdefault(text, span.logits if span else null_logits)
    if settings.version_2_with_negative:
        logits.setdefault("", null_logits)
    elif not logits:
        logits["empty"] = (0.0, 0.0)
    probabilities = question_softmax([start + end for start, end in logits.values()])
    candidates = [
        OriginalCandidate(text, probability, *pair)
        for (text, pair), probability in zip(logits.items(), probabilities, strict=True)
    ]
    if not settings.version_2_with_negative:
        return _Prediction(example.id, candidates[0].text, candidates, None)
    best = next((candidate for candidate in candidates if candidate.text), None)
    if best is None:
        return _Prediction(example.id, "", candidates, NO_ANSWER_ODDS)
    odds = sum(null_logits) - best.start_logit - best.end_logit
    text = "" if odds > settings.null_score_diff_threshold else best.text
    return _Prediction(example.id, text, candidates, odds)


def _best_indexes(logits: np.ndarray, n_best_size: int) -> np.ndarray:
    """Indexes of the largest logits, the largest first, of equal ones the first.

    Args:
        logits: float [..., positions].
        n_best_size: How many, or all if there are fewer.

    Returns:
        int [..., n].
    """
    return np.argsort(-np.asarray(logits), axis=-1, kind="stable")[..., :n_best_size]


def final_answer_text(predicted: str, original: str, basic: str) -> str:
    """The part of the original words that pieces stand for, by the original's heuristic.

    The predicted text is looked for in the basic tokens of the words, where it occurs first, and
    its first and last character are found in the words by counting what isn't a blank. The whole
    words are the result if the text doesn't occur, or if there are more or fewer characters in
    the basic tokens than in the words: dropped accents or control characters.

    Args:
        predicted: Pieces joined to words, these joined by blanks.
        original: The words of the context, joined by blanks.
        basic: Basic tokens of `original`, joined by blanks.
    """
    start = basic.find(predicted)
    if start < 0 or not predicted:
        return original
    if len(basic) - basic.count(" ") != len(original) - original.count(" "):
        return original
    last = start + len(predicted) - 1
    if basic[start] == " " or basic[last] == " ":
        return original
    before = start - basic.count(" ", 0, start)
    inside = last - start - basic.count(" ", start, last)
    first = _place(original, before)
    return original[first : _place(original, before + inside) + 1]


class _Span(NamedTuple):
    """A span of a window, by places, that may be the answer."""

    window: int
    start: int
    end: int
    logits: tuple[float, float]


def _spans(
    windows: Sequence[Window], settings: OriginalSettings
) -> tuple[tuple[float, float], Iterable[_Span | None]]:
    """Logits of [CLS] in the window where their sum is least, and the spans, best first.

    Of equal spans that of the earlier window comes first, then of the better start, then of the
    better end. With SQuAD 2.0 no answer, None, is among them.
    """
    if not windows:
        return (0.0, 0.0), ()
    # Sums are made in double precision.
    starts = np.stack([start for _, start, _ in windows]).astype(np.float64)
    ends = np.stack([end for _, _, end in windows]).astype(np.float64)
    null = int(np.argmin(starts[:, 0] + ends[:, 0]))
    null_logits = float(starts[null, 0]), float(ends[null, 0])
    # Both are pieces of the context; only the first has to be where it has most context.
    may_start, may_end = np.zeros(starts.shape, bool), np.zeros(starts.shape, bool)
    for number, (feature, _, _) in enumerate(windows):
        begin = feature.segment_b_start
        context = slice(begin, begin + len(feature.token_is_max_context))
        may_start[number, context] = feature.token_is_max_context
        may_end[number, context] = True
    start = _best_indexes(starts, settings.n_best_size)[:, :, np.newaxis]
    end = _best_indexes(ends, settings.n_best_size)[:, np.newaxis, :]
    row = np.arange(len(windows))[:, np.newaxis, np.newaxis]
    length = end - start + 1
    allowed = (length >= 1) & (length <= settings.max_answer_length)
    allowed &= may_start[row, start] & may_end[row, end]
    # In the order of windows, then starts, then ends: sorting keeps it among equals.
    window, i, j = np.nonzero(allowed)
    start, end = start[window, i, 0], end[window, 0, j]
    scores = starts[window, start] + ends[window, end]
    if settings.version_2_with_negative:
        scores = np.append(scores, sum(null_logits))
    order = np.argsort(-scores, kind="stable").tolist()

    def span(number: int) -> _Span | None:
        if number == len(window):
            return None
        w, s, e = int(window[number]), int(start[number]), int(end[number])
        return _Span(w, s, e, (float(starts[w, s]), float(ends[w, e])))

    return null_logits, map(span, order)


def _text(
    windows: Sequence[Window], span: _Span, example: OriginalExample, basic: _BasicWords
) -> str:
    feature = windows[span.window][0]
    pieces = " ".join(feature.tokens[span.start : span.end + 1])
    pieces = " ".join(pieces.replace(" ##", "").replace("##", "").split())
    first, last = feature.token_to_orig_map[
        [span.start - feature.segment_b_start, span.end - feature.segment_b_start]
    ].tolist()
    words = example.doc_tokens[first : last + 1]
    return final_answer_text(pieces, " ".join(words), basic.join(words))


def _place(text: str, number: int) -> int:
    """Index of a character, counted from 0 without blanks."""
    begin = 0
    while True:
        blank = text.find(" ", begin)
        size = (len(text) if blank < 0 else blank) - begin
        if number < size or blank < 0:
            return begin + number
        number -= size
        begin = blank + 1
