"""Bad rows of tables and choices: all in one message, or left out; and files to predict."""

import json
import types

import pyarrow
import pyarrow.parquet
import pytest

from data.errors import DataError
from data.tasks.sentences import glue, multiple_choice
from data.tasks.sentences.delimited import make_sentence_task
from data.tasks.sentences.reading import open_sentence_task, read_sentence_splits
from data.tasks.sentences.rows import SentenceSettings
from data.tokenization import Tokenizer

ROWS = [("a", "x"), ("b", "y"), ("c", " "), ("d", "x"), ("e", "z"), ("f", "y"), ("g", "x")]
BAD = (2, 4)  # an empty label, and one that isn't known


def lines_of(name, rows):
    """A table in the form that its name says, with a column of texts and one of labels."""
    if name.endswith("jsonl"):
        return "".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in rows)
    separator = "," if name.endswith("csv") else "\t"
    return "".join(f"{separator.join(row)}\n" for row in [("text", "label"), *rows])


def task_of(folder, rows=ROWS, name="t.tsv", split="train", **options):
    path = folder / name
    if name.endswith("parquet"):
        texts, labels = zip(*rows, strict=True)
        table = pyarrow.table({"text": list(texts), "label": list(labels)})
        pyarrow.parquet.write_table(table, str(path))
    else:
        path.write_text(lines_of(name, rows))
    file = {"dev_files": str(path)} if split == "dev" else {f"{split}_file": str(path)}
    options = {"text_columns": "text", "label_column": "label", "labels": "x,y"} | options
    return make_sentence_task(**file, **options)


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.jsonl", "t.parquet"])
def test_own_files(name, tmp_path, caplog):
    with pytest.raises(DataError) as error:
        task_of(tmp_path, name=name).read(None, "train")
    places = [f": row {row + 1}" for row in BAD]
    if "parquet" not in name:
        places = [f":{row + (1 if 'jsonl' in name else 2)}" for row in BAD]
    for place in places:
        assert f"{tmp_path}/{name}{place}: " in str(error.value)
    assert "2 of 7 rows" in str(error.value) and "--skip_bad_rows" in str(error.value)
    task = task_of(tmp_path, name=name, skip_bad_rows=True)
    examples = task.read(None, "train")
    assert [(e.text_a, e.label) for e in examples] == [
        r for n, r in enumerate(ROWS) if n not in BAD
    ]
    # Their numbers are those of the file.
    assert [e.guid for e in examples] == [f"train-{n}" for n in (1, 2, 4, 6, 7)]
    assert task.bad_rows.skipped == {str(tmp_path / name): 2}
    assert "Left out 2 of 7 rows" in caplog.text


def test_broken_lines(tmp_path):
    path = tmp_path / "t.jsonl"
    good = '{"text": "a", "label": "x"}\n'
    path.write_text(good + "{\n" + good + "[1]\n" + good)
    options = {"text_columns": "text", "label_column": "label", "labels": "x,y"}
    with pytest.raises(DataError, match=r"jsonl:2: this line isn't JSON(?s:.*)jsonl:4: expected"):
        make_sentence_task(train_file=str(path), **options).read(None, "train")
    task = make_sentence_task(train_file=str(path), skip_bad_rows=True, **options)
    assert [e.source[-2:] for e in task.read(None, "train")] == [":1", ":3", ":5"]
    # Where a quotation doesn't end nobody knows which rows it has swallowed.
    path = tmp_path / "t.csv"
    path.write_text('text,label\na,x\nb,y\n"c,x\nd,y\n')
    with pytest.raises(DataError, match="csv:4: the row that begins here isn't CSV"):
        make_sentence_task(train_file=str(path), skip_bad_rows=True, **options).read(None, "train")


def test_a_column_that_is_not_there_is_no_matter_of_rows(tmp_path):
    with pytest.raises(DataError, match=r"(?s)tsv:2: there is no column 'txt'.*all 7 rows of"):
        task_of(tmp_path, text_columns="txt", skip_bad_rows=True).read(None, "train")


@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl"])
def test_choices(name, tmp_path):
    labels = [0, 7, 1, "odd", 2]
    if name == "x.csv":
        rows = ["sent1,sent2,ending0,ending1,ending2,ending3,label"]
        rows += [f"p,q,a,b,c,d,{label}" for label in labels] + ["p,q,a"]
    elif name == "x.tsv":
        rows = [f"o\tp\ta\tb\tc\td\t{label}" for label in labels] + ["o\tp\ta"]
    else:
        row = {"context": "p", "choices": ["a", "b", "c", "d"]}
        rows = [*(json.dumps(row | {"label": label}) for label in labels), "{}"]
    path = tmp_path / name
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"(?s)out of range.*not an integer.*3 of 6 rows"):
        multiple_choice.get_task("multiple_choice", str(path)).read(None, "train")
    task = multiple_choice.get_task("multiple_choice", str(path), skip_bad_rows=True)
    examples = task.read(None, "train")
    assert [e.label for e in examples] == [0, 1, 2]
    first = int(name == "x.csv")
    assert [e.guid for e in examples] == [f"train-{first + n}" for n in (0, 2, 4)]


