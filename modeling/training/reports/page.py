"""`report.html`: one page without anything from elsewhere, for people.

Whatever comes from data is escaped: by the template's engine, and in diagrams by their elements.
"""

import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from modeling.metrics import smaller_metric_is_better
from modeling.training.reports.contents import (
    Mistake,
    ReportMatrix,
    ReportTable,
    TaskReport,
    table_by_length,
)
from modeling.training.reports.drawings import (
    bars_drawing,
    curves_drawing,
    numbers_drawing,
    reliability_drawing,
)
from modeling.training.reports.facts import JudgedSplit, RunFacts
from modeling.training.reports.intervals import RESAMPLES, wilson_interval

MOST_CLASSES = 25
"""Up to so many a confusion matrix is shown whole; of more only what is confused most."""
_MOST_PAIRS = 20
_PAIRS_BESIDE_MATRIX = 8
_SERIES = 4


def page_html(facts: RunFacts, split: JudgedSplit, metrics: Sequence[Mapping], command: str) -> str:
    """The page on one split.

    Args:
        facts: Of the run.
        split: What was judged.
        metrics: See `reporting.read_metrics_file`.
        command: How to ask the model.
    """
    report = split.report
    return page_template("page.html").render(
        title=f"{facts.name}: {report.data}",
        subtitle=f"{facts.model}, step {facts.step:,}; {report.described}; "
        f"{report.examples:,} {report.unit}; {facts.date}",
        scores=[_score(report, name) for name in report.results],
        notes=[*report.notes, intervals_note(report)],
        limits=report.limits,
        curves=_curves(metrics),
        tables=list(map(page_table, report.tables)),
        matrices=list(map(_matrix, report.matrices)),
        numbers=numbers_drawing(*report.numbers) if report.numbers else None,
        by_length=_by_length(report),
        calibrations=[
            {
                "title": f"Probability of {name}",
                "drawing": reliability_drawing(reliability),
                "note": f"Expected calibration error {reliability.expected_error:.4f} over "
                f"{int(reliability.counts.sum()):,} answers, {len(reliability.counts)} bins of "
                f"equal width. On the dashed line probabilities are what they say; pale bins hold "
                f"few answers.",
            }
            for name, reliability in report.calibrations.items()
        ],
        mistakes=[_mistake(mistake, report.mistake_value) for mistake in report.mistakes],
        mistakes_note="Wrong, and the most confident first."
        if report.mistake_value == "confidence"
        else f"The largest {report.mistake_value} first.",
        unit=report.unit,
        facts=[
            ("Data", f"{report.data}; content {split.fingerprint[:12]}"),
            ("Speed", f"{split.speed}, on {facts.machine}"),
            ("Software", facts.made),
            *facts.settings.items(),
        ],
        command=command,
    )


@functools.cache
def page_template(name: str):
    """A template of this folder, compiled."""
    # Here, since most commands write no page.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(__file__)),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)


def score_name(name: str) -> str:
    """Of a result, for people: "eval_macro_f1" is "macro F1"."""
    words = name.removeprefix("eval_").removeprefix("test_").replace("_", " ")
    return " ".join("F1" if word == "f1" else word for word in words.split())


