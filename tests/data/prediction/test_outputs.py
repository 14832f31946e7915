"""Answers as lines: values, names, files."""

import gzip
import json

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.prediction import outputs as outputs_module
from data.prediction.inputs import PredictionInput
from data.prediction.outputs import PredictionOutputs

SPECS = {
    "label": tf.TensorSpec([None], tf.string),
    "p": tf.TensorSpec([None, None], tf.float32),
    "score": tf.TensorSpec([None], tf.float32),
}


def asked(number, error=None, **passed):
    return PredictionInput(f"f:{number}", {}, passed, DataError(error) if error else None)


def answer(label="x", p=(), score=0.1):
    return {"label": label.encode(), "p": np.array(p, np.float32), "score": np.float32(score)}


def test_json_lines(tmp_path):
    path = tmp_path / "new" / "o.jsonl"
    values = np.random.default_rng(0).normal(size=100).astype(np.float32)
    with PredictionOutputs(str(path), "jsonl", SPECS) as outputs:
        outputs.write([asked(1, id=7), asked(2, label="gold")], [answer("é\n"), answer(p=values)])
        assert not path.exists()
        outputs.write([asked(3)], [answer(score=float("inf"))])
    text = path.read_text("utf-8")
    assert text.splitlines()[0] == '{"id": 7, "label": "é\\n", "p": [], "score": 0.1}'
    _, second, third = map(json.loads, text.splitlines())
    assert second["input_label"] == "gold" and second["label"] == "x"
    assert list(second) == ["input_label", "label", "p", "score"]
    assert (np.array(second["p"], np.float32) == values).all()
    assert all(len(digits) < 15 for digits in map(str, second["p"]))
    assert third["score"] == float("inf")
    assert outputs.done == 3 and [p.name for p in path.parent.iterdir()] == ["o.jsonl"]


def test_nothing_that_is_passed_through_is_lost(tmp_path):
    """As where an output of ours is asked once more."""
    path, fields = tmp_path / "o.jsonl", {"label": "gold", "input_label": "older", "id": 1}
    with PredictionOutputs(str(path), "jsonl", SPECS) as outputs:
        for order in (list(fields), list(fields)[::-1]):
            outputs.write([asked(1, **{name: fields[name] for name in order})], [answer()])
    for line in map(json.loads, path.read_text().splitlines()):
        assert line["label"] == "x" and line["input_input_label"] == "gold"
        assert line["input_label"] == "older" and line["id"] == 1


def test_types_of_values(tmp_path):
    values = {
        "a": (np.int64(2**40), 2**40),
        "b": (np.array([[1, 2]], np.uint8), [[1, 2]]),
        "c": (np.bool_(True), True),
        "d": (np.float64(0.1), 0.1),
        "e": (np.array([b"x", b""], object), ["x", ""]),
        "f": (tf.constant([0.5], tf.bfloat16).numpy(), [0.5]),
        "i": (b"a\x00", "a\x00"),
        "g": (np.float16(0.5), 0.5),
        "h": (np.array([[b"\xffz"]], object), [["\ufffdz"]]),
    }
    specs = {name: tf.TensorSpec(None, tf.int32) for name in values}
    with PredictionOutputs(str(tmp_path / "o"), "jsonl", specs) as outputs:
        outputs.write([asked(1)], [{name: value for name, (value, _) in values.items()}])
    assert json.loads((tmp_path / "o").read_text("utf-8")) == {
        name: wanted for name, (_, wanted) in values.items()
    }


def test_tsv(tmp_path):
    path = tmp_path / "o.tsv"
    with PredictionOutputs(str(path), "tsv", SPECS) as outputs:
        outputs.write([asked(1, id=7, n=[1]), asked(2, id="a\tb")], [answer("x\n"), answer("\\")])
    assert path.read_text() == "id\tn\tlabel\tscore\n7\t[1]\tx\\n\t0.1\na\\tb\t\t\\\\\t0.1\n"
    with pytest.raises(DataError, match="lists: p"):
        PredictionOutputs(str(path), "tsv", {"p": SPECS["p"]})


