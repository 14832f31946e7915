"""predictions.tsv and errors.tsv, read back."""

import numpy as np
import pytest

from data.errors import DataError
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.predictions import (
    write_predictions,
    write_sentence_errors,
    write_sentence_test_results,
)


def _examples(golds, text_b=None, choices=()):
    return [
        Example(f"dev-{n}", f"text {n}", text_b, gold, f"dev.tsv:{n + 1}", choices)
        for n, gold in enumerate(golds)
    ]


def _rows(path):
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [line.split("\t") for line in text[:-1].split("\n")]


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "out.tsv"
    assert [p.name for p in tmp_path.iterdir()] == ["out.tsv"]


def _random(*shape):
    p = np.random.default_rng(0).random(shape, np.float32)
    return p / p.sum(-1, keepdims=True)


def test_test_results_have_probabilities_only(path):
    outputs = _random(3, 2)
    write_sentence_test_results(str(path), outputs)
    assert np.array_equal(np.loadtxt(path, np.float32), outputs)


def test_classes(path):
    outputs = _random(50, 3)
    names = ["bad", "so so", "good"]
    golds = [names[n % 3] for n in range(50)]
    write_predictions(str(path), _examples(golds), SentenceKind.CLASSES, names, outputs)
    header, *rows = _rows(path)
    assert header == ["id", "gold", "label", *names]
    assert [row[:2] for row in rows] == [[f"dev-{n}", gold] for n, gold in enumerate(golds)]
    assert [row[2] for row in rows] == [names[n] for n in outputs.argmax(1)]
    assert np.array_equal(np.array([row[3:] for row in rows]).astype(np.float32), outputs)
    write_predictions(str(path), _examples([None] * 50), SentenceKind.CLASSES, names, outputs)
    assert _rows(path)[0] == ["id", "label", *names]


def test_odd_names_keep_rows_whole(path):
    names = ["a\tb", "c\nd\r", "e\\f", "label", "id"]
    outputs = np.eye(5, dtype=np.float32)
    write_predictions(str(path), _examples(names), SentenceKind.CLASSES, names, outputs)
    header, *rows = _rows(path)
    written = ["a\\tb", "c\\nd\\r", "e\\\\f"]
    assert header == ["id", "gold", "label", *written, "probability_label", "probability_id"]
    assert [row[2] for row in rows] == [*written, "label", "id"]
    assert {len(row) for row in rows} == {8}


def test_cells_that_a_spreadsheet_would_run(path):
    names = ["=1+1", "@x"]
    outputs = np.eye(2, dtype=np.float32)
    for raw, sign in ((False, "'"), (True, "")):
        options = {"raw_cells": raw}
        write_predictions(
            str(path), _examples(names), SentenceKind.CLASSES, names, outputs[::-1], **options
        )
        header, *rows = _rows(path)
        assert header[2:] == ["label", f"{sign}=1+1", f"{sign}@x"]
        assert [row[1:3] for row in rows] == [
            [f"{sign}=1+1", f"{sign}@x"],
            [f"{sign}@x", f"{sign}=1+1"],
        ]
        write_sentence_errors(
            str(path), _examples(names), SentenceKind.CLASSES, names, outputs[::-1], **options
        )
        assert _rows(path)[1][2:4] == [f"{sign}=1+1", f"{sign}@x"]
    write_predictions(str(path), _examples([-2.5]), SentenceKind.REGRESSION, [], -outputs[0, :1])
    assert _rows(path)[1] == ["dev-0", "-2.5", "-1.0"]


def test_multi_label(path):
    outputs = np.array([[0.5, 0.49, 0.9], [0.1, 0.2, 0.3]], np.float32)
    examples = _examples([("x",), ()])
    write_predictions(str(path), examples, SentenceKind.MULTI_LABEL, ["x", "y", "z"], outputs)
    assert _rows(path) == [
        ["id", "gold", "labels", "x", "y", "z"],
        ["dev-0", "x", "x,z", "0.5", "0.49", "0.9"],
        ["dev-1", "", "", "0.1", "0.2", "0.3"],
    ]
    # One that holds a comma would look like two.
    write_predictions(str(path), examples, SentenceKind.MULTI_LABEL, ["x", "y", "x,y"], outputs)
    assert [row[2] for row in _rows(path)[1:]] == ['["x", "x,y"]', ""]


def test_regression(path):
    outputs = np.array([1 / 3, 1e-7, -2.0], np.float32)
    write_predictions(str(path), _examples([0.5, None, 3.0]), SentenceKind.REGRESSION, [], outputs)
    header, *rows = _rows(path)
    assert header == ["id", "gold", "prediction"]
    assert [row[1] for row in rows] == ["0.5", "", "3.0"]
    assert np.array_equal(np.array([row[2] for row in rows]).astype(np.float32), outputs)


