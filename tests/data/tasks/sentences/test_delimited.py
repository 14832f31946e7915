"""The task over one's own files: labels found, files split, mistakes explained."""

import dataclasses
import json
import random
from collections import Counter

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from data.errors import DataError
from data.files import atomic
from data.tasks.sentences.delimited import (
    SavedSentenceLabels,
    balanced_sentence_weights,
    load_sentence_labels,
    make_sentence_task,
    saved_sentence_labels,
)
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.labelled import _class_counts
from data.tasks.sentences.rows import sentence_label_ids

TRAIN = "id\ttext\tlabel\n" + "".join(f"{i}\ttext {i}\t{'bc'[i % 2]}\n" for i in range(10))


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return str(path)

    return write


def make(train=None, **options):
    options = {"text_columns": "text", "label_column": "label"} | options
    return make_sentence_task(train_file=train, **options)


def error_of(function, *arguments, **options):
    with pytest.raises(DataError) as error:
        function(*arguments, **options)
    return str(error.value)


def labelled(labels):
    return [Example(str(i), "x", None, label, f"f:{i + 1}") for i, label in enumerate(labels)]


def test_single_texts(written):
    path = written("train.tsv", TRAIN)
    dev = [written("a/x.tsv", TRAIN), written("b/x.tsv", TRAIN), written("c/x.tsv", TRAIN)]
    test = written("test.tsv", "text\nt\n")
    task = make(path, dev_files=dev, test_file=test)
    assert (task.name, task.kind, task.labels) == ("delimited", SentenceKind.CLASSES, ["b", "c"])
    assert not task.pairs
    assert task.metrics == ("accuracy", "f1")
    assert task.splits("train") == ("train",)
    assert task.splits("dev") == ("dev", "dev_x", "dev_x_2")
    train = task.read(None, "train")
    assert len(train) == 10
    assert train[1] == Example("train-2", "text 1", None, "c", f"{path}:3")
    assert task.read(None, "dev_x")[0] == Example("dev_x-1", "text 0", None, "b", f"{dev[1]}:2")
    assert task.read(None, "test") == [Example("test-1", "t", None, None, f"{test}:2")]
    assert "dev_x_2, test" in error_of(task.read, None, "dev_y")
    assert "'eval'" in error_of(task.splits, "eval")


def test_pairs_ids_and_three_labels(written, tmp_path):
    path = written("train.csv", 'key,a,b,gold\nk1,"x\ny",p,l3\nk2,z,q, l1\nk3,z,r,l2\n')
    task = make_sentence_task(
        train_file="train.csv",
        data_dir=str(tmp_path),
        dev_files=path,
        text_columns=["b", "a"],
        label_column="gold",
        id_column="key",
    )
    assert task.pairs
    assert task.labels == ["l1", "l2", "l3"]
    assert task.metrics == ("accuracy", "macro_f1")
    first, second, _ = task.read(None, "train")
    assert (first.guid, first.text_a, first.text_b) == ("k1", "p", "x\ny")
    assert second.source == f"{path}:4"
    # A whole path stays what it is.
    assert task.read(None, "dev")[1].source == f"{path}:4"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "-1"], ["-1", "9", "10"]),
        (["10", "9", "nan"], ["10", "9", "nan"]),
        (["b", "a", "10"], ["10", "a", "b"]),
    ],
)
def test_order_of_labels(labels, expected, written):
    path = written("t.tsv", "text\tlabel\n" + "".join(f"x\t{label}\n" for label in labels))
    assert make(path).labels == expected
    assert make(path, labels=labels).labels == labels


def test_types_in_json(written):
    path = written(
        "t.jsonl",
        '{"text": "a", "label": 1}\n{"text": "b", "label": 0.0}\n{"text": "c", "label": true}\n',
    )
    assert make(path).labels == ["0", "1", "true"]
    assert [e.label for e in make(path).read(None, "train")] == ["1", "0", "true"]


