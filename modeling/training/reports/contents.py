"""What a task says of its answers, in a form that is the same for all tasks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from modeling.training.reports.calibration import Reliability
from modeling.training.reports.intervals import Interval

MOST_MISTAKES = 20


class Mistake(NamedTuple):
    """One wrong answer, for people.

    Attributes:
        source: Where the example is from, "file:line".
        gold, predicted: What would be right, and what the model says.
        value: How sure it was; of numbers, how far off.
        texts: Name and text of each of the example's texts.
    """

    source: str
    gold: str
    predicted: str
    value: float
    texts: Sequence[tuple[str, str]]


class ReportTable(NamedTuple):
    """A table: floats are shown with three digits and, with `bars`, bars from 0 to 1."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    bars: bool = True


class ReportMatrix(NamedTuple):
    """What is taken for what: int [L, L] counts, a row per right name, a column per answer."""

    title: str
    names: Sequence[str]
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class TaskReport:
    """What card and page say of the answers to a split.

    Attributes:
        task: As model hubs call it: "text-classification".
        described: What the model answers, in words: "one of 2 labels".
        data: Name of the data set.
        examples: How many are judged.
        unit: What they are called: "texts".
        results: Scores by name, as the run's files have them.
        intervals: Of those that have one, in the same unit.
        drawn: What was drawn anew for the intervals: "examples", "sentences", "documents".
        outcomes: float64 [N]: for each of `examples` whether it is right, or how much of it.
        outcome: What that is: "right", "F1", "absolute error".
        lengths: int64 [N].
        length_unit: "pieces", "words".
        calibrations: Of the model's probabilities, by what they are of.
        tables, matrices: By class, confusions, and what else the task has.
        mistakes: The worst, the worst first, at most MOST_MISTAKES.
        mistake_value: What their value is: "confidence", "absolute error".
        numbers: float [N] right and predicted ones, to draw them against each other.
        notes: On the scores, in whole sentences of plain text.
        limits: What was measured and restricts the use, in whole sentences of plain text.
        example: A line of input to `modeling.predict`.
    """

    task: str
    described: str
    data: str
    examples: int
    unit: str
    results: Mapping[str, float]
    intervals: Mapping[str, Interval]
    outcomes: np.ndarray
    lengths: np.ndarray
    drawn: str = "examples"
    outcome: str = "right"
    length_unit: str = "pieces"
    calibrations: Mapping[str, Reliability] = dataclasses.field(default_factory=dict)
    tables: Sequence[ReportTable] = ()
    matrices: Sequence[ReportMatrix] = ()
    mistakes: Sequence[Mistake] = ()
    mistake_value: str = "confidence"
    numbers: tuple[np.ndarray, np.ndarray] | None = None
    notes: Sequence[str] = ()
    limits: Sequence[str] = ()
    example: str = ""


def table_by_length(report: TaskReport, most_bins: int = 8) -> list[tuple[int, int, int, float]]:
    """Shortest and longest of about equally many examples, their number, and the mean outcome."""
    finite = np.isfinite(report.outcomes)
    lengths, outcomes = np.asarray(report.lengths)[finite], np.asarray(report.outcomes)[finite]
    if not len(lengths):
        return []
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, most_bins + 1), method="higher"))
    number = np.searchsorted(edges[1:-1], lengths, "right") if len(edges) > 2 else lengths * 0
    return [
        (int(lengths[of].min()), int(lengths[of].max()), int(of.sum()), float(outcomes[of].mean()))
        for of in (number == n for n in np.unique(number))
    ]


def rare_names_limit(support: Mapping[str, int], unit: str, few: int = 20) -> list[str]:
    """A sentence on the names that have few examples to be judged by; none where all have."""
    rare = [f"{name} ({count})" for name, count in support.items() if count < few]
    if not rare:
        return []
    shown = ", ".join(rare[:few]) + (f" and {len(rare) - few} more" if len(rare) > few else "")
    return [f"Rare, with fewer than {few} {unit}, so that their scores say little: {shown}."]
