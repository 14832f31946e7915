"""Metrics of classifiers and regressors from arrays, by scikit-learn and SciPy.

What the arrays are follows from their shapes:

    classes      outputs [N, L], probabilities    labels [N], integers from 0
    multi-label  outputs [N, L], probabilities    labels [N, L], 0 or 1
    regression   outputs [N], numbers             labels [N], numbers

Multiple choice counts as classes; where examples have different numbers of choices, the places
that are left over hold probability 0. Scores that the averaging functions of scikit-learn give
are those of its defaults: averages are over the classes that occur in labels or predictions
(multi-label: over all), and a score without anything to count is 0.

A correlation is NaN where it is undefined: where predictions or labels are all the same, or
predictions aren't finite. No other metric is ever NaN. Outputs that aren't finite, as a diverged
run leaves them, count as probability 0; in regression they make errors infinite.
"""

import math
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from modeling.errors import ModelingError

_AVERAGES = {"macro_f1": "macro", "micro_f1": "micro", "weighted_f1": "weighted"}
_OF_CLASSES = ("accuracy", "f1", *_AVERAGES, "matthews")
_OF_SETS = ("accuracy", *_AVERAGES)
_CORRELATIONS = ("pearson", "spearman")
_OF_NUMBERS = (*_CORRELATIONS, "mse", "mae")
NAMES = (*_OF_CLASSES, *_OF_NUMBERS)

THRESHOLD = 0.5  # from which probability on a label of several is predicted
CONSTANT = 1e-6  # spread of the predictions, relative to the labels', that counts as none


def smaller_metric_is_better(name: str) -> bool:
    """Whether less of a metric is better: errors, losses and perplexities."""
    return any(word in name for word in ("mse", "mae", "loss", "perplexity"))


def metric_text(name: str, value: float, digits: int | None = None) -> str:
    """A value for people: in full or with so many digits; a correlation may be undefined."""
    if math.isnan(value) and name.endswith(_CORRELATIONS):
        return "undefined"
    return str(value) if digits is None else f"{value:.{digits}f}"


def first_best_metric(name: str, items: Iterable, value: Callable[[Any], float]) -> Any:
    """Which item has the best value of a metric, the first of equals; None if none is finite."""
    finite = [item for item in items if math.isfinite(value(item))]
    return (min if smaller_metric_is_better(name) else max)(finite, key=value, default=None)


def compute_metrics(names: Sequence[str], outputs, labels) -> dict[str, float]:
    """Metrics of all examples at once, so that no batch weighs more than another.

    accuracy is the share of examples with the right class (multi-label: with exactly the right
    set). f1 is that of class 1 of two. matthews is 0 for constant predictions, pearson and
    spearman are NaN where the labels are constant, or the predictions up to rounding in float32.

    Args:
        names: Among NAMES.
        outputs: float [N, L] or [N]; see the module.
        labels: [N] or [N, L].

    Returns:
        Name → value, in the order of `names`.

    Raises:
        ModelingError: A name is unknown or doesn't suit what the shapes say; shapes don't fit; a
            label is out of range; there are no examples.
    """
    for name in names:
        if name not in NAMES:
            raise ModelingError(
                f"There is no metric {name!r}; metrics may be among {', '.join(NAMES)}."
            )
    arrays = _arrays(outputs, labels)
    for name in names:
        if name not in arrays.metrics:
            raise ModelingError(
                f"The metric {name} can't be had for outputs of shape {arrays.shape} against "
                f"labels of shape {arrays.labels.shape}, which are {arrays.kind}; those have "
                f"{', '.join(arrays.metrics)}."
            )
        if name == "f1" and arrays.shape[1] != 2:
            raise ModelingError(
                f"The metric f1 is that of class 1 of two, and there are {arrays.shape[1]} "
                "classes; use macro_f1, micro_f1 or weighted_f1."
            )
    function = _of_numbers if arrays.kind == "regression" else _of_classes
    with warnings.catch_warnings():
        # Of predictions that are constant, or of labels of a single class.
        warnings.simplefilter("ignore")
        return {name: float(function(name, arrays)) for name in names}


