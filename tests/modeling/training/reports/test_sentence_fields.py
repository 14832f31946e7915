"""Scores from counts are those of `modeling.metrics`, and the fields are recomputed by loops."""

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from modeling import metrics
from modeling.training.reports.intervals import wilson_interval
from modeling.training.reports.sentences import class_score, sentence_fields, set_score

OF_CLASSES = ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "matthews")


def of_classes(count=200, classes=3, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, count)
    outputs = draw.dirichlet(np.ones(classes), count)
    outputs[np.arange(count), labels] += 0.5
    return (outputs / outputs.sum(1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize("classes, names", [(2, (*OF_CLASSES, "f1")), (3, OF_CLASSES)])
def test_class_scores_are_the_metrics(classes, names):
    outputs, labels = of_classes(classes=classes)
    counts = metrics.confusion_matrix(outputs, labels, classes)
    # A class that is neither right nor answered isn't counted.
    rare = np.zeros([classes + 1] * 2, int)
    rare[:classes, :classes] = counts
    for name in names:
        expected = metrics.compute_metrics([name], outputs, labels)[name]
        for matrix in (counts, rare):
            sums = (np.diagonal(matrix), matrix.sum(1), matrix.sum(0))
            score = class_score(name, *(numbers[np.newaxis] for numbers in sums))
            assert score[0] == pytest.approx(expected, abs=1e-12)


def test_set_scores_are_the_metrics():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, [100, 4])
    outputs = np.clip(labels * 0.4 + draw.random([100, 4]) * 0.6, 0, 1)
    outputs[:, 3], labels[:, 3] = 0.1, 0  # a label that never comes
    predicted = outputs >= 0.5
    sums = [np.sum(x, 0)[np.newaxis] for x in (predicted & labels, predicted & ~labels & 1)]
    sums.append(np.sum(~predicted & labels, 0)[np.newaxis])
    for name in ("micro_f1", "macro_f1", "weighted_f1"):
        expected = metrics.compute_metrics([name], outputs, labels)[name]
        assert set_score(name, *sums)[0] == pytest.approx(expected, abs=1e-12)


def test_fields_of_classes():
    outputs, labels = of_classes(classes=2)
    fields = sentence_fields("classes", outputs, labels, ["no", "yes"], ("f1", "accuracy"))
    right = outputs.argmax(1) == labels
    np.testing.assert_array_equal(fields["outcomes"], right)
    assert fields["intervals"]["eval_accuracy"] == wilson_interval(right.sum(), 200)
    low, high = fields["intervals"]["eval_f1"]
    assert low < metrics.compute_metrics(["f1"], outputs, labels)["f1"] < high
    assert fields["matrices"][0].counts[0, 1] == np.sum((labels == 0) & (outputs[:, 1] > 0.5))
    assert fields["calibrations"]["the answer"].counts.sum() == 200


def test_many_classes_need_no_matrix_for_each_pair_of_them():
    outputs, labels = of_classes(count=2000, classes=500)
    outputs = np.random.default_rng(1).permutation(outputs)
    tracemalloc.start()
    try:
        fields = sentence_fields("classes", outputs, labels, [*map(str, range(500))], ("macro_f1",))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    low, high = fields["intervals"]["eval_macro_f1"]
    assert 0 <= low < high < 0.1 and peak < 500e6


def test_fields_of_numbers():
    draw = np.random.default_rng(0)
    gold = draw.normal(size=120).astype(np.float32)
    predicted = gold + draw.normal(size=120).astype(np.float32) / 2
    names = ("pearson", "spearman", "mse", "mae")
    intervals = sentence_fields("regression", predicted, gold, [], names)["intervals"]
    for name, value in metrics.compute_metrics(names, predicted, gold).items():
        low, high = intervals[f"eval_{name}"]
        assert low < value < high
    # Fisher's transformation, which holds for normal numbers.
    r = stats.pearsonr(predicted, gold)
    expected = r.confidence_interval(0.95)
    assert intervals["eval_pearson"] == pytest.approx((expected.low, expected.high), abs=0.03)


def test_numbers_all_alike_have_no_interval():
    gold = np.arange(10, dtype=np.float32)
    fields = sentence_fields("regression", np.ones(10), gold, [], ("pearson", "spearman", "mse"))
    assert np.isnan(fields["intervals"]["eval_pearson"]).all()
    assert np.isnan(fields["intervals"]["eval_spearman"]).all()
    diverged = np.full(10, np.nan)
    assert sentence_fields("regression", diverged, gold, [], ("mse",))["intervals"] == {}


def test_rare_labels_are_named():
    outputs, labels = of_classes(90)
    labels[labels == 2] = 1
    labels[0] = 2
    limits = sentence_fields("classes", outputs, labels, ["a", "b", "<c>"], ())["limits"]
    assert len(limits) == 1 and "<c> (1)" in limits[0] and "a (" not in limits[0]
