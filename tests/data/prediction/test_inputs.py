"""Questions in all formats; bad lines; windows."""

import gzip
import json
import os
import threading

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.prediction import inputs as prediction_inputs
from data.prediction.formats import _in_order
from data.prediction.inputs import PredictionInputs, number_of_prediction_inputs


def texts(*names):
    return {name: tf.TensorSpec([None], tf.string, name) for name in names}


CHOICES = texts("context") | {"choices": tf.TensorSpec([None, None], tf.string)}
NUMBERS = {
    "ids": tf.TensorSpec([None, None], tf.int32),
    "weight": tf.TensorSpec([None], tf.float32),
    "fixed": tf.TensorSpec([None, 2], tf.int64),
}


@pytest.fixture
def read(tmp_path):
    """The examples of a file with that name and content."""

    def read(name, content, specs, format="auto", skip=False, **more):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(PredictionInputs(str(path), specs, format, skip, **more))

    return read


def test_a_line_is_a_text(read):
    got = read("a.txt", 'one\t"x"\n\n é \n\n', texts("text"))
    assert [e.values["text"].decode() for e in got] == ['one\t"x"', "", " é ", ""]
    assert got[2].source.endswith("a.txt:3") and got[-1].share == 1


def test_order_of_columns():
    assert _in_order(["context", "question"]) == ["question", "context"]
    assert _in_order({"choices": 0, "context": 0}) == ["context", "choices"]
    assert _in_order(["b", "text_b", "a", "text_a"]) == ["text_a", "text_b", "a", "b"]


def test_texts_between_tabs(read):
    got = read("a", "why?\tso \n\ta\n\n", texts("context", "question"))
    assert [e.values for e in got] == [
        {"question": b"why?", "context": b"so "},
        {"question": b"", "context": b"a"},
    ]
    got = read("a", "x\tc\td\nx\tc\t\te\n", CHOICES)
    assert [e.values["choices"] for e in got] == [[b"c", b"d"], [b"c", b"", b"e"]]
    assert [e.values["context"] for e in got] == [b"x", b"x"]


def test_headers(read):
    rows = [["id", "text_b", "text_a"], ["1", "b", 'a, "q"'], ["2", "", "é"]]
    tsv = "".join("\t".join(row) + "\n" for row in rows)
    csv = '\ufeffid,text_b,text_a\r\n1,b,"a, ""q"""\r\n2,,é\r\n\r\n'
    for name, content in (
        ("a.tsv", tsv),
        ("a.tsv.gz", gzip.compress(tsv.encode())),
        ("a.csv", csv),
    ):
        got = read(name, content, texts("text_a", "text_b"))
        assert [e.values["text_a"].decode() for e in got] == ['a, "q"', "é"]
        assert [e.values["text_b"] for e in got] == [b"b", b""]
        assert [e.passed for e in got] == [{"id": "1"}, {"id": "2"}]
    got = read("a.csv", 'text,id\n"a\nb",1\n,2\n', texts("text"))
    assert [e.values["text"] for e in got] == [b"a\nb", b""]
    assert [e.source.rsplit(":")[-1] for e in got] == ["2", "4"]
    # An empty field in quotes is a text, as pandas writes it; a blank line at the end is none.
    got = read("a.csv", 'text\n"x"\n""\n"y"\n\n""\n""\n\n', texts("text"))
    assert [e.values["text"] for e in got] == [b"x", b"", b"y", b"", b"", b""]
    got = read("a.tsv", "context\tchoices_0\tchoices_1\tid\nc\tx\ty\t7\n", CHOICES)
    assert got[0].values == {"context": b"c", "choices": [b"x", b"y"]}
    assert got[0].passed == {"id": "7"}


def test_a_gap_in_the_header_is_refused(read):
    for gap, missing in (("choices_3", "choices_2"), ("choices_10", "choices_2")):
        with pytest.raises(
            DataError, match=rf"a\.csv:1: the header has '?{gap}'? and no {missing}"
        ):
            read("a.csv", f"context,choices_0,choices_1,{gap}\nc,x,y,z\n", CHOICES)
    got = read("a.csv", "context,choices_0,choices_1,choices_made\nc,x,y,z\n", CHOICES)
    assert got[0].passed == {"choices_made": "z"}