def number_text(value: float) -> str:
    """A score for people: four digits, of percents one behind the point; NaN is "undefined"."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"


def interval_text(report: TaskReport, name: str) -> str:
    """Of a result, "" where there is none."""
    interval = report.intervals.get(name)
    if interval is None or not all(map(math.isfinite, interval)):
        return ""
    low, high = (f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" for value in interval)
    return f"{low} to {high}"


def intervals_note(report: TaskReport) -> str:
    """How the intervals were found."""
    wilson = "Wilson's for accuracies, for other scores " if report.drawn == "examples" else ""
    return (
        f"Intervals of 95 %: {wilson}the percentiles of {RESAMPLES:,} bootstrap drawings of "
        f"{report.drawn}, seed 0. They say how far off "
        f"a score may be because there are so few {report.unit}, not what texts of another kind "
        f"would give."
    )


def _score(report: TaskReport, name: str) -> dict[str, str]:
    value = number_text(report.results[name])
    return {"name": score_name(name), "value": value, "interval": interval_text(report, name)}


def _curves(lines: Sequence[Mapping]) -> list[dict]:
    """Losses, and the scores on held-out examples."""

    def curve(kind: str, name: str) -> list[tuple[int, float]]:
        values = {
            line["step"]: line[name] for line in lines if line["kind"] == kind and name in line
        }
        return [(step, math.nan if v is None else v) for step, v in sorted(values.items())]

    scores = dict.fromkeys(name for line in lines if line["kind"] == "eval" for name in line)
    # An error isn't on the scale of scores.
    scores = [n for n in scores if n not in ("kind", "step") and not smaller_metric_is_better(n)]
    scores = scores[: _SERIES - 1]
    panels = {
        "Loss": {
            name: (curve("train", name), curve("eval", name)) for name in ("loss", "eval_loss")
        },
        "Scores": {
            name: (curve("train", name), curve("eval", name)) for name in ("accuracy", *scores)
        },
    }
    drawn = []
    for title, panel in panels.items():
        panel = {name: both for name, both in panel.items() if any(both)}
        # Single dots say no more than the scores above.
        if any(len(points) > 1 for both in panel.values() for points in both):
            names = ["accuracy, training" if name == "accuracy" else name for name in panel]
            drawn.append({"title": title, "drawing": curves_drawing(panel), "names": names})
    return drawn


def _cell(value: Any, bars: bool) -> dict[str, Any]:
    if isinstance(value, (float, np.floating)):
        share = f"{100 * value:.1f}%" if bars and 0 <= value <= 1 else None
        return {"text": f"{value:.3f}", "share": share}
    return {"text": f"{value:,}" if isinstance(value, int) else str(value), "share": None}


def page_table(table: ReportTable) -> dict[str, Any]:
    """A table as the templates take it."""
    rows = [[_cell(value, table.bars) for value in row] for row in table.rows]
    return table._asdict() | {"rows": rows}


def _matrix(matrix: ReportMatrix) -> dict[str, Any]:
    """The matrix, if it isn't too large, and what is confused most."""
    counts, names = np.asarray(matrix.counts), list(map(str, matrix.names))
    sums = np.maximum(counts.sum(1, keepdims=True), 1)
    shares = counts / sums
    rows = [
        {
            "name": name,
            "cells": [
                {
                    "count": f"{count:,}",
                    "percent": f"{share:.1%}",
                    # Not more, or the text couldn't be read on it.
                    "share": f"{65 * share:.0f}%",
                }
                for count, share in zip(of.tolist(), part.tolist(), strict=True)
            ],
        }
        for name, of, part in zip(names, counts, shares, strict=True)
    ]
    off = counts * (1 - np.eye(len(names), dtype=counts.dtype))
    small = len(names) <= MOST_CLASSES
    worst = np.argsort(-off, axis=None, kind="stable")
    worst = worst[: _PAIRS_BESIDE_MATRIX if small else _MOST_PAIRS]
    pairs = [
        [names[row], names[column], int(off[row, column]), float(shares[row, column])]
        for row, column in (np.unravel_index(place, off.shape) for place in worst)
        if off[row, column]
    ]
    columns = ["right", "answered", "times", "share of the right ones"]
    title = "What is confused most"
    return {
        "title": matrix.title,
        "names": names,
        "rows": rows if small else [],
        # Of two classes the matrix says it all.
        "pairs": page_table(ReportTable(title, columns, pairs if len(names) > 2 else [])),
    }


def _by_length(report: TaskReport) -> dict[str, Any] | None:
    bins = table_by_length(report)
    if not bins:
        return None
    shares = np.isin(report.outcomes, (0, 1)).all() and report.outcome != "absolute error"
    rows = []
    for low, high, count, mean in bins:
        title = f"{low} to {high} {report.length_unit}: {report.outcome} {mean:.3f} of {count:,}"
        interval = wilson_interval(mean * count, count) if shares else None
        rows.append((f"≤ {high:,}", mean, interval, title))
    most = 1.0 if report.outcome != "absolute error" else max(row[1] for row in rows) * 1.1 or 1.0
    count = f"{min(b[2] for b in bins):,} to {max(b[2] for b in bins):,}"
    return {
        "title": f"{report.outcome[:1].upper()}{report.outcome[1:]} by length",
        "drawing": bars_drawing(rows, report.outcome, most),
        "note": f"Length in {report.length_unit}; {count} {report.unit} in each bar"
        + (", with its interval of 95 %." if shares else "."),
    }


def _mistake(mistake: Mistake, value: str) -> dict[str, Any]:
    source = os.path.basename(mistake.source)
    return mistake._asdict() | {"source": source, "value": f"{value} {mistake.value:.3f}"}
