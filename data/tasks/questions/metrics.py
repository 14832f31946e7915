"""Exact match and F1 of answers, as the official scripts of SQuAD and CMRC 2018 define them.

An answer is compared with each of the right ones and gets the best score.

SQuAD   Lower case, without ASCII punctuation, without the words a, an and the, white space
        collapsed. Exact match: equal after that. F1: of the words in common, in any order, each
        as often as both have it.
1.1     Every question needs a right answer. A missing prediction is a wrong one (warned about).
        No word in common is F1 0, even if both answers normalise to nothing.
2.0     Right answers that normalise to nothing don't count; where there are none, the right
        answer is "". If either answer normalises to nothing F1 is 1 if both do, else 0. If null
        odds are given, a question whose odds are above the threshold has the answer "". A missing
        prediction is an error (the official script ends in a KeyError).
CMRC    (characters=True) Lower case. Exact match: equal without `CHINESE_PUNCTUATION`. F1: of the
        longest run in common (contiguous, whatever the script's name for it), of Chinese
        characters one by one and of other words. The script finds those words with NLTK; here
        they are runs of letters and digits, an inner full stop, apostrophe or decimal comma
        included, and other symbols are one word each. That differs in English contractions only
        ("don't" is one word here) and in rarer cases.
"""

import difflib
import functools
import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from data.errors import DataError, error_list, error_text
from data.tasks.questions.squad import Question

CHINESE_PUNCTUATION = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
"""What CMRC's script removes; its list has "……" too, which never equals a character."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NO_CHINESE_PUNCTUATION = str.maketrans("", "", CHINESE_PUNCTUATION)
# Punctuation that is removed separates words no more; Chinese characters do.
_WORDS = re.compile(
    r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+(?:(?:[.']|,(?=\d))[^\W\u4e00-\u9fa5]+)*|\S"
)
# Beyond what odds can be, so that sums and differences of them stay finite.
_LARGEST = 1e30
_SHOWN = 5


def normalize_answer(text: str) -> str:
    """SQuAD's form of an answer for comparison, the same in 1.1 and 2.0."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def score_answer(
    prediction: str, answers: Sequence[str], *, version_2: bool, characters: bool = False
) -> tuple[float, float]:
    """Exact match and F1 of one prediction, 0 to 1.

    Args:
        prediction: The text, "" for none.
        answers: Texts that are right; with version_2 there may be none, otherwise not.
        version_2: Whether SQuAD 2.0's rules hold, see above.
        characters: Whether texts are compared as CMRC does, and not as SQuAD.
    """
    form, words = (_plain, _segments) if characters else (normalize_answer, _words)
    if version_2:
        answers = [answer for answer in answers if form(answer)] or [""]
    predicted, predicted_words = form(prediction), words(prediction)
    exact = max(float(form(answer) == predicted) for answer in answers)
    f1 = max(
        _f1(predicted_words, words(answer), version_2=version_2, run=characters)
        for answer in answers
    )
    return exact, f1


def evaluate_answers(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 0.0,
    *,
    version_2: bool,
    characters: bool = False,
) -> dict[str, float]:
    """Scores under the official scripts' names, in percent.

    Args:
        questions: With all right answers, as read for evaluation.
        predictions: Texts by question id; those of other questions aren't used.
        null_odds: With version_2 only: how much likelier than the prediction it is that there is
            no answer, on any scale. Then give the best answers for all questions as predictions:
            where they are "" already no threshold can bring them back, and the best ones found
            are too low.
        threshold: Odds above it stand for the answer "".
        version_2, characters: See `score_answer`.

    Returns:
        SQuAD 1.1 and CMRC: exact_match, f1.
        SQuAD 2.0: exact, f1, total (the number of questions); the same with HasAns_ of questions
        with answers and NoAns_ of those without, if there are any; and with null odds best_exact,
        best_exact_thresh, best_f1, best_f1_thresh: the scores with the best threshold for each,
        the official way. That is the lowest question's odds that do it, or 0 if nothing is better
        than to answer none, and where odds are equal it may count some of those questions only;
        for a threshold to use see `best_threshold`.

    Raises:
        DataError: There is no question; one has no right answer (1.1), no prediction (2.0) or no
            odds, or odds that are no number.
    """
    raw = answer_scores(questions, predictions, version_2, characters)
    if not version_2:
        exact, f1 = 100.0 * raw.mean(axis=0)
        return {"exact_match": float(exact), "f1": float(f1)}
    has_answer = _has_answer(questions)
    scores = raw
    if null_odds is not None:
        odds = _odds(questions, null_odds)
        # Without an answer a question that has none is right, and any other wrong.
        scores = np.where(odds[:, None] > threshold, ~has_answer[:, None], raw)
    results = _summary("", scores)
    for prefix, part in (("HasAns_", scores[has_answer]), ("NoAns_", scores[~has_answer])):
        if len(part):
            results |= _summary(prefix, part)
    if null_odds is not None:
        answered = np.array([bool(predictions[question.id]) for question in questions])
        for name, column in (("exact", 0), ("f1", 1)):
            gains = np.where(has_answer, raw[:, column], -1.0 * answered)
            best, where = _official_best(odds, gains, int((~has_answer).sum()))
            results[f"best_{name}"] = 100.0 * best / len(questions)
            results[f"best_{name}_thresh"] = where
    return results


