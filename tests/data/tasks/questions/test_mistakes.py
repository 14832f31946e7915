"""Kinds of questions and answers, the worst answers, and log odds."""

import math

import pytest
from scipy.special import logit

from data.tasks.questions.answers import answer_log_odds, question_softmax
from data.tasks.questions.mistakes import answer_kind, question_word, worst_answers
from data.tasks.questions.squad import Answer, Question


@pytest.mark.parametrize(
    "text, word",
    [
        ("Who was it?", "who"),
        ("In which year did who come?", "which"),
        ("HOW MANY are there?", "how many"),
        ("How so?", "how"),
        ("Name the whatnot.", "other"),
        ("", "other"),
    ],
)
def test_what_is_asked(text, word):
    assert question_word(text) == word


def test_kinds_of_answers():
    kinds = {
        "Bonn": "one word",
        "in Bonn today": "two to 3 words",
        "1992": "with a number",
        "a b c d": "longer",
    }
    for text, kind in kinds.items():
        question = Question("q", "", "", (Answer(text, 0),), False, "f")
        assert answer_kind(question) == kind
    assert answer_kind(Question("q", "", "", (), True, "f")) == "none"


def test_worst_answers_are_sure_and_share_nothing():
    assert worst_answers([0, 1, 0.5, 0], [0.4, 1.0, 0.9, 0.8], 9) == [3, 2, 0]
    assert worst_answers([0, 0, 0], [1, 1, 1], 2) == [0, 1]


def test_log_odds_are_those_of_the_share():
    logits = [("a", 2.0, 1.0), ("b", 1.5, 0.5), ("", 0.5, 0.0), ("a", 0.0, 0.0)]
    n_best = [{"text": t, "start_logit": s, "end_logit": e} for t, s, e in logits]
    shares = question_softmax([s + e for _, s, e in logits])
    for place, text in enumerate(("a", "b", "")):
        assert answer_log_odds(n_best, text) == pytest.approx(logit(shares[place]), abs=1e-9)
    assert answer_log_odds(n_best[:1], "a") == 30
    far = [n_best[0], {"text": "c", "start_logit": -1e9, "end_logit": -1e9}]
    assert answer_log_odds(far, "a") == 30 and answer_log_odds(far, "c") == -30
    assert math.isfinite(answer_log_odds(n_best, "?"))
