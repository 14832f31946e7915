"""Metrics against formulas written out in NumPy, in float64."""

import warnings

import numpy as np
import pytest

from modeling.errors import ModelingError
from modeling.metrics import (
    NAMES,
    class_metrics_report,
    compute_metrics,
    confusion_matrix,
    format_metrics_report,
    is_constant_output,
    smaller_metric_is_better,
)

CLASS_METRICS = ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "matthews")


def plain_counts(predicted, gold):
    """True positives, predicted and gold positives of 0/1 arrays [N, L], each [L]."""
    return (predicted * gold).sum(0), predicted.sum(0), gold.sum(0)


def plain_f1s(predicted, gold):
    hits, said, there = (a.astype(np.float64) for a in plain_counts(predicted, gold))
    return np.divide(2 * hits, said + there, out=np.zeros_like(hits), where=said + there > 0)


def plain_matthews(predicted, gold):
    """Gorodkin's R_K: the correlation of one-hot predictions with one-hot labels."""
    p, g = predicted - predicted.mean(0), gold - gold.mean(0)
    below = np.sqrt((p * p).sum() * (g * g).sum())
    return (p * g).sum() / below if below else 0.0


def plain_pearson(x, y):
    x, y = x - x.mean(), y - y.mean()
    return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())


def plain_ranks(x):
    """Ties take the mean of their ranks."""
    return np.array([(x < value).sum() + ((x == value).sum() - 1) / 2 for value in x])


def one_hot(ids, count):
    return np.eye(count, dtype=np.int64)[ids]


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classes(count, dtype):
    random = np.random.default_rng(count)
    labels = random.integers(0, count, 200)
    outputs = random.dirichlet(np.ones(count), 200) + 0.5 * one_hot(labels, count)
    outputs = (outputs / outputs.sum(1, keepdims=True)).astype(dtype)
    predicted, gold = one_hot(outputs.argmax(1), count), one_hot(labels, count)
    f1s, there = plain_f1s(predicted, gold), gold.sum(0)
    expected = {
        "accuracy": (predicted * gold).sum() / 200,
        "macro_f1": f1s.mean(),
        "micro_f1": (predicted * gold).sum() / 200,
        "weighted_f1": (f1s * there).sum() / there.sum(),
        "matthews": plain_matthews(predicted, gold),
    }
    if count == 2:
        expected["f1"] = f1s[1]
    got = compute_metrics(tuple(expected), outputs, labels)
    assert list(got) == list(expected) and all(type(v) is float for v in got.values())
    assert 0.1 < expected["matthews"] < 0.95
    np.testing.assert_allclose(list(got.values()), list(expected.values()), rtol=0, atol=1e-12)


def test_multi_label():
    random = np.random.default_rng(3)
    for count in (1, 4):
        labels = random.integers(0, 2, (150, count))
        outputs = np.clip(0.4 * labels + 0.8 * random.random((150, count)) - 0.1, 0, 1)
        predicted = (outputs >= 0.5).astype(np.int64)
        f1s, (hits, said, there) = plain_f1s(predicted, labels), plain_counts(predicted, labels)
        got = compute_metrics(CLASS_METRICS[:-1], outputs.astype(np.float32), labels)
        expected = {
            "accuracy": (predicted == labels).all(1).mean(),
            "macro_f1": f1s.mean(),
            "micro_f1": 2 * hits.sum() / (said.sum() + there.sum()),
            "weighted_f1": (f1s * there).sum() / there.sum(),
        }
        assert got == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ModelingError, match=r"matthews can't be had .* multi-label"):
        compute_metrics(["matthews"], outputs, labels)


def test_regression():
    random = np.random.default_rng(5)
    labels = random.integers(0, 26, 300) / 5  # with ties, as STS-B
    outputs = labels + random.standard_normal(300)
    outputs[::7] = np.round(outputs[::7])
    got = compute_metrics(("spearman", "pearson", "mse", "mae"), outputs, labels)
    expected = {
        "spearman": plain_pearson(plain_ranks(outputs), plain_ranks(labels)),
        "pearson": plain_pearson(outputs, labels),
        "mse": ((outputs - labels) ** 2).mean(),
        "mae": np.abs(outputs - labels).mean(),
    }
    assert list(got) == list(expected)
    assert got == pytest.approx(expected, abs=1e-12)