def test_published_files(tmp_path):
    rows = ["sentence\tlabel", "a\t1", "b\todd", "c\t0", "d", "e\t1"]
    (tmp_path / "dev.tsv").write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"(?s)dev.tsv:3: .*dev.tsv:5: .*2 of 5 rows"):
        glue.get_task("sst-2").read(str(tmp_path), "dev")
    task = glue.get_task("sst-2", skip_bad_rows=True)
    assert [e.guid for e in task.read(str(tmp_path), "dev")] == ["dev-1", "dev-3", "dev-5"]


def test_a_run_without_bad_rows_is_the_run_of_the_corrected_file(tmp_path):
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"])

    def split(rows, skip, name):
        task = task_of(tmp_path, rows, name, "dev", skip_bad_rows=skip)
        return read_sentence_splits(task, "dev", tokenizer, SentenceSettings(8))[0]

    skipped = split(ROWS, True, "all.tsv")
    good = split([r for n, r in enumerate(ROWS) if n not in BAD], False, "good.tsv")
    assert skipped.fingerprint == good.fingerprint
    assert (skipped.left_out, good.left_out) == ({"skipped_rows": 2}, {})


def test_the_flag_reaches_every_task(tmp_path):
    values = {"task_name": "delimited", "output_dir": str(tmp_path), "init_checkpoint": None}
    values |= {"train_file": None, "dev_file": [], "test_file": None, "data_dir": str(tmp_path)}
    values |= {"text_columns": ["text"], "label_column": "label", "id_column": None, "header": True}
    values |= {"label_kind": None, "labels": ["x", "y"], "label_separator": ",", "random_seed": 0}
    values |= {"dev_fraction": 0.0, "file_format": None, "skip_bad_rows": True}
    values |= {"delimiter": None, "encoding": "utf-8"}
    for name in ("delimited", "multiple_choice", "SWAG", "mrpc"):
        task = open_sentence_task(
            types.SimpleNamespace(**values | {"task_name": name}), train=False
        )
        assert task.bad_rows.skip


# ---- Files to predict ----


def labels_to_predict(folder, rows, name="t.tsv", **options):
    task = task_of(folder, rows, name, split="test", **options)
    return [example.label for example in task.read(None, "test")]


def test_labels_are_read_where_they_are(tmp_path):
    rows = [("a", "y"), ("b", ""), ("c", " x")]
    assert labels_to_predict(tmp_path, rows) == ["y", None, "x"]
    assert labels_to_predict(tmp_path, rows, label_column=None) == [None] * 3
    assert labels_to_predict(tmp_path, rows, label_column="absent") == [None] * 3
    rows = [("a", "2.5"), ("b", "")]
    assert labels_to_predict(tmp_path, rows, kind="regression", labels=None) == [2.5, None]
    rows = [("a", None), ("b", 1), ("c", "0")]
    assert labels_to_predict(tmp_path, rows, "t.jsonl", labels="0,1") == [None, "1", "0"]


def test_no_label_is_no_empty_set_of_labels(tmp_path):
    several = {"kind": "multi_label"}
    assert labels_to_predict(tmp_path, [("a", "x,y"), ("b", "")], **several) == [("x", "y"), ()]
    assert labels_to_predict(tmp_path, [("a", ""), ("b", "")], **several) == [None, None]


def test_labels_that_cannot_be_scored_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"(?s)t.tsv:3: the label is '\?'.*without its labels"):
        labels_to_predict(tmp_path, [("a", "x"), ("b", "?")])


def test_ids_and_labels_keep_unusual_white_space(tmp_path):
    rows = [("a", "x\u00a0"), ("b", "\u3000x"), ("c", " \tx\r\n")]
    path = tmp_path / "t.jsonl"
    path.write_text(
        "".join(json.dumps({"text": a, "label": b, "id": f"{b}{a} "}) + "\n" for a, b in rows)
    )
    task = make_sentence_task(
        train_file=str(path), text_columns="text", label_column="label", id_column="id"
    )
    assert [e.label for e in task.read(None, "train")] == ["x\u00a0", "\u3000x", "x"]
    assert [e.guid for e in task.read(None, "train")] == [f"{b}{a} " for a, b in rows]
