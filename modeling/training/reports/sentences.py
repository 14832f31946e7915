"""The report of a task on sentences, from arrays: classes, several labels, choices, numbers.

fields = sentence_fields("classes", outputs, label_ids, ["no", "yes"])
report = TaskReport(**fields, data="sst-2", results=results, …)
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from modeling import metrics
from modeling.answers.confidence import fit_temperature
from modeling.answers.thresholds import halves_drawn, halves_predicted, tune_label_thresholds
from modeling.training.reports.calibration import measure_reliability
from modeling.training.reports.contents import ReportMatrix, ReportTable, rare_names_limit
from modeling.training.reports.intervals import (
    Interval,
    bootstrap_interval,
    drawn_interval,
    wilson_interval,
)

_NUMBER_BINS = 8
_MOST_NAMED = 20
_F1 = ("micro_f1", "macro_f1")


def sentence_fields(
    kind: str,
    outputs: np.ndarray,
    label_ids: np.ndarray,
    names: Sequence[str],
    metric_names: Sequence[str],
) -> dict[str, Any]:
    """The fields of a `TaskReport` that follow from outputs and labels.

    Args:
        kind: See `SentenceHead`.
        outputs: Of `SentenceHead.probabilities`, N of them, at least one.
        label_ids: [N] or [N, L].
        names: Of the classes or labels; not used for numbers and choices.
        metric_names: Those that get an interval.
    """
    if kind == "regression":
        fields, intervals = _of_numbers(outputs, label_ids)
    elif kind == "multi_label":
        fields, intervals = _of_sets(outputs, label_ids, names)
    else:
        if kind == "choices":
            names = [f"choice {number}" for number in range(outputs.shape[1])]
        fields, intervals = _of_classes(outputs, label_ids, names, metric_names, kind == "choices")
    known = {f"eval_{name}": intervals(name) for name in metric_names}
    return fields | {
        "examples": len(outputs),
        "intervals": {name: interval for name, interval in known.items() if interval},
    }


def _of_classes(outputs, label_ids, names, metric_names, choices: bool) -> tuple[dict, Callable]:
    counts = metrics.confusion_matrix(outputs, label_ids, len(names))
    right = outputs.argmax(1) == label_ids
    temperature, sure_of_halves = _with_temperature(outputs, label_ids)
    of = f"one of up to {len(names)} choices" if choices else f"one of {_listed(names)}"
    fields = {
        "task": "multiple-choice" if choices else "text-classification",
        "described": of,
        "outcomes": right.astype(np.float64),
        "calibrations": {
            "the answer": measure_reliability(outputs.max(1), right),
            "the answer, with a temperature fitted on one half of the examples and judged on the "
            "other": measure_reliability(sure_of_halves, right),
        },
        "notes": [
            *([positive_label_note(names)] if len(names) == 2 and "f1" in metric_names else []),
            f"The temperature that makes the right answers to these examples likeliest is "
            f"{temperature:.4f}; --temperature=tuned divides the logits by it.",
        ],
        "tables": [_class_table("By place" if choices else "By label", outputs, label_ids, names)],
        "matrices": [ReportMatrix("Confusions", names, counts)],
        "limits": rare_names_limit(dict(zip(names, counts.sum(1), strict=True)), "examples"),
    }

    def interval(name: str) -> Interval | None:
        if name in ("accuracy", "micro_f1"):
            return wilson_interval(int(right.sum()), len(right))
        rows, columns = np.nonzero(counts)
        of_label = np.eye(len(names))
        # Not the whole matrix of each pair, which a thousand labels have no memory for.
        right_ones = (rows == columns)[:, np.newaxis]
        parts = [of_label[rows] * right_ones, of_label[rows], of_label[columns]]

        def score(sums):
            return class_score(name, *np.split(sums, 3, axis=1))

        return bootstrap_interval(score, np.hstack(parts), counts[rows, columns])

    return fields, interval


def _with_temperature(outputs, label_ids) -> tuple[float, np.ndarray]:
    """The temperature for all, and the highest probabilities [N] with that of the other half."""
    # The logits, but for a number that all of an example's have in common.
    logits = np.log(np.maximum(np.asarray(outputs, np.float64), 1e-300))
    sure = np.zeros(len(logits))
    for half, other in halves_drawn(len(logits)):
        temperature = fit_temperature(logits[other], label_ids[other])
        powers = np.exp(logits[half] / temperature)
        sure[half] = powers.max(1) / powers.sum(1)
    return fit_temperature(logits, label_ids), sure


def _of_sets(outputs, label_ids, names) -> tuple[dict, Callable]:
    predicted, gold = outputs >= metrics.THRESHOLD, label_ids > 0
    right = (predicted == gold).all(1)
    sure = np.where(predicted, outputs, 1 - outputs)
    rows = [
        [name, *(int(x.sum()) for x in (p & g, p & ~g, ~p & g, ~p & ~g))]
        for name, p, g in zip(names, predicted.T, gold.T, strict=True)
    ]
    columns = ["label", "found", "wrongly found", "missed", "rightly absent"]
    thresholds = _threshold_tables(outputs, gold, names)
    _, tuned, halves = thresholds[0].rows
    note = (
        f"With thresholds of their own for the labels, tuned on these examples, micro F1 is "
        f"{tuned[1]:.3f} and macro F1 {tuned[2]:.3f}, which is optimistic; tuned on one half and "
        f"judged on the other {halves[1]:.3f} and {halves[2]:.3f}."
    )
    fields = {
        "task": "text-classification",
        "described": f"any number of {_listed(names)}",
        "outcomes": right.astype(np.float64),
        "outcome": "all labels right",
        "calibrations": {
            "each label's presence or absence": measure_reliability(
                sure.ravel(), (predicted == gold).ravel()
            )
        },
        "tables": [
            _class_table("By label", outputs, label_ids, names),
            ReportTable("Confusions by label", columns, rows),
            *thresholds,
        ],
        "notes": ["A label is predicted from a probability of 0.5 on.", note],
        "limits": rare_names_limit(dict(zip(names, gold.sum(0), strict=True)), "examples"),
    }
    parts = np.concatenate([predicted & gold, predicted & ~gold, ~predicted & gold], 1)

    def interval(name: str) -> Interval | None:
        if name == "accuracy":
            return wilson_interval(int(right.sum()), len(right))

        def score(sums):
            return set_score(name, *np.split(sums, 3, axis=1))

        return bootstrap_interval(score, parts)

    return fields, interval


def _threshold_tables(outputs, gold, names) -> list[ReportTable]:
    """What thresholds of their own would do for the labels."""
    thresholds = tune_label_thresholds(outputs, gold)
    plain, tuned = outputs >= metrics.THRESHOLD, outputs >= thresholds
    ways = {
        "0.5 for all": plain,
        "tuned on these examples": tuned,
        "tuned on one half, judged on the other": halves_predicted(outputs, gold),
    }
    rows = [
        [way, *(float(set_score(name, *_counts(predicted, gold))[0]) for name in _F1)]
        for way, predicted in ways.items()
    ]
    of_labels = [
        [name, float(threshold), *f1]
        for name, threshold, *f1 in zip(
            names, thresholds, *(_f1_of_labels(p, gold) for p in (plain, tuned)), strict=True
        )
    ]
    return [
        ReportTable(
            "Thresholds: 0.5, or tuned",
            ["thresholds", "micro F1", "macro F1"],
            rows,
            "The second row is optimistic, as the thresholds were chosen on what they are judged "
            "by; the third says more of other texts. --label_thresholds=tuned predicts with the "
            "second row's.",
        ),
        ReportTable("Thresholds by label", ["label", "tuned", "F1 at 0.5", "F1 tuned"], of_labels),
    ]


def _counts(predicted: np.ndarray, gold: np.ndarray) -> list[np.ndarray]:
    """Found, wrongly found and missed of each label, int64 [1, L] each."""
    parts = (predicted & gold, predicted & ~gold, ~predicted & gold)
    return [part.sum(0, keepdims=True) for part in parts]


def _f1_of_labels(predicted: np.ndarray, gold: np.ndarray) -> list[float]:
    found, wrong, missed = _counts(predicted, gold)
    return _ratio(2 * found, 2 * found + wrong + missed)[0].tolist()


def _of_numbers(outputs, label_ids) -> tuple[dict, Callable]:
    predicted, gold = np.asarray(outputs, np.float64), np.asarray(label_ids, np.float64)
    errors = np.abs(predicted - gold)
    edges = np.unique(np.quantile(gold, np.linspace(0, 1, _NUMBER_BINS + 1)))
    number = np.searchsorted(edges[1:-1], gold, "right")
    rows = []
    for part in (number == n for n in np.unique(number)):
        off = predicted[part] - gold[part]
        low, high = gold[part].min(), gold[part].max()
        rows.append([f"{low:g} to {high:g}", int(part.sum()), off.mean(), np.abs(off).mean()])
    columns = ["right number", "examples", "mean error", "mean absolute error"]
    fields = {
        "task": "text-classification",
        "described": "a number",
        "outcomes": errors,
        "outcome": "absolute error",
        "mistake_value": "absolute error",
        "tables": [ReportTable("Errors by the right number", columns, rows, bars=False)],
        "numbers": (gold, predicted),
        "limits": [
            f"The right numbers of these examples go from {gold.min():g} to {gold.max():g}; "
            f"beyond them nothing was measured."
        ],
    }

    def interval(name: str) -> Interval | None:
        if not np.isfinite(predicted).all():
            return None
        if name in ("mse", "mae"):
            values = errors**2 if name == "mse" else errors
            parts = np.stack([np.ones_like(values), values], 1)
            return bootstrap_interval(lambda sums: sums[:, 1] / sums[:, 0], parts)
        if name == "spearman":
            return drawn_interval(lambda drawn: _spearman(gold[drawn], predicted[drawn]), len(gold))
        # Around the means, or the sums of squares would lose digits.
        x, y = gold - gold.mean(), predicted - predicted.mean()
        parts = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1)
        return bootstrap_interval(_pearson, parts)

    return fields, interval


def positive_label_note(names: Sequence[str]) -> str:
    """Of which of two labels the metric f1 is."""
    return f"F1 without another word is that of the label {names[1]}, the second of the two."


def _class_table(title: str, outputs, label_ids, names) -> ReportTable:
    """Of `metrics.class_metrics_report`."""
    report = metrics.class_metrics_report(outputs, label_ids, names)
    columns = ("precision", "recall", "f1", "support")
    rows = [[row["name"], *(row[column] for column in columns)] for row in report]
    return ReportTable(title, ["label", "precision", "recall", "F1", "support"], rows)


def class_score(name: str, right: np.ndarray, gold: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """A metric of `modeling.metrics` from counts of each label [R, L]; float64 [R].

    Args:
        name: Of the metric.
        right, gold, answered: How often a label was right, is the true one, and was answered.
    """
    total = gold.sum(1)
    if name in ("accuracy", "micro_f1"):
        return right.sum(1) / total
    if name == "matthews":
        covariance = right.sum(1) * total - (gold * answered).sum(1)
        squares = (total**2 - (gold**2).sum(1)) * (total**2 - (answered**2).sum(1))
        return _ratio(covariance, np.sqrt(squares))
    f1 = _ratio(2 * right, gold + answered)
    if name == "f1":
        return f1[:, 1]
    if name == "weighted_f1":
        return (f1 * gold).sum(1) / total
    return f1.sum(1) / (gold + answered > 0).sum(1)


def set_score(name: str, found: np.ndarray, wrong: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Micro-, macro- or weighted F1 from counts of each label [R, L]; float64 [R]."""
    if name == "micro_f1":
        found, wrong, missed = (x.sum(1, keepdims=True) for x in (found, wrong, missed))
    f1 = _ratio(2 * found, 2 * found + wrong + missed)
    if name == "weighted_f1":
        support = found + missed
        return _ratio((f1 * support).sum(1), support.sum(1))
    return f1.mean(1)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED)
    return f"{len(names)} labels ({shown})"


def _pearson(sums: np.ndarray) -> np.ndarray:
    """Of sums [R, 6] of 1, x, y, xx, yy and xy."""
    count, x, y, xx, yy, xy = sums.T
    variances = np.maximum((count * xx - x * x) * (count * yy - y * y), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (count * xy - x * y) / np.sqrt(variances)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.stats import rankdata

    x, y = rankdata(x), rankdata(y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """0 where there is nothing to divide by."""
    return np.divide(above, below, out=np.zeros_like(below, np.float64), where=below > 0)