def test_multi_label(written):
    path = written("t.tsv", "text\tlabel\nx\tb; a\ny\t\nz\ta;a\n")
    task = make(path, kind="multi_label", label_separator=";")
    assert task.labels == ["a", "b"]
    assert task.metrics == ("micro_f1", "macro_f1", "accuracy")
    assert [e.label for e in task.read(None, "train")] == [("b", "a"), (), ("a",)]
    path = written("t.jsonl", '{"text": "x", "label": []}\n{"text": "y", "label": ["b", 1]}\n')
    dev = written("d.jsonl", '{"text": "x", "label": ["b"]}\n{"text": "y", "label": ["b", "c"]}\n')
    task = make(path, dev_files=dev)
    assert (task.kind, task.labels) == (SentenceKind.MULTI_LABEL, ["1", "b"])
    message = error_of(task.read, None, "dev")
    assert "d.jsonl:2" in message
    assert "'c'" in message


def test_lists_in_cells(written):
    """As a program writes a column of lists into CSV: JSON is read, what looks like it refused."""
    path = written("a.tsv", 'text\tlabel\na\t["x, y", "z"]\nb\t["z"]\nc\tz\n')
    task = make(path, kind="multi_label")
    assert task.labels == ["x, y", "z"]
    assert [e.label for e in task.read(None, "train")] == [("x, y", "z"), ("z",), ("z",)]
    path = written("d.tsv", "text\tlabel\na\t[PER],[LOC]\nb\t[PER]\nc\tz\n")
    assert make(path, kind="multi_label").labels == ["[LOC]", "[PER]", "z"]
    path = written("b.tsv", "text\tlabel\na\t['x', 'y']\nb\tz\nc\tz\n")
    message = error_of(make, path, kind="multi_label")
    assert f"{path}:2: the column 'label' holds \"['x', 'y']\"" in message


def test_unknown_labels_are_compared_a_few_times(written, monkeypatch):
    """Each comparison takes milliseconds, and a file may have any number of wrong rows."""
    rows = "".join(f"t\tLabel {n}\n" for n in range(100))
    train = written("train.tsv", "text\tlabel\n" + rows)
    dev = written("dev.tsv", "text\tlabel\n" + rows.replace("Label ", "label_"))
    asked = []
    monkeypatch.setattr(
        "data.tasks.sentences.labelled.did_you_mean", lambda name, _: asked.append(name) or ""
    )
    error_of(make(train, dev_files=[dev]).read, None, "dev")
    assert asked == [f"label_{n}" for n in range(20)]


def test_parquet_lists_and_nulls(tmp_path):
    path = str(tmp_path / "t.parquet")
    table = pyarrow.table({"text": ["x", "y"], "label": [["b"], ["a", "b"]]})
    pyarrow.parquet.write_table(table, path)
    assert [e.label for e in make(path).read(None, "train")] == [("b",), ("a", "b")]
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x", None], "label": ["a", "b"]}), path)
    assert f"{path}: row 2: the column 'text' holds null" in error_of(make, path)
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x", "y"], "label": ["a", None]}), path)
    assert f"{path}: row 2: the column 'label' holds null" in error_of(make, path)


def test_regression(written):
    path = written("t.tsv", "text\tlabel\na\t 3.5\nb\t-1e1\n")
    dev = written("d.tsv", "text\tlabel\na\t1\nb\tgood\n")
    task = make(path, kind="regression", dev_files=[dev])
    assert (task.labels, task.kind) == ([], SentenceKind.REGRESSION)
    assert task.metrics == ("pearson", "spearman", "mse")
    assert [e.label for e in task.read(None, "train")] == [3.5, -10.0]
    message = error_of(task.read, None, "dev")
    for word in (f"{dev}:3:", "'good'", "number"):
        assert word in message
    for wrong in ("nan", "inf", "1_0", "3,5", ""):
        path = written("t.tsv", f"text\tlabel\na\t{wrong}\n")
        assert f"{path}:2:" in error_of(make(path, kind="regression").read, None, "train")