def test_json(read):
    lines = [
        {"id": 1, "text": "é", "more": {"a": [1]}},
        {"text": {"b64": "/w=="}},
        {"text": "\ud83d"},
    ]
    content = "\n\n".join(map(json.dumps, lines))
    for name, format in (("a.jsonl", "auto"), ("a.txt", "jsonl"), ("a.json", "auto")):
        got = read(name, content, texts("text"), format)
        assert [e.values["text"] for e in got] == ["é".encode(), b"\xff", "\ufffd".encode()]
        assert got[0].passed == {"id": 1, "more": {"a": [1]}}
        assert got[2].source.endswith(":5")
    got = read("a.jsonl", '{"choices": ["x", ""], "context": ""}', CHOICES)
    assert got[0].values == {"context": b"", "choices": [b"x", b""]}


def test_numbers(read):
    got = read("a.jsonl", '{"ids": [3, 4], "weight": 1, "fixed": [5, 6]}', NUMBERS)[0]
    assert got.values["ids"].dtype == np.int32 and got.values["ids"].tolist() == [3, 4]
    assert got.values["weight"].dtype == np.float32 and got.values["weight"].shape == ()
    assert got.size == 5
    assert read("a.jsonl", '{"ids": [], "weight": 1, "fixed": [5, 6]}', NUMBERS)[0].size == 3


def test_numbers_that_do_not_fit(read):
    for name, value in [
        ("ids", 3),
        ("ids", [2**31]),
        ("ids", [10**30]),
        ("ids", [1.5]),
        ("ids", [[1], [2, 3]]),
        ("ids", "3"),
        ("ids", [True]),
        ("weight", [1]),
        ("weight", "x"),
        ("fixed", [1, 2, 3]),
    ]:
        line = {"ids": [1], "weight": 1.0, "fixed": [1, 2]} | {name: value}
        with pytest.raises(DataError, match=rf"a\.jsonl:1: the field '{name}' holds .* the model"):
            read("a.jsonl", json.dumps(line), NUMBERS)


BAD = [
    ("a", "x\ty\nz\n", texts("text_a", "text_b"), 2, "1 columns between tabs; expected 2"),
    ("a", "x\n", CHOICES, 1, "expected 2 or more: context, choices"),
    ("a", b"x\nna\xefve\n", texts("text"), 2, "not UTF-8"),
    ("a.tsv", "id\ttext\n1\tx\n2\n", texts("text"), 3, "1 tab-separated columns"),
    ("a.tsv", b"id\ttext\n\xff\tx\n", texts("text"), 2, "not UTF-8"),
    ("a.csv", 'id,text\n1,a"b\n2,"a"b\n', texts("text"), 3, "isn't CSV"),
    ("a.csv", b"id,text\n\xff,x\n", texts("text"), 2, "not UTF-8"),
    ("a.jsonl", '{"text": "x"}\n{"text": "x"\n', texts("text"), 2, "isn't JSON"),
    ("a.jsonl", '["x"]', texts("text"), 1, "is not an object"),
    ("a.jsonl", '{"text": "x", "text": "y"}', texts("text"), 1, "occurs twice"),
    ("a.jsonl", b'{"text": "\xff"}', texts("text"), 1, "not UTF-8"),
    ("a.jsonl", '{"txt": "x"}', texts("text"), 1, "'text' is missing (did you mean 'txt'?)"),
    ("a.jsonl", '{"text": null}', texts("text"), 1, "'text' holds null"),
    ("a.jsonl", '{"text": 5}', texts("text"), 1, "holds 5; the model takes a text"),
    ("a.jsonl", '{"text": {"b64": "?"}}', texts("text"), 1, "base64"),
    ("a.jsonl", '{"context": "x", "choices": "y"}', CHOICES, 1, "takes a list of texts"),
    ("a.jsonl", '{"context": "x", "choices": ["y", 1]}', CHOICES, 1, "holds 1; the model takes"),
]


