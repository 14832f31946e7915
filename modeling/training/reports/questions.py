"""The report of answers to questions, from their scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from modeling.answers.confidence import PlattCalibration, fit_platt_calibration
from modeling.answers.thresholds import halves_drawn
from modeling.training.reports.calibration import BINS, measure_reliability
from modeling.training.reports.contents import ReportTable
from modeling.training.reports.intervals import bootstrap_interval

_OTHER_HALF = "the answer, calibrated on the other half"


def question_fields(
    scores: np.ndarray,
    log_odds: np.ndarray,
    calibration: PlattCalibration,
    contexts: Sequence[str],
    kinds: Mapping[str, Sequence[str]],
    exact_name: str,
) -> dict[str, Any]:
    """The fields of a `TaskReport` that follow from scores.

    Args:
        scores: float64 [N, 2], exact match and F1 of each answer, from 0 to 1.
        log_odds: float64 [N], of the answers that were given.
        calibration: What was fitted to these.
        contexts: N of them. They are drawn anew for the intervals, each with all of its
            questions, as these are alike.
        kinds: Title of a table → N names, by which it has the scores.
        exact_name: What the results call exact match.
    """
    # Not np.unique, whose array would be as wide as the longest of them.
    numbers: dict[str, int] = {}
    context = np.array([numbers.setdefault(text, len(numbers)) for text in contexts])
    sums = np.zeros([context.max() + 1, 3])
    np.add.at(sums, context, np.column_stack([np.ones(len(scores)), 100 * scores]))
    columns = {exact_name: 1, "f1": 2}
    right = scores[:, 0]
    ways = {
        "the answer": PlattCalibration().of(log_odds),
        "the answer, calibrated": calibration.of(log_odds),
        _OTHER_HALF: _of_other_half(log_odds, right),
    }
    ways = {name: measure_reliability(confidence, right) for name, confidence in ways.items()}
    return {
        "task": "question-answering",
        "described": "an answer to a question about a text, a slice of it",
        "examples": len(scores),
        "unit": "questions",
        "drawn": "contexts",
        "intervals": {
            name: bootstrap_interval(lambda drawn, c=column: drawn[:, c] / drawn[:, 0], sums)
            for name, column in columns.items()
        },
        "outcomes": scores[:, 1],
        "outcome": "F1",
        "lengths": np.array([len(text) for text in contexts]),
        "length_unit": "characters of the context",
        "calibrations": {name: measured for name, measured in ways.items() if name != _OTHER_HALF},
        "tables": [
            *(_table(title, names, scores) for title, names in kinds.items()),
            ReportTable(
                "Calibration of the answer's probability",
                ["probability of", "expected calibration error"],
                [[name, measured.expected_error] for name, measured in ways.items()],
                f"Over {BINS} bins of equal width. Calibrated is 1 / (1 + exp(-(a · log odds + b)))"
                f" with a = {calibration.slope:.4f} and b = {calibration.intercept:.4f}, fitted to "
                f"whether these answers match a right one exactly, which is a little optimistic; "
                f"the last row isn't.",
                bars=False,
            ),
        ],
    }


def _of_other_half(log_odds: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Probabilities of the answers of each half, as calibrated on the other."""
    confidence = np.zeros(len(log_odds))
    for half, other in halves_drawn(len(log_odds)):
        calibration = fit_platt_calibration(log_odds[other], right[other])
        confidence[half] = calibration.of(log_odds[half])
    return confidence


def _table(title: str, names: Sequence[str], scores: np.ndarray) -> ReportTable:
    """The most frequent names first."""
    found, number, counts = np.unique(list(names), return_inverse=True, return_counts=True)
    rows = []
    for place in np.argsort(-counts, kind="stable"):
        exact, f1 = scores[number == place].mean(0)
        rows.append([str(found[place]), float(exact), float(f1), int(counts[place])])
    return ReportTable(title, ["", "exact match", "F1", "questions"], rows)
