"""Spans of pieces to answers: texts, probabilities, and the files of the original release.

    for answer in read_answers(questions, rows, merged, version_2=True):
        ...

An answer is a slice of its context. The original puts answers together from words and looks for
the span in them again; its way is in `original_answers`.
"""

import dataclasses
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from data.files import atomic
from data.tasks.questions.rows import QuestionRows
from data.tasks.questions.squad import Question

PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"


class _Candidate(NamedTuple):
    """An answer that may be given: the empty text is "there is none"."""

    text: str
    start_logit: float
    end_logit: float
    start: int = 0
    end: int = 0

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class AnsweredQuestion:
    """What the model says to a question.

    Attributes:
        question: The question.
        candidates: The best answers, the best first; with SQuAD 2.0 one of them is empty. At
            least one.
        null_odds: Score of the empty answer minus that of the best other one (SQuAD 2.0; paper,
            section 4.3), else 0. Very large where there is no other.
    """

    question: Question
    candidates: Sequence[_Candidate]
    null_odds: float = 0.0

    @property
    def best_text(self) -> str:
        """The best answer that isn't empty; empty if there is none."""
        return next((c.text for c in self.candidates if c.text), "")

    def text(self, threshold: float = 0.0) -> str:
        """The prediction: empty if the null odds are above the threshold."""
        return "" if self.null_odds > threshold else self.best_text

    @property
    def id(self) -> str:
        """Of the question."""
        return self.question.id

    def n_best(self) -> list[dict]:
        """Entries of nbest_predictions.json; probabilities are over the candidates."""
        shares = question_softmax([candidate.score for candidate in self.candidates])
        return [
            {
                "text": candidate.text,
                "probability": share,
                "start_logit": candidate.start_logit,
                "end_logit": candidate.end_logit,
            }
            for candidate, share in zip(self.candidates, shares, strict=True)
        ]


NO_OTHER = 1e9
"""Null odds of a question whose context holds no possible answer."""


def question_softmax(scores: Sequence[float]) -> list[float]:
    """Probabilities, in double precision."""
    exponentials = [math.exp(score - max(scores)) for score in scores]
    return [exponential / sum(exponentials) for exponential in exponentials]


MOST_LOG_ODDS = 30.0
"""Of a probability, to either side; beyond it float64 can't tell it from 1."""


def answer_log_odds(n_best: Sequence[Mapping], text: str) -> float:
    """Log odds of one of the n best answers: its score less that of all others together.

    Args:
        n_best: Entries of nbest_predictions.json.
        text: Of one of them; of equal ones the first counts.

    Returns:
        From -MOST_LOG_ODDS to MOST_LOG_ODDS.
    """
    scores = [entry["start_logit"] + entry["end_logit"] for entry in n_best]
    place = next((n for n, entry in enumerate(n_best) if entry["text"] == text), 0)
    others = scores[:place] + scores[place + 1 :]
    if not others:
        return MOST_LOG_ODDS
    most = max(others)
    together = most + math.log(math.fsum(math.exp(score - most) for score in others))
    return min(max(scores[place] - together, -MOST_LOG_ODDS), MOST_LOG_ODDS)


def read_answers(
    questions: Sequence[Question], rows: QuestionRows, merged, version_2: bool
) -> Iterator[AnsweredQuestion]:
    """Texts of the best spans of each question.

    Args:
        questions, rows: See `make_question_rows`.
        merged: The best spans of each question in these rows, arrays [questions, n_best]; see
            `modeling.answers.spans`.
        version_2: Whether "there is no answer" is an answer.
    """
    starts, ends = rows.characters(merged.rows, merged.starts, merged.ends)
    for number, question in enumerate(questions):
        candidates = [
            _Candidate(
                question.context[start:end],
                float(merged.start_logits[number, place]),
                float(merged.end_logits[number, place]),
                int(start),
                int(end),
            )
            for place, (start, end) in enumerate(zip(starts[number], ends[number], strict=True))
            if merged.possible[number, place]
        ]
        odds = 0.0
        if version_2:
            null = _Candidate(
                "", float(merged.null_starts[number]), float(merged.null_ends[number])
            )
            odds = null.score - candidates[0].score if candidates else NO_OTHER
            # Not sorted: spans whose float32 sums are equal stay as they are in an export.
            candidates.insert(sum(c.score >= null.score for c in candidates), null)
        yield AnsweredQuestion(question, candidates or [_Candidate("", 0.0, 0.0)], odds)


class AnswerFiles:
    """Writes predictions.json, nbest_predictions.json and null_odds.json as answers come.

    A context manager; the files appear under their names with `finish`. The n-best lists,
    which are long, aren't kept in memory.

    Args:
        directory: Where to; None writes nothing, as a worker does that isn't the chief.
        version_2: Whether to write null odds.
    """

    def __init__(self, directory: str | None, version_2: bool):
        self.directory = directory
        self.version_2 = version_2
        self.best_texts: dict[str, str] = {}
        self.null_odds: dict[str, float] = {}

    def __enter__(self) -> "AnswerFiles":
        self._spool = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._spool.write("{")
        return self

    def __exit__(self, *_):
        self._spool.close()

    def add(self, key: str, n_best: list[dict], best_text: str, null_odds: float) -> None:
        """Takes the answers to the question with that id; see `AnsweredQuestion`."""
        if self.directory is not None:
            entries = json.dumps(n_best, indent=4).replace("\n", "\n    ")
            comma = "," if self.best_texts else ""
            self._spool.write(f"{comma}\n    {json.dumps(key)}: {entries}")
        self.best_texts[key] = best_text
        self.null_odds[key] = null_odds

    def finish(self, threshold: float) -> dict[str, str]:
        """Writes the files; returns the predictions, see `predicted_answers`."""
        answers = predicted_answers(
            self.best_texts, self.null_odds if self.version_2 else {}, threshold
        )
        if self.directory is None:
            return answers
        self._spool.write("\n}\n" if self.best_texts else "}\n")
        self._spool.seek(0)
        path = os.path.join(self.directory, N_BEST)
        with atomic.writing(path, "w") as file:
            shutil.copyfileobj(self._spool, file)
        write_squad_json(os.path.join(self.directory, PREDICTIONS), answers)
        if self.version_2:
            write_squad_json(os.path.join(self.directory, NULL_ODDS), self.null_odds)
        return answers


def predicted_answers(
    best_texts: Mapping[str, str], null_odds: Mapping[str, float], threshold: float
) -> dict[str, str]:
    """Id → text, empty where the null odds, if there are any, are above the threshold."""
    if not null_odds:
        return dict(best_texts)
    return {key: "" if null_odds[key] > threshold else text for key, text in best_texts.items()}


def write_squad_json(path: str, values: Mapping) -> None:
    """Writes a JSON file as the original writes its own, whole or not at all."""
    atomic.write_text(path, json.dumps(values, indent=4) + "\n")