def is_constant_output(outputs, labels) -> bool:
    """Whether a model says the same of every example though the examples differ.

    That is how fine-tuning of a large model on a small set fails at times (paper, section 4.1:
    "unstable on small datasets"). Said are: one class, one set of labels, or numbers whose
    spread is at most 1e-6 of the labels' spread. Outputs that aren't finite are degenerate too.
    Where one class is far more frequent, a sound model may look degenerate as well.

    Args:
        outputs: As for `compute_metrics`.
        labels: As for `compute_metrics`.

    Raises:
        ModelingError: Shapes don't fit, or there are no examples.
    """
    arrays = _arrays(outputs, labels)
    if not arrays.finite:
        return True
    if arrays.kind == "regression":
        spread = np.ptp(arrays.labels)
        return bool(spread > 0 and np.ptp(arrays.predictions) <= CONSTANT * spread)
    return _all_alike(arrays.predictions) and not _all_alike(arrays.labels)


def confusion_matrix(outputs, labels, num_labels: int) -> np.ndarray:
    """Counts, int64 [num_labels, num_labels]: a row per label, a column per prediction.

    Args:
        outputs: float [N, num_labels].
        labels: int [N].
        num_labels: Classes there are, also those that no example has.

    Raises:
        ModelingError: Shapes don't fit, or these are no classes.
    """
    from sklearn import metrics

    arrays = _arrays(outputs, labels)
    if arrays.kind != "classes" or arrays.shape[1] != num_labels:
        raise ModelingError(
            f"A confusion matrix of {num_labels} classes needs outputs [N, {num_labels}] and "
            f"labels [N]; received {arrays.shape} and {arrays.labels.shape}."
        )
    matrix = metrics.confusion_matrix(
        arrays.labels, arrays.predictions, labels=np.arange(num_labels)
    )
    return matrix.astype(np.int64)


def class_metrics_report(outputs, labels, names: Sequence[str]) -> list[dict]:
    """Precision, recall and F1 per class, and their averages.

    Args:
        outputs: float [N, L] of classes or multi-label.
        labels: [N] or [N, L].
        names: L names of the classes.

    Returns:
        A dict per row with name, precision, recall, f1 and support (examples that have the label):
        the classes in their order, then "macro avg" and "weighted avg", which are those of
        `compute_metrics`.

    Raises:
        ModelingError: Shapes don't fit, or these are numbers.
    """
    from sklearn.metrics import precision_recall_fscore_support

    arrays = _arrays(outputs, labels)
    if arrays.kind == "regression" or arrays.shape[1] != len(names):
        raise ModelingError(
            f"A report on {len(names)} classes needs outputs [N, {len(names)}]; received outputs "
            f"of shape {arrays.shape} and labels of shape {arrays.labels.shape}."
        )
    truth, predictions, only = arrays.for_averages()
    ids = [1] if only else np.arange(len(names))
    scores = precision_recall_fscore_support(truth, predictions, labels=ids, zero_division=0)
    rows = [_row(name, *values) for name, *values in zip(names, *scores, strict=True)]
    support = sum(row["support"] for row in rows)
    for average in ("macro", "weighted"):
        values = precision_recall_fscore_support(
            truth, predictions, labels=only, average=average, zero_division=0
        )
        rows.append(_row(f"{average} avg", *values[:3], support))
    return rows


def format_metrics_report(rows: Sequence[dict]) -> str:
    """The rows of `class_metrics_report` as a table for a terminal, four digits."""
    width = max([_width(row["name"]) for row in rows] + [5])
    lines = [" " * width + "  precision  recall      f1  support"]
    for row in rows:
        if row["name"] == "macro avg" and len(lines) > 1:
            lines.append("")
        name = row["name"] + " " * (width - _width(row["name"]))
        lines.append(
            f"{name}  {row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  "
            f"{row['support']:7d}"
        )
    return "\n".join(lines)


class _Arrays(NamedTuple):
    """Checked arrays and what they are."""

    kind: str
    metrics: tuple[str, ...]  # those it can have
    shape: tuple[int, ...]  # of the outputs
    predictions: np.ndarray  # class ids [N], sets of 0 and 1 [N, L], or float64 [N]
    labels: np.ndarray  # alike
    finite: bool  # whether all outputs are

    def for_averages(self):
        """(labels, predictions, class ids to average over or None for all) for scikit-learn.

        It takes a single column of 0 and 1 for two classes, and would count "not" as one.
        """
        if self.kind == "multi-label" and self.shape[1] == 1:
            return self.labels[:, 0], self.predictions[:, 0], [1]
        return self.labels, self.predictions, None