def test_numbers_that_float32_cannot_tell_apart(written):
    path = written("a.tsv", "text\tlabel\na\t1e39\nb\t1\n")
    task = make(path, kind="regression")
    assert "of at most 3.4e38" in error_of(task.read, None, "train")
    same = written("c.tsv", "text\tlabel\na\t0.3\na\t0.30000000000000004\na\t0.3\n")
    examples = make(same, kind="regression").read(None, "train")
    ids = sentence_label_ids(examples, SentenceKind.REGRESSION, ())
    assert ids.tolist() == [np.float32(0.3)] * 3
    for first, fits in ((1_700_000_000, False), (1_700, True)):
        rows = "".join(f"a\t{first + n}\n" for n in range(60))
        path = written("b.tsv", "text\tlabel\n" + rows)
        examples = make(path, kind="regression").read(None, "train")
        if fits:
            ids = sentence_label_ids(examples, SentenceKind.REGRESSION, ())
            assert ids.tolist() == [first + n for n in range(60)]
        else:
            message = error_of(sentence_label_ids, examples, SentenceKind.REGRESSION, ())
            assert f"{path}:2" in message and "Subtract the same number" in message


def test_label_seen_only_in_dev(written):
    dev = written("d.tsv", "text\tlabel\nx\tb\ny\tcc\n")
    message = error_of(make(written("t.tsv", TRAIN), dev_files=dev).read, None, "dev")
    for word in (f"{dev}:3:", "'cc'", "b, c", "did you mean 'c'"):
        assert word in message


def test_wrong_column(written):
    path = written("t.tsv", TRAIN)
    message = error_of(make, path, text_columns="Txt")
    for word in (path, "'Txt'", "'id', 'text', 'label'", "did you mean 'text'"):
        assert word in message
    assert "'gold'" in error_of(make, path, label_column="gold")
    assert "'key'" in error_of(make, path, id_column="key")
    assert "--label_column" in error_of(make, path, label_column=None)


def test_duplicate_ids(written):
    path = written("t.csv", 'id,text,label\n1,"a\nb",x\n2,c,y\n1,d,x\n')
    message = error_of(make, path, id_column="id")
    assert f"{path}:5:" in message
    assert f"{path}:2." in message
    assert "'1'" in message


def test_bad_tables(written):
    path = written("t.tsv", "")
    assert f"{path} is empty" in error_of(make, path)
    path = written("t.tsv", "text\tlabel\na\tx\nb\n")
    assert f"{path}:3: this row has 1" in error_of(make, path)
    path = written("t.tsv", "text\tlabel\na\tx\nb\t \n")
    assert f"{path}:3: the column 'label' holds an empty string" in error_of(make, path)
    path = written("t.tsv", "text\tlabel\na\tx\nb\tx\n")
    assert "only the label 'x'" in error_of(make, path)


def test_missing_files_name_their_flags(written):
    task = make(labels="a,b")
    assert "--test_file" in error_of(task.read, None, "test")
    assert "--dev_file" in error_of(task.read, None, "dev")
    assert "--train_file" in error_of(task.read, None, "train")
    assert "--train_file" in error_of(make)
    assert task.splits("dev") == ("dev",)
    missing = make(labels="a,b", test_file="/none/t.tsv")
    assert "/none/t.tsv can't be read" in error_of(missing.read, None, "test")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"text_columns": "a,b,c"}, "a, b, c"),
        ({"text_columns": ()}, "--text_columns"),
        ({"text_columns": "label"}, "both text and label"),
        ({"kind": "choices"}, "classes, multi_label, regression"),
        ({"labels": "a,b,a"}, "twice"),
        ({"labels": "a"}, "two at least"),
        ({"labels": "a,b", "kind": "regression"}, "Regression has no labels"),
        ({"dev_fraction": 1.0}, "below 1"),
        ({"dev_fraction": 0.1, "dev_files": "d.tsv"}, "one of them"),
    ],
)
def test_contradicting_arguments(options, word):
    assert word in error_of(make, **options)