def test_choices(path):
    outputs = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]], np.float32)
    examples = _examples([2, 1])
    write_predictions(str(path), examples, SentenceKind.CHOICES, [], outputs)
    assert _rows(path) == [
        ["id", "gold", "label", "choice_0", "choice_1", "choice_2"],
        ["dev-0", "2", "2", "0.2", "0.3", "0.5"],
        ["dev-1", "1", "0", "0.6", "0.4", "0.0"],
    ]


def test_errors_of_classes_the_surest_first(path):
    outputs = np.array(
        [[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.75, 0.25], [0.3, 0.7], [1, 0]], np.float32
    )
    # Right, wrong, wrong, wrong, as wrong as the second, not known.
    examples = _examples(["no", "no", "no", "yes", "no", None], text_b="tab\there")
    write_sentence_errors(str(path), examples, SentenceKind.CLASSES, ["no", "yes"], outputs)
    header, *rows = _rows(path)
    assert header == ["source", "id", "gold", "predicted", "confidence", "text_a", "text_b"]
    assert rows[0] == ["dev.tsv:3", "dev-2", "no", "yes", "0.8", "text 2", "tab\\there"]
    assert [row[1] for row in rows] == ["dev-2", "dev-3", "dev-1", "dev-4"]
    write_sentence_errors(
        str(path), examples, SentenceKind.CLASSES, ["no", "yes"], outputs, limit=2
    )
    assert _rows(path)[1:] == rows[:2]


def test_errors_of_numbers_the_largest_first(path):
    outputs = np.array([1.0, 2.0, 5.0, 4.5], np.float32)
    write_sentence_errors(
        str(path), _examples([1.0, 2.5, 0.0, 4.0]), SentenceKind.REGRESSION, [], outputs
    )
    header, *rows = _rows(path)
    assert header == ["source", "id", "gold", "predicted", "error", "text_a"]
    assert [row[1:5] for row in rows] == [
        ["dev-2", "0.0", "5.0", "5.0"],
        ["dev-1", "2.5", "2.0", "0.5"],
        ["dev-3", "4.0", "4.5", "0.5"],
    ]


def test_errors_of_choices_and_labels(path):
    outputs = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]], np.float32)
    examples = [
        Example("a", "c", None, 0, "f:1", ("x", "y", "z")),
        Example("b", "d", None, 1, "f:2", ("x", "y")),
    ]
    write_sentence_errors(str(path), examples, SentenceKind.CHOICES, [], outputs)
    header = ["source", "id", "gold", "predicted", "confidence", "text_a"]
    assert _rows(path) == [
        [*header, "choice_0", "choice_1", "choice_2"],
        ["f:2", "b", "1", "0", "0.6", "d", "x", "y", ""],
        ["f:1", "a", "0", "2", "0.5", "c", "x", "y", "z"],
    ]
    # One label too many at 0.75; right; one missing though its probability is 0.125.
    outputs = np.array([[0.75, 0.9], [0.9, 0.1], [0.125, 0.6]], np.float32)
    examples = _examples([("q",), ("p",), ("p", "q")])
    write_sentence_errors(str(path), examples, SentenceKind.MULTI_LABEL, ["p", "q"], outputs)
    assert [row[1:5] for row in _rows(path)[1:]] == [
        ["dev-2", "p,q", "q", "0.875"],
        ["dev-0", "q", "p,q", "0.75"],
    ]


def test_long_texts_are_cut(path):
    examples = [Example("a", "x" * 10_000_000, None, "1", "f:1")]
    outputs = np.array([[1, 0]], np.float32)
    write_sentence_errors(str(path), examples, SentenceKind.CLASSES, ["0", "1"], outputs)
    assert _rows(path)[1][5] == "x" * 2000 + "…"


def test_shapes_and_paths_are_checked(tmp_path):
    for kind, shape in (
        (SentenceKind.CLASSES, (2, 3)),
        (SentenceKind.CLASSES, (1, 2)),
        (SentenceKind.REGRESSION, (2, 1)),
        (SentenceKind.CHOICES, (2,)),
    ):
        with pytest.raises(ValueError, match="2 examples"):
            write_predictions(
                str(tmp_path / "x"), _examples([None] * 2), kind, ["0", "1"], np.zeros(shape)
            )
    with pytest.raises(DataError, match=r"absent/x can't be written"):
        write_predictions(
            str(tmp_path / "absent/x"), _examples([None]), SentenceKind.REGRESSION, [], np.zeros(1)
        )
    assert not list(tmp_path.iterdir())