def test_constant_and_broken_outputs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = np.array([0, 1, 1, 0, 1])
        for outputs in (np.tile([0.9, 0.1], (5, 1)), np.full((5, 2), np.nan)):
            got = compute_metrics([*CLASS_METRICS, "f1"], outputs, labels)
            assert got["matthews"] == got["f1"] == 0.0
            assert got["accuracy"] == pytest.approx(0.4)
        assert compute_metrics(["matthews"], [[0.1, 0.9]], [1]) == {"matthews": 0.0}
        numbers = np.array([1.0, 2.0, 3.0])
        for outputs, truth in (
            (np.full(3, 0.1), numbers),
            (numbers, np.full(3, 2.0)),
            ([1.0, np.inf, 2.0], numbers),
        ):
            got = compute_metrics(["pearson", "spearman"], outputs, truth)
            assert np.isnan(list(got.values())).all() and len(got) == 2
        assert np.isnan(compute_metrics(["pearson"], [1.0], [1.0])["pearson"])
        assert compute_metrics(["mse", "mae"], [1.0, np.nan], [1.0, 2.0]) == {
            "mse": np.inf,
            "mae": np.inf,
        }


def test_correlations_of_rounding_are_undefined():
    """One number computed in batches of unlike sizes may differ in its last bit."""
    number = np.float32(1.3098832e-11)
    rounded = np.where(np.arange(20) < 4, np.nextafter(number, np.float32(1)), number)
    said = compute_metrics(("pearson", "spearman"), rounded, np.arange(20.0))
    assert np.isnan(list(said.values())).all()
    told_apart = number * (1 + 1e-5 * np.arange(20))
    said = compute_metrics(("pearson", "spearman"), told_apart, np.arange(20.0))
    assert said == pytest.approx({"pearson": 1, "spearman": 1})


def test_degenerate():
    constant, varied = np.tile([0.2, 0.8], (4, 1)), np.eye(2)[[0, 1, 1, 0]]
    assert is_constant_output(constant, [0, 1, 1, 1])
    assert not is_constant_output(constant, [1, 1, 1, 1])
    assert not is_constant_output(varied, [0, 1, 1, 1])
    assert is_constant_output(np.full((4, 2), np.nan), [0, 1, 1, 1])
    assert is_constant_output(constant, [[0, 1], [1, 1], [0, 1], [0, 1]])
    assert not is_constant_output(varied, [[0, 1], [1, 1], [0, 1], [0, 1]])
    assert not is_constant_output(constant, np.tile([0, 1], (4, 1)))
    labels = np.array([0.0, 5.0, 2.5])
    assert is_constant_output(2.5 + np.array([0, 4e-6, 1e-6]), labels)
    assert not is_constant_output(2.5 + np.array([0, 6e-6, 1e-6]), labels)
    assert not is_constant_output(np.ones(3), np.ones(3))


def test_confusion_matrix():
    outputs, labels = np.eye(4)[[0, 1, 1, 3, 3, 3]], [0, 0, 1, 3, 1, 3]
    matrix = confusion_matrix(outputs, labels, 4)
    expected = np.zeros((4, 4), np.int64)
    np.add.at(expected, (labels, outputs.argmax(1)), 1)
    assert matrix.dtype == np.int64
    np.testing.assert_array_equal(matrix, expected)
    assert matrix[0, 1] == 1 and matrix[1, 0] == 0
    for arguments in ((outputs, labels, 3), (np.ones(6), labels, 4)):
        with pytest.raises(ModelingError, match="confusion matrix of"):
            confusion_matrix(*arguments)


