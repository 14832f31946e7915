"""What becomes of answers by kind of question, and which mistakes are worst."""

import re
from collections.abc import Sequence

import numpy as np

from data.tasks.questions.squad import Question

_WORD = re.compile(r"\b(what|who|whom|whose|when|where|which|why|how (?:many|much)|how)\b", re.I)
_NUMBER = re.compile(r"\d")
_SHORT, _MIDDLE = 1, 3


def question_word(text: str) -> str:
    """What a question asks for: its first question word, lower case; "other" without one."""
    found = _WORD.search(text)
    return found[1].lower() if found else "other"


def answer_kind(question: Question) -> str:
    """What the first right answer is: "none", "with a number", or words by their number."""
    if not question.answers:
        return "none"
    text = question.answers[0].text
    words = len(text.split())
    if _NUMBER.search(text):
        return "with a number"
    if words <= _SHORT:
        return "one word"
    return f"two to {_MIDDLE} words" if words <= _MIDDLE else "longer"


def worst_answers(f1: Sequence[float], confidence: Sequence[float], limit: int) -> list[int]:
    """Numbers of the answers that share least with the right ones and that the model was surest of.

    Args:
        f1: Of each answer, from 0 to 1.
        confidence: Probability of each.
        limit: How many at most. Right ones aren't among them.
    """
    value = (1 - np.asarray(f1, np.float64)) * np.asarray(confidence, np.float64)
    worst = np.argsort(-value, kind="stable")[:limit]
    return [int(number) for number in worst if value[number] > 0]