@pytest.mark.parametrize(("name", "content", "specs", "line", "part"), BAD)
def test_bad_lines(read, name, content, specs, line, part):
    with pytest.raises(DataError) as caught:
        read(name, content, specs)
    assert f"/{name}:{line}: " in str(caught.value) and part in str(caught.value)
    # A good line behind the bad one is still read.
    good = {"text": "ok", "text_a": "ok", "text_b": "", "context": "ok", "choices": ["ok"]}
    if name.endswith("jsonl"):
        more = json.dumps(good)
    elif "." in name:
        more = "ok,ok" if "csv" in name else "ok\tok"
    else:
        more = "ok" if list(specs) == ["text"] else "ok\tok"
    content = content if isinstance(content, bytes) else content.encode()
    got = read(name, content.rstrip(b"\n") + b"\n" + more.encode(), specs, skip=True)
    errors = [example for example in got if example.error]
    assert [e.source.rsplit(":")[-1] for e in errors] == [str(line)]
    assert str(errors[0].error) == str(caught.value) and errors[0].values == {}
    assert got[-1].error is None and b"ok" in got[-1].values.values()


def test_what_is_passed_through_of_a_bad_line(read):
    got = read("a.jsonl", '{"id": 3, "text": 5}', texts("text"), skip=True)
    assert got[0].passed == {"id": 3} and got[0].error


def test_files_that_do_not_fit(read, tmp_path):
    cases = [
        ("a.tsv", "id\ttexts\n1\tx\n", texts("text"), "no text (did you mean 'texts'?)"),
        ("a.tsv", "text\ttext\nx\ty\n", texts("text"), "text twice"),
        ("a.tsv", "context\tchoices\nx\ty\n", CHOICES, "context, choices_0, choices_1 …"),
        ("a.tsv", b"\xff\n", texts("text"), "a.tsv:1: found the bytes"),
        ("a.tsv", "text\n", texts("text"), "is empty"),
        ("a.txt", "", texts("text"), "is empty"),
        ("a.jsonl", "\n \n", texts("text"), "is empty"),
        ("a.txt", "1\n", NUMBERS, "come from JSON lines only"),
        ("a.parquet", "x", texts("text"), "Parquet"),
        ("a.txt", "x", CHOICES | {"words": tf.TensorSpec([None, None], tf.string)}, "no place"),
    ]
    for name, content, specs, part in cases:
        for skip in (False, True):
            with pytest.raises(DataError) as caught:
                read(name, content, specs, skip=skip)
            assert name in str(caught.value) and part in str(caught.value)
    with pytest.raises(DataError, match="matches no file"):
        PredictionInputs(f"{tmp_path}/absent*", texts("text"))


def test_several_files(tmp_path):
    for name, content in (("b.txt", "b\n"), ("a.jsonl", '{"text": "a"}'), ("c,[d]", "c")):
        (tmp_path / name).write_text(content)
    inputs = PredictionInputs(f"{tmp_path}/b.txt, {tmp_path}/*.jsonl", texts("text"))
    assert [e.values["text"] for e in inputs] == [b"b", b"a"]
    assert [e.values for e in PredictionInputs(f"{tmp_path}/c,[d]", texts("text"))] == [
        {"text": b"c"}
    ]


def test_windows_of_files_are_always_the_same(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(1000)))
    for _ in range(3):
        inputs = PredictionInputs(f"{tmp_path}/a", texts("text"))
        windows = list(inputs.windows(300))
        assert [len(window) for window in windows] == [300, 300, 300, 100]
        assert [int(e.values["text"]) for window in windows for e in window] == list(range(1000))
    monkeypatch.setattr(prediction_inputs, "WINDOW_CHARACTERS", 1000)
    (tmp_path / "a").write_text("".join("x" * 300 + "\n" for _ in range(10)))
    windows = PredictionInputs(f"{tmp_path}/a", texts("text")).windows(300)
    assert [len(window) for window in windows] == [4, 4, 2]


def test_lines_before_a_bad_one_come_first(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"text": "y"}\n{}\n')
    windows = PredictionInputs(f"{tmp_path}/a.jsonl", texts("text")).windows(100)
    assert len(next(windows)) == 2
    with pytest.raises(DataError, match=r"a\.jsonl:3"):
        next(windows)