def test_dev_fraction(written):
    lines = [f"text {i}\t{'a' if i % 4 else 'b'}" for i in range(200)]
    lines += ["alone\tc", *(["same text\ta"] * 5)]
    path = written("t.tsv", "text\tlabel\n" + "\n".join(lines))
    task = make(path, dev_fraction=0.1)
    train, dev = task.read(None, "train"), task.read(None, "dev")
    assert task.splits("dev") == ("dev",)
    assert len(train) + len(dev) == len(lines)
    counts = Counter(e.label for e in dev)
    # Of 155 and 50; up to four too many if "same text" is the last.
    assert counts["b"] == 5
    assert 15 <= counts["a"] <= 20
    assert counts["c"] == 0
    assert not {e.text_a for e in train} & {e.text_a for e in dev}
    # Neither order nor run matters, and a larger share holds a smaller one.
    random.Random(0).shuffle(lines)
    path = written("u.tsv", "text\tlabel\n" + "\n".join(lines))
    again = make(path, dev_fraction=0.1).read(None, "dev")
    assert sorted(e.text_a for e in again) == sorted(e.text_a for e in dev)
    more = make(path, dev_fraction=0.3).read(None, "dev")
    assert {e.text_a for e in more} > {e.text_a for e in dev}


def test_no_other_share_than_was_held_out(written, tmp_path):
    path = written("t.tsv", TRAIN)
    saved = saved_sentence_labels(make(path, dev_fraction=0.3))
    (tmp_path / "labels.json").write_text(json.dumps(saved))
    known = load_sentence_labels(str(tmp_path / "labels.json"))
    assert known.dev_fraction == 0.3
    make(path, dev_fraction=0.3, saved_labels=known)
    # A smaller one isn't always a part of it: of classes of 2, 2 and 11 texts 0.1 holds out one
    # that 0.15 doesn't.
    for other in (0.2, 0.5):
        message = error_of(make, path, dev_fraction=other, saved_labels=known)
        assert "was trained with a dev_fraction of 0.3" in message
    # A model of an earlier version doesn't tell.
    make(path, dev_fraction=0.5, saved_labels=dataclasses.replace(known, dev_fraction=None))


def test_dev_fraction_is_pinned(written):
    """A changed hash would silently move examples between the sets of earlier runs."""
    task = make(written("t.tsv", TRAIN), dev_fraction=0.3)
    assert [e.guid for e in task.read(None, "dev")] == ["train-3", "train-7", "train-10"]


def test_dev_fraction_of_little(written):
    path = written("t.tsv", TRAIN)
    task = make(path, dev_fraction=0.001)
    assert [len(task.read(None, split)) for split in ("train", "dev")] == [9, 1]
    task = make(path, dev_fraction=0.999)
    assert Counter(e.label for e in task.read(None, "train")) == {"b": 1, "c": 1}
    path = written("t.tsv", "text\tlabel\nx\ta\ny\tb\n")
    message = error_of(make(path, dev_fraction=0.5).read, None, "dev")
    assert "single text" in message
    path = written("t.tsv", "text\tlabel\nx\t1\ny\t2\nz\t3\nw\t4\n")
    task = make(path, dev_fraction=0.5, kind="regression")
    assert len(task.read(None, "dev")) == 2
    path = written("t.tsv", "text\tlabel\nx\ta,b\ny\ta\nz\ta\nw\t\n")
    task = make(path, dev_fraction=0.5, kind="multi_label")
    assert "b" in {label for e in task.read(None, "train") for label in e.label}