def test_tsv_that_spreadsheets_open(tmp_path):
    path = tmp_path / "o.tsv"
    for raw, sign in ((False, "'"), (True, "")):
        with PredictionOutputs(str(path), "tsv", SPECS, raw_cells=raw) as outputs:
            outputs.write([asked(1, id="-1", **{"=n": "@a"})], [answer("=x\u2028", score=-0.5)])
        assert path.read_text() == (
            f"id\t{sign}=n\tlabel\tscore\n-1\t{sign}@a\t{sign}=x\\u2028\t-0.5\n"
        )


def test_errors_in_place_of_answers(tmp_path):
    lines = [asked(1, "f:1: no"), asked(2, id=2, error_="e"), asked(3, id=3), asked(4, id=4)]
    answers = [answer(), ValueError("too long."), answer("y")]
    for format in ("jsonl", "tsv"):
        path = tmp_path / format
        with PredictionOutputs(str(path), format, SPECS, True) as outputs:
            outputs.write(lines, answers)
        assert (outputs.done, outputs.bad) == (4, 2)
    got = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    assert got[0] == {"error": "f:1: no"}
    assert got[1]["label"] == "x" and got[3]["label"] == "y"
    assert got[2] == {"id": 3, "error": "f:3: the model refuses it: too long."}
    got = [line.split("\t") for line in (tmp_path / "tsv").read_text().splitlines()]
    assert got[0] == ["id", "error_", "label", "score", "error"]
    assert got[1] == ["", "", "", "", "f:1: no"]
    assert got[2] == ["2", "e", "x", "0.1", ""]
    assert got[3] == ["3", "", "", "", "f:3: the model refuses it: too long."]
    with PredictionOutputs(str(path), "tsv", SPECS, True) as outputs:
        outputs.write(lines[:1], [])
    assert path.read_text() == "label\tscore\terror\n\t\tf:1: no\n"


@pytest.mark.parametrize("lines", [[asked(1), asked(2, "f:2: bad")], [asked(1), asked(2)]])
def test_an_error_ends_it(lines, tmp_path, capfdbinary):
    answers = [answer(), ValueError("f:2: bad")]
    path = tmp_path / "o"
    path.write_text("before")
    with (
        pytest.raises(DataError, match=r"f:2.*bad"),
        PredictionOutputs(str(path), "jsonl", SPECS) as outputs,
    ):
        outputs.write(lines, answers)
    assert [p.name for p in tmp_path.iterdir()] == ["o"] and path.read_text() == "before"
    # What was asked before it has its answer.
    with pytest.raises(DataError), PredictionOutputs("-", "jsonl", SPECS) as outputs:
        outputs.write(lines, answers)
    assert json.loads(capfdbinary.readouterr().out)["label"] == "x"


def test_compressed_the_same_twice(tmp_path):
    for name in ("a.gz", "b.gz"):
        with PredictionOutputs(str(tmp_path / name), "jsonl", SPECS) as outputs:
            outputs.write([asked(1)], [answer()])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert json.loads(gzip.decompress((tmp_path / "a.gz").read_bytes()))["label"] == "x"


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(DataError, match="can't be written"),
        PredictionOutputs(str(tmp_path / "file" / "o"), "jsonl", SPECS),
    ):
        pass
    with pytest.raises(DataError, match="one of the input files"):
        PredictionOutputs(f"{tmp_path}/./file", "jsonl", SPECS, inputs=[str(tmp_path / "file")])


def test_long_lines_are_not_held_together(tmp_path, monkeypatch):
    """What is written is the same; at most a few lines wait."""
    monkeypatch.setattr(outputs_module, "_CHARACTERS_AT_ONCE", 1000)
    waiting = []
    send = PredictionOutputs._send
    monkeypatch.setattr(
        PredictionOutputs, "_send", lambda self, some: (waiting.append(len(some)), send(self, some))
    )
    path = tmp_path / "o.jsonl"
    with PredictionOutputs(str(path), "jsonl", SPECS) as outputs:
        outputs.write([asked(n, id=n) for n in range(50)], [answer(p=range(100))] * 50)
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == list(range(50))
    assert max(waiting) <= 3 and sum(waiting) == 50