def _arrays(outputs, labels) -> _Arrays:
    outputs, labels = np.asarray(outputs, np.float64), np.asarray(labels)
    shapes = f"outputs of shape {outputs.shape} and labels of shape {labels.shape}"
    if not outputs.size or not labels.size:
        raise ModelingError(f"There are no examples to measure: {shapes}.")
    if labels.dtype.kind not in "biuf" or not np.all(np.isfinite(labels)):
        raise ModelingError(
            f"Labels have to be finite numbers; received {shapes} and type {labels.dtype}."
        )
    finite = np.isfinite(outputs)
    all_finite = bool(np.all(finite))
    if outputs.ndim == labels.ndim == 1 and len(outputs) == len(labels):
        numbers = labels.astype(np.float64)
        return _Arrays("regression", _OF_NUMBERS, outputs.shape, outputs, numbers, all_finite)
    probabilities = np.where(finite, outputs, 0.0)
    if outputs.ndim == labels.ndim == 2 and outputs.shape == labels.shape:
        if not np.all((labels == 0) | (labels == 1)):
            raise ModelingError(f"Labels in several columns have to be 0 or 1; received {shapes}.")
        sets = (probabilities >= THRESHOLD).astype(np.int64)
        truth = labels.astype(np.int64)
        return _Arrays("multi-label", _OF_SETS, outputs.shape, sets, truth, all_finite)
    columns = outputs.shape[1] if outputs.ndim == 2 else 0
    if columns < 2 or labels.ndim != 1 or len(outputs) != len(labels):
        raise ModelingError(
            f"Received {shapes}, which don't fit together; expected [N, L] and [N] for classes, "
            "[N, L] and [N, L] for multi-label, or [N] and [N] for numbers, L being 2 or more for "
            "classes."
        )
    classes = labels.astype(np.int64)
    if np.any(classes != labels) or classes.min() < 0 or classes.max() >= columns:
        raise ModelingError(
            f"Received {shapes} with labels from {labels.min()} to {labels.max()}; the labels of "
            f"{columns} classes have to be whole numbers from 0 to {columns - 1}."
        )
    predictions = np.argmax(probabilities, axis=1)
    return _Arrays("classes", _OF_CLASSES, outputs.shape, predictions, classes, all_finite)


def _of_classes(name: str, arrays: _Arrays) -> float:
    from sklearn import metrics

    if name == "accuracy":
        return metrics.accuracy_score(arrays.labels, arrays.predictions)
    if name == "matthews":
        return metrics.matthews_corrcoef(arrays.labels, arrays.predictions)
    if name == "f1":
        return metrics.f1_score(arrays.labels, arrays.predictions, pos_label=1, zero_division=0)
    truth, predictions, only = arrays.for_averages()
    return metrics.f1_score(
        truth, predictions, labels=only, average=_AVERAGES[name], zero_division=0
    )


def _of_numbers(name: str, arrays: _Arrays) -> float:
    from scipy import stats
    from sklearn import metrics

    predictions, labels = arrays.predictions, arrays.labels
    if name in ("mse", "mae"):
        error = {"mse": metrics.mean_squared_error, "mae": metrics.mean_absolute_error}[name]
        return error(labels, predictions) if arrays.finite else np.inf
    if not arrays.finite or np.ptp(predictions) <= _rounding(predictions) or _all_alike(labels):
        return np.nan
    correlation = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[name]
    return correlation(predictions, labels).statistic


def _rounding(values: np.ndarray) -> float:
    """What one number that float32 computed in batches of unlike sizes may differ by."""
    return 4 * float(np.finfo(np.float32).eps) * float(np.max(np.abs(values)))


def _all_alike(values: np.ndarray) -> bool:
    return bool(np.all(values == values[0]))


def _row(name: str, precision: float, recall: float, f1: float, support: int) -> dict:
    return {
        "name": name,
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
        "support": int(support),
    }


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: Chinese characters take two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide
