"""Task readers against what the original's processors read."""

import json

import pytest

from data.errors import DataError
from data.tasks.glue import Example, get_task

FOLDERS = {"cola": "CoLA", "mnli": "MNLI", "mrpc": "MRPC", "xnli": "XNLI"}


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_recorded_processors(name, golden):
    recorded = json.loads((golden / "glue/processors.json").read_text(encoding="utf-8"))[name]
    task = get_task(name.upper())
    assert task.labels == recorded["labels"]
    for split in ("train", "dev", "test"):
        if name == "xnli" and split == "test":
            with pytest.raises(DataError, match="train, dev"):
                task.read(str(golden / "glue/XNLI"), split)
            continue
        examples = task.read(str(golden / "glue" / FOLDERS[name]), split)
        got = [[e.guid, e.text_a, e.text_b, e.label] for e in examples]
        if split == "test":
            # The original puts its first label where there is none.
            assert all(row[3] is None for row in got)
            got = [[*row[:3], task.labels[0]] for row in got]
        assert got == recorded[split]


def test_real_sizes(shared_data):
    for name, folder, sizes in (
        ("cola", "CoLA", (8551, 1043, 1063)),
        ("sst-2", "SST-2", (67349, 872, 1821)),
        ("mrpc", "MRPC", (3668, 408, 1725)),
    ):
        task = get_task(name)
        splits = [
            task.read(str(shared_data / "glue" / folder), s) for s in ("train", "dev", "test")
        ]
        assert tuple(map(len, splits)) == sizes
        assert {example.label for example in splits[0]} == set(task.labels)


def test_sst2_fields(tmp_path):
    (tmp_path / "train.tsv").write_text('sentence\tlabel\na "b c\t1\n', encoding="utf-8")
    (tmp_path / "test.tsv").write_text("index\tsentence\r\n0\tx\u2028y\r\n", encoding="utf-8")
    task = get_task("SST-2")
    path = tmp_path / "train.tsv"
    assert task.read(str(tmp_path), "train") == [
        Example("train-1", 'a "b c', None, "1", f"{path}:2")
    ]
    assert task.read(str(tmp_path), "test")[0].text_a == "x\u2028y"


def test_unknown_task_lists_names():
    with pytest.raises(DataError, match="cola, mnli, mrpc, sst-2, xnli"):
        get_task("sts")


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ("sentence\tlabel\ngood\t1\nbad\n", 3, ["1 tab-separated", "2 are needed", "bad"]),
        ("sentence\tlabel\nfine\tpositive\n", 2, ["'positive'", "0, 1"]),
    ],
)
def test_bad_rows_are_named(rows, line, words, tmp_path):
    (tmp_path / "dev.tsv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError) as error:
        get_task("sst-2").read(str(tmp_path), "dev")
    for word in [f"{tmp_path}/dev.tsv:{line}:", *words]:
        assert word in str(error.value)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"train\.tsv"):
        get_task("cola").read(str(tmp_path), "train")
    (tmp_path / "train.tsv").write_bytes(b"x\t1\t\tfine\nx\t1\t\tcaf\xe9\n")
    with pytest.raises(DataError, match=r"train\.tsv:2: .*UTF-8"):
        get_task("cola").read(str(tmp_path), "train")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n", encoding="utf-8")
    with pytest.raises(DataError, match="no examples"):
        get_task("sst-2").read(str(tmp_path), "dev")
    with pytest.raises(DataError, match="train, dev, test"):
        get_task("sst-2").read(str(tmp_path), "eval")
