"""Files for the GLUE server."""

from collections import Counter

import numpy as np
import pytest
from absl import logging

from data.errors import DataError
from data.tasks.sentences import glue
from data.tasks.sentences.glue_submission import write_submission

# What the server wants: file, rows, and what the classes are called.
NUMBERS = ["0", "1"]
NLI = ["contradiction", "entailment", "neutral"]
ENTAILMENT = ["entailment", "not_entailment"]
FILES = [
    ("CoLA", "test", "CoLA.tsv", 1063, NUMBERS),
    ("SST-2", "test", "SST-2.tsv", 1821, NUMBERS),
    ("MRPC", "test", "MRPC.tsv", 1725, NUMBERS),
    ("STS-B", "test", "STS-B.tsv", 1379, None),
    ("QQP", "test", "QQP.tsv", 390965, NUMBERS),
    ("MNLI", "test", "MNLI-m.tsv", 9796, NLI),
    ("MNLI", "test_mismatched", "MNLI-mm.tsv", 9847, NLI),
    ("MNLI", "diagnostic", "AX.tsv", 1104, NLI),
    ("diagnostic", "test", "AX.tsv", 1104, NLI),
    ("QNLI", "test", "QNLI.tsv", 5463, ENTAILMENT),
    ("RTE", "test", "RTE.tsv", 3000, ENTAILMENT),
    ("WNLI", "test", "WNLI.tsv", 146, NUMBERS),
]


@pytest.fixture
def warnings(monkeypatch):
    said = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: said.append(text % args))
    return said


def _rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    assert text.endswith("\n")
    return [line.split("\t") for line in text[:-1].split("\n")]


@pytest.mark.parametrize(("task", "split", "name", "size", "labels"), FILES)
def test_names_sizes_and_labels(task, split, name, size, labels, tmp_path, warnings):
    rng = np.random.default_rng(1)
    outputs = rng.random((size, len(labels)) if labels else size, np.float32)
    path = write_submission(str(tmp_path / "new"), task, split, outputs)
    assert path == str(tmp_path / "new" / name)
    assert [p.name for p in (tmp_path / "new").iterdir()] == [name]
    header, *rows = _rows(path)
    assert header == ["index", "prediction"]
    assert [row[0] for row in rows] == [str(number) for number in range(size)]
    if labels:
        assert [row[1] for row in rows] == [labels[n] for n in outputs.argmax(1)]
    else:
        assert np.allclose([float(row[1]) for row in rows], outputs, atol=5.1e-4)
    assert not warnings
    write_submission(str(tmp_path), task, split, outputs[:-1])
    assert f"has {size - 1} predictions" in warnings[0] and f"has {size}:" in warnings[0]


def test_real_test_sets_fill_the_files(shared_data, tmp_path, warnings):
    for name in ("CoLA", "SST-2", "MRPC", "STS-B", "RTE", "WNLI"):
        task = glue.get_task(name)
        examples = task.read(str(shared_data / "glue" / name), "test")
        outputs = np.zeros((len(examples), len(task.labels)) if task.labels else len(examples))
        write_submission(str(tmp_path), name, "test", outputs)
    assert len(list(tmp_path.iterdir())) == 6
    assert not warnings


def test_scores_are_clipped(tmp_path):
    path = write_submission(str(tmp_path), "sts-b", "test", np.array([-0.2, 5.4, 2.71828]))
    assert _rows(path)[1:] == [["0", "0.000"], ["1", "5.000"], ["2", "2.718"]]


def test_wnli_majority(shared_data, tmp_path):
    outputs = np.tile(np.array([[0.1, 0.9]], np.float32), (146, 1))
    path = write_submission(str(tmp_path), "WNLI", "test", outputs, majority=True)
    train = glue.get_task("wnli").read(str(shared_data / "glue/WNLI"), "train")
    [(majority, _)] = Counter(example.label for example in train).most_common(1)
    assert Counter(row[1] for row in _rows(path)[1:]) == {majority: 146}
    path = write_submission(str(tmp_path), "WNLI", "test", outputs)
    assert {row[1] for row in _rows(path)[1:]} == {"1"}
    with pytest.raises(DataError, match="WNLI only"):
        write_submission(str(tmp_path), "RTE", "test", outputs, majority=True)


def test_what_the_server_does_not_take(tmp_path):
    outputs = np.full((2, 2), 0.5)
    for task, split in (("xnli", "test"), ("cola", "dev"), ("mrpc", "diagnostic")):
        with pytest.raises(DataError, match=f"no predictions for {task} {split}; it takes cola"):
            write_submission(str(tmp_path), task, split, outputs)
    outputs[1, 0] = np.nan
    with pytest.raises(DataError, match="1 rows of cola test, the first with index 1"):
        write_submission(str(tmp_path), "cola", "test", outputs)
    with pytest.raises(ValueError, match="shape"):
        write_submission(str(tmp_path), "mnli", "test", np.zeros((2, 2)))
    assert not list(tmp_path.iterdir())