def test_saved_labels(written, tmp_path):
    path = str(tmp_path / "labels.json")
    task = make(written("t.tsv", TRAIN.replace("\tb\n", "\tgrün\n")))
    atomic.write_text(path, json.dumps(saved_sentence_labels(task)))
    assert [file.name for file in tmp_path.iterdir() if "labels" in file.name] == ["labels.json"]
    saved = load_sentence_labels(path)
    assert saved.labels == ["c", "grün"]
    dev = written("d.tsv", "text\tlabel\nx\tc\ny\tb\n")
    again = make_sentence_task(saved_labels=saved, label_column="label", dev_files=dev)
    assert (again.kind, again.labels, again.text_columns) == (task.kind, task.labels, ("text",))
    assert "c, grün" in error_of(again.read, None, "dev")
    for options in ({"labels": "grün,c"}, {"kind": "regression"}, {"text_columns": "text,b"}):
        assert "The model was trained" in error_of(make, saved_labels=saved, **options)
    message = error_of(make, saved_labels=saved, kind="multi_label", labels="c,grün")
    assert "classes with the labels c, grün; given were multi_label and the labels" in message
    for content in (
        '{"kind": "classes", "labels": "ab", "text_columns": ["t"]}',
        "{",
        '{"kind": "odd", "labels": [], "text_columns": []}',
        "[]",
        '{"labels": 1}',
    ):
        wrong = written("wrong.json", content)
        assert wrong in error_of(load_sentence_labels, wrong)
    assert "can't be read" in error_of(load_sentence_labels, str(tmp_path / "none.json"))
    regression = make(kind="regression")
    atomic.write_text(path, json.dumps(saved_sentence_labels(regression)))
    assert json.loads((tmp_path / "labels.json").read_text("utf-8"))["labels"] == []
    assert make(saved_labels=load_sentence_labels(path)).kind == SentenceKind.REGRESSION


def test_saved_labels_need_no_training_file(written):
    saved = SavedSentenceLabels(SentenceKind.CLASSES, ["b", "c"], ("text",))
    test = written("test.tsv", "text\nt\n")
    task = make_sentence_task(saved_labels=saved, test_file=test)
    assert (task.kind, task.labels, task.metrics) == (
        SentenceKind.CLASSES,
        ["b", "c"],
        ("accuracy", "f1"),
    )
    assert task.read(None, "test") == [Example("test-1", "t", None, None, f"{test}:2")]
    dev = written("d.tsv", "text\tlabel\nx\tc\n")
    task = make_sentence_task(saved_labels=saved, dev_files=dev, label_column="label")
    assert task.splits("dev") == ("dev",)
    assert task.read(None, "dev") == [Example("dev-1", "x", None, "c", f"{dev}:2")]
    message = error_of(make_sentence_task(saved_labels=saved, dev_files=dev).read, None, "dev")
    assert dev in message and "--label_column" in message
    message = error_of(make_sentence_task(saved_labels=saved, dev_fraction=0.5).read, None, "dev")
    assert "0.5 is a part of the training file" in message and "--train_file" in message
    # Neither saved nor to be found.
    message = error_of(make_sentence_task, text_columns="text", test_file=test)
    for word in ("labels aren't known", "--train_file", "--labels", "trained model"):
        assert word in message


def test_warnings(written, caplog):
    def warnings(content, **options):
        caplog.clear()
        task = make(written("t.tsv", content), **options)
        task.read(None, "train")
        return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    rows = ["text\tlabel"] + ["x\ta"] * 97
    (message,) = warnings("\n".join([*rows, "y\tb", "y\tb", "y\tb"]))
    assert "97.0 %" in message
    assert "'a'" in message
    assert not warnings("\n".join([*rows[:96], *["y\tb"] * 5]))
    (message,) = warnings("\n".join(["text\tlabel", "x\ta", "y\tb"]), labels="a,b,c")
    assert "no example has the label c" in message
    (message,) = warnings("text\tlabel\n" + "\n".join(f"x\t{i}.5" for i in range(60)))
    assert "60 different labels" in message