def best_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    *,
    measure: str = "f1",
    characters: bool = False,
) -> float:
    """The threshold with the best score, section 4.3 of the paper, to be used on other data.

    Unlike the official one it can be met, equal odds being on one side of it; it lies halfway
    between the two questions that it separates, so that neither is lost to rounding; and it is 1
    below the lowest or above the highest odds if no or every question is best answered. Of several
    that are equally good it is the lowest.

    Args:
        questions, predictions, null_odds, characters: See `evaluate_answers`; SQuAD 2.0's
            rules hold.
        measure: "f1" or "exact".

    Raises:
        DataError: See `evaluate_answers`.
    """
    column = {"exact": 0, "f1": 1}[measure]
    raw = answer_scores(questions, predictions, True, characters)[:, column]
    odds = np.clip(_odds(questions, null_odds), -_LARGEST, _LARGEST)
    values, group = np.unique(odds, return_inverse=True)
    gains = np.bincount(group, raw - ~_has_answer(questions))
    # Entry i: the first i values are answered. Sums of the same scores in another order are equal.
    totals = np.round(np.concatenate([[0.0], np.cumsum(gains)]), 9)
    answered = int(np.argmax(totals))
    if answered == 0:
        return float(values[0]) - 1.0
    low = float(values[answered - 1])
    if answered == len(values):
        return low + 1.0
    high = float(values[answered])
    middle = low + (high - low) / 2
    # Between neighbouring floats there is none.
    return middle if middle < high else low


def _words(text: str) -> tuple[str, ...]:
    return tuple(normalize_answer(text).split())


def _plain(text: str) -> str:
    return text.lower().strip().translate(_NO_CHINESE_PUNCTUATION)


@functools.lru_cache(100_000)
def _segments(text: str) -> tuple[str, ...]:
    return tuple(_WORDS.findall(_plain(text)))


def _f1(predicted: tuple[str, ...], right: tuple[str, ...], *, version_2: bool, run: bool) -> float:
    if version_2 and not (predicted and right):
        return float(predicted == right)
    if run:
        matcher = difflib.SequenceMatcher(None, right, predicted, autojunk=False)
        same = matcher.find_longest_match().size
    else:
        same = (Counter(predicted) & Counter(right)).total()
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted), same / len(right)
    return 2 * precision * recall / (precision + recall)


def answer_scores(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    version_2: bool,
    characters: bool,
) -> np.ndarray:
    """Exact match and F1 of the predictions as they are: float64 [questions, 2], from 0 to 1.

    Arguments and errors are those of `evaluate_answers`.
    """
    if not questions:
        raise DataError("There are no questions to evaluate; give a file that has some.")
    missing = [question for question in questions if question.id not in predictions]
    if missing:
        message = (
            f"{len(missing)} of {len(questions)} questions have no prediction, such as those with"
            f" the ids {error_list((error_text(question.id) for question in missing), _SHOWN)}."
        )
        if version_2:
            raise DataError(
                f"{missing[0].source}: {message} SQuAD 2.0 needs one for each, the empty text if"
                " there is no answer. Check that the predictions are for this file, and complete."
            )
        logging.warning("%s They count as wrong.", message)
    scores = np.zeros((len(questions), 2))
    for number, question in enumerate(questions):
        if not version_2 and not question.answers:
            raise DataError(
                f"{question.source}: this question has no right answer to compare with. If it is"
                " unanswerable, as in SQuAD 2.0, use --version_2_with_negative; if the file has no"
                " answers it can be predicted on, but not evaluated."
            )
        if question.id in predictions:
            answers = [answer.text for answer in question.answers]
            scores[number] = score_answer(
                predictions[question.id], answers, version_2=version_2, characters=characters
            )
    return scores


def _has_answer(questions: Sequence[Question]) -> np.ndarray:
    """[questions], bool. The official script looks at the answers and not at is_impossible."""
    return np.array([bool(question.answers) for question in questions])


def _odds(questions: Sequence[Question], null_odds: Mapping[str, float]) -> np.ndarray:
    """[questions], float64."""
    for question in questions:
        value = null_odds.get(question.id)
        if value is None or math.isnan(value):
            raise DataError(
                f"{question.source}: the null odds of the question with the id"
                f" {error_text(question.id)} are {'missing' if value is None else 'no number'}."
                " Check that they were made together with the predictions, for this file."
            )
    return np.array([null_odds[question.id] for question in questions], np.float64)


def _summary(prefix: str, scores: np.ndarray) -> dict[str, float]:
    exact, f1 = 100.0 * scores.sum(axis=0) / len(scores)
    return {
        f"{prefix}exact": float(exact),
        f"{prefix}f1": float(f1),
        f"{prefix}total": len(scores),
    }


def _official_best(odds: np.ndarray, gains: np.ndarray, unanswered: int) -> tuple[float, float]:
    """Best sum of scores when questions are answered one by one by rising odds, and the last's."""
    order = np.argsort(odds, kind="stable")
    totals = unanswered + np.cumsum(gains[order])
    best = int(np.argmax(totals))
    if totals[best] <= unanswered:
        return float(unanswered), 0.0
    return float(totals[best]), float(odds[order[best]])