def test_nobody_waits_for_a_full_window(tmp_path):
    """Each line is written only when the one before has been answered."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    asked, answered = ["{not json", "two", "three"], threading.Semaphore(0)

    def write():
        with open(path, "w", buffering=1) as file:
            for line in asked:
                file.write(json.dumps({"text": line}) + "\n")
                assert answered.acquire(timeout=60)

    writer = threading.Thread(target=write)
    writer.start()
    inputs = PredictionInputs(path, texts("text"))
    assert inputs.live
    got = []
    for window in inputs.windows(100):
        got += [example.values["text"].decode() for example in window]
        answered.release()
    writer.join()
    assert got == asked


def test_estimated_total(read):
    (last,) = read("a", "x\n", texts("text"))
    assert number_of_prediction_inputs(7, last) == 8
    half = prediction_inputs.PredictionInput("", {}, {}, None, 0.5)
    assert number_of_prediction_inputs(7, half) == 14
    assert number_of_prediction_inputs(7, prediction_inputs.PredictionInput("", {}, {})) is None


def test_another_delimiter_and_encoding(read):
    content = 'id;text\n1;"é; è"\n'.encode("cp1252")
    (got,) = read("a.csv", content, texts("text"), delimiter="semicolon", encoding="cp1252")
    assert (got.values, got.passed) == ({"text": "é; è".encode()}, {"id": "1"})
    (got,) = read("a.tsv", "id|text\n1|x\n", texts("text"), delimiter="|")
    assert got.values == {"text": b"x"}
    (got,) = read("a", "x;y", texts("text_a", "text_b"), delimiter=";")
    assert got.values == {"text_a": b"x", "text_b": b"y"}
    with pytest.raises(DataError, match=r"a\.csv:2: found the bytes b.*xe9', which.*=cp1252"):
        read("a.csv", content, texts("text"), delimiter=";")
    with pytest.raises(DataError, match=r"a\.csv:1: .*give --delimiter=semicolon"):
        read("a.csv", content, texts("text"), encoding="latin-1")
    (bad,) = read("a.txt", b"\xe9", texts("text"), skip=True)
    assert "byte 1 of the line" in str(bad.error)


PAIR = texts("text_a", "text_b")
TRAINED = {"text_a": "title", "text_b": "body"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,body,title\n7,b,a\n"),
        ("a.tsv", "id\tbody\ttitle\n7\tb\ta\n"),
        ("a.jsonl", '{"id": "7", "body": "b", "title": "a"}'),
        # The inputs' own names count where the columns aren't all there.
        ("a.csv", "id,text_b,text_a\n7,b,a\n"),
        ("a.jsonl", '{"id": "7", "text_a": "a", "text_b": "b"}'),
    ],
)
def test_columns_of_the_training_files(read, name, content):
    (got,) = read(name, content, PAIR, columns=TRAINED)
    assert (got.values, got.passed) == ({"text_a": b"a", "text_b": b"b"}, {"id": "7"})


def test_columns_that_have_the_names_of_other_inputs(read):
    swapped = {"text_a": "text_b", "text_b": "text_a"}
    (got,) = read("a.csv", "text_a,text_b\nx,y\n", PAIR, columns=swapped)
    assert got.values == {"text_a": b"y", "text_b": b"x"}
    # Nobody can tell which of them is meant.
    both = "body, which the model was trained on, and text, as its inputs are called"
    with pytest.raises(DataError, match=rf"a\.csv:1: there are {both}"):
        read("a.csv", "text,body\nx,y\n", texts("text"), columns={"text": "body"})
    with pytest.raises(DataError, match=rf"a\.jsonl:1: there are {both}"):
        read("a.jsonl", '{"text": "x", "body": "y"}', texts("text"), columns={"text": "body"})


def test_columns_that_are_not_there(read):
    with pytest.raises(DataError) as error:
        read("a.csv", "titel,body\nx,y\n", PAIR, columns=TRAINED)
    assert "a.csv:1: expected a header" in str(error.value)
    assert "text_a, text_b, or the columns it was trained on, title, body" in str(error.value)
    assert "(did you mean 'titel'?). The header is 'titel', 'body'" in str(error.value)
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*on, title, body; this line has 'x'"):
        read("a.jsonl", '{"x": "y"}', PAIR, columns=TRAINED)