def test_class_weights():
    examples = labelled(["a", "a", "a", "b"])
    assert _class_counts(examples, ["b", "a"]).tolist() == [1, 3]
    weights = balanced_sentence_weights(examples, ["b", "a"])
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, [4 / 2, 4 / 6], rtol=1e-6)
    # One that doesn't occur neither divides by zero nor counts as a class.
    np.testing.assert_allclose(
        balanced_sentence_weights(examples, ["b", "a", "c"]), [2, 2 / 3, 1], rtol=1e-6
    )
    multi = labelled([("a", "b"), ("a",), ()])
    np.testing.assert_allclose(balanced_sentence_weights(multi, ["a", "b"]), [0.75, 1.5])
    assert "f:2" in error_of(_class_counts, labelled(["a", "z"]), ["a"])
    assert "f:1" in error_of(_class_counts, labelled([None]), ["a"])


def test_cell_of_ten_megabytes(written):
    text = "word " * (2 * 2**20)
    path = written("t.csv", f'text,label\n"{text}",a\nshort,b\n')
    assert make(path).read(None, "train")[0].text_a == text


def test_other_delimiters_and_encodings(written, tmp_path):
    path = str(tmp_path / "own.csv")
    with open(path, "w", encoding="utf-16") as file:
        file.write("text;label\né, è;b\nö;c\n")
    task = make(path, delimiter="semicolon", encoding="utf-16")
    assert [(e.text_a, e.label) for e in task.read(None, "train")] == [("é, è", "b"), ("ö", "c")]
    message = error_of(make, path, delimiter=";")
    assert "own.csv:1: found the bytes" in message and "give --encoding=utf-16" in message
    path = written("a.csv", "text;label\na;b\n")
    assert "give --delimiter=semicolon" in error_of(make, path)
    assert "--delimiter is 'x'" in error_of(make, path, delimiter="x")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["true", "True", "true", "no"], "'True' (1 row) and 'true' (2 rows)."),
        (["1", "1.0", "01", "2"], "'01' (1 row) and '1' (1 row) and '1.0' (1 row)."),
        (["yes", "1", "no", "0"], "'0' (1 row) and 'no' (1 row); '1' (1 row) and 'yes' (1 row)."),
        (["a  b", "A b", "c"], "'A b' (1 row) and 'a  b' (1 row)."),
        (["ＡＢ", "ab", "c"], "'ab' (1 row) and 'ＡＢ' (1 row)."),
        (["neg", "n\u00adeg", "pos"], r"'neg' (1 row) and 'n\xadeg' (1 row)."),
        (["10000000000000000000001", "10000000000000000000002"], None),
        (["true", "false", "nan", "naN0", "1_0", "10"], None),
        (["0", "1", "2", "-1"], None),
        (["9e9999999", "1e-9999999", "x"], None),
    ],
)
def test_labels_that_look_alike_are_said_and_kept(written, caplog, labels, said):
    path = written("t.tsv", "text\tlabel\n" + "".join(f"{i}\t{x}\n" for i, x in enumerate(labels)))
    task = make(path)
    assert set(task.labels) == set(labels)
    alike = "t.tsv: labels that look alike are learned as different ones: "
    assert (alike in caplog.text) == (said is not None)
    assert f"{alike}{said}" in caplog.text or not said


@pytest.mark.parametrize(
    ("labels", "several"),
    [
        (["a,b", "a", "c", "b"], True),
        (["a;b", "b;c", "a;c", "a;b"], True),
        (["a|b", "b", "c", "c"], True),
        (["Paris, France", "Rome, Italy", "Oslo, Norway", "x"], False),
        (["a", "b", "c", "d"], False),
    ],
)
def test_several_labels_in_a_cell_are_said(written, caplog, labels, several):
    make(written("t.tsv", "text\tlabel\n" + "".join(f"{i}\t{x}\n" for i, x in enumerate(labels))))
    assert ("give --label_kind=multi_label --label_separator=" in caplog.text) == several