@pytest.mark.parametrize("kind", ["classes", "multi-label", "one label"])
def test_class_report(kind):
    random = np.random.default_rng(11)
    count = 1 if kind == "one label" else 3
    if kind == "classes":
        labels, outputs = random.integers(0, 3, 60), random.random((60, 3))
        predicted, gold = one_hot(outputs.argmax(1), 3), one_hot(labels, 3)
    else:
        labels, outputs = random.integers(0, 2, (60, count)), random.random((60, count))
        predicted, gold = (outputs >= 0.5).astype(np.int64), labels
    names = ["a", "b", "c"][:count]
    rows = class_metrics_report(outputs, labels, names)
    assert [row["name"] for row in rows] == [*names, "macro avg", "weighted avg"]
    hits, said, there = plain_counts(predicted, gold)
    scores = np.stack([hits / said, hits / there, plain_f1s(predicted, gold)], 1)
    scores = [*scores, scores.mean(0), (scores * there[:, None]).sum(0) / there.sum()]
    for row, expected in zip(rows, scores, strict=True):
        values = [row[key] for key in ("precision", "recall", "f1")]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)
    assert [row["support"] for row in rows] == [*there, there.sum(), there.sum()]
    averages = compute_metrics(["macro_f1", "weighted_f1"], outputs, labels)
    assert list(averages.values()) == [row["f1"] for row in rows[-2:]]
    with pytest.raises(ModelingError, match="report on 7 classes"):
        class_metrics_report(outputs, labels, list("abcdefg"))


def test_report_is_aligned_and_knows_absent_classes():
    rows = class_metrics_report(
        np.eye(4)[[0, 1, 1, 0]], [0, 1, 1, 1], ["no", "好评", "never", "x" * 20]
    )
    assert rows[2] == {"name": "never", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    # Averaged over the two that occur, as scikit-learn does when it isn't told of others.
    assert rows[4]["f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    lines = format_metrics_report(rows).split("\n")
    assert lines[0].split() == ["precision", "recall", "f1", "support"]
    assert lines[2] == "好评" + " " * 16 + "     1.0000  0.6667  0.8000        3"
    assert len({len(line) for line in lines if line and "好" not in line}) == 1
    assert len(lines) == 8 and lines[5] == ""


def test_what_is_refused():
    outputs, labels = np.eye(3), [0, 1, 2]
    for names, arguments, match in (
        (["acuracy"], (outputs, labels), "no metric 'acuracy'; metrics may be among accuracy, f1"),
        (["f1"], (outputs, labels), "f1 is that of class 1 of two, and there are 3"),
        (["pearson"], (outputs, labels), "pearson can't be had .* classes; those have accuracy"),
        (["accuracy"], ([0.1, 0.2], [0.1, 0.2]), "regression; those have pearson"),
        (["accuracy"], (np.zeros((0, 3)), []), "no examples"),
        (["mse"], ([], []), "no examples"),
        (["accuracy"], (outputs, [0, 1]), "don't fit together"),
        (["mse"], (np.ones((3, 1)), [0.5, 1, 2]), "don't fit together"),
        (["accuracy"], (outputs, np.ones((3, 2))), "don't fit together"),
        (["accuracy"], (outputs, [0, 1, 3]), "labels from 0 to 3; .* from 0 to 2"),
        (["accuracy"], (outputs, [0, 1, -1]), "from 0 to 2"),
        (["accuracy"], (outputs, [0, 1, 1.5]), "whole numbers"),
        (["accuracy"], (outputs, 2 * np.eye(3)), "0 or 1"),
        (["mse"], ([1.0, 2.0], [1.0, np.nan]), "finite numbers"),
        (["accuracy"], (outputs, ["a", "b", "c"]), "finite numbers"),
    ):
        with pytest.raises(ModelingError, match=match):
            compute_metrics(names, *arguments)


def test_direction():
    assert {name for name in NAMES if smaller_metric_is_better(name)} == {"mse", "mae"}
    assert smaller_metric_is_better("masked_lm_loss")
