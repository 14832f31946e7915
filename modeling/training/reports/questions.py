"""The report of answers to questions, from their scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from modeling.training.reports.calibration import measure_reliability
from modeling.training.reports.contents import ReportTable
from modeling.training.reports.intervals import bootstrap_interval


def question_fields(
    scores: np.ndarray,
    confidence: np.ndarray,
    contexts: Sequence[str],
    kinds: Mapping[str, Sequence[str]],
    exact_name: str,
) -> dict[str, Any]:
    """The fields of a `TaskReport` that follow from scores.

    Args:
        scores: float64 [N, 2], exact match and F1 of each answer, from 0 to 1.
        confidence: float64 [N], the probability of the answer that was given.
        contexts: N of them. They are drawn anew for the intervals, each with all of its
            questions, as these are alike.
        kinds: Title of a table → N names, by which it has the scores.
        exact_name: What the results call exact match.
    """
    _, context = np.unique(list(contexts), return_inverse=True)
    sums = np.zeros([context.max() + 1, 3])
    np.add.at(sums, context, np.column_stack([np.ones(len(scores)), 100 * scores]))
    columns = {exact_name: 1, "f1": 2}
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
        "calibrations": {"the answer": measure_reliability(confidence, scores[:, 0])},
        "tables": [_table(title, names, scores) for title, names in kinds.items()],
    }


def _table(title: str, names: Sequence[str], scores: np.ndarray) -> ReportTable:
    """The most frequent names first."""
    found, number, counts = np.unique(list(names), return_inverse=True, return_counts=True)
    rows = []
    for place in np.argsort(-counts, kind="stable"):
        exact, f1 = scores[number == place].mean(0)
        rows.append([str(found[place]), float(exact), float(f1), int(counts[place])])
    return ReportTable(title, ["", "exact match", "F1", "questions"], rows)
