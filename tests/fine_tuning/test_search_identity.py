"""A search takes up runs of the same experiment only: same data, same settings."""

import json
import re
import shutil

import pytest

from tests.fine_tuning.tiny_tasks import (
    classifier,
    sentences,
    tagger,
    write_model,
    write_rows,
    write_tags,
)
from tests.scripts import messages, succeed

GRID = ("--do_train", "--learning_rates=0.003,0.001", "--num_train_steps=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    write_model(folder)
    return folder


def check(script, folder, first, same, others):
    """The first search and the same ones are done, each other one is refused by name.

    Args:
        script: Which all of them are of.
        folder: That holds their output folder, "out".
        first: Command line.
        same: Command lines of the same experiment.
        others: Command lines of others, by the pattern of what differs.
    """
    lines = (first, *same, *others.values())
    said = messages(script, *(line[1:] for line in lines))
    assert said[: 1 + len(same)] == [""] * (1 + len(same))
    refused = dict(zip(others, said[1 + len(same) :], strict=True))
    assert [pattern for pattern, message in refused.items() if not message] == [], "taken as same"
    for pattern, message in refused.items():
        assert re.search(pattern, message, re.IGNORECASE), (pattern, message)
        assert re.search(r"--(overwrite_)?output_dir", message), message
    assert len((folder / "out" / "search.tsv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_sentences(folder):
    files = ("--train_file=train.tsv", "--dev_file=dev.tsv")

    def write(name, train, dev):
        write_rows(folder / name / "train.tsv", train)
        write_rows(folder / name / "dev.tsv", dev)

    def line(data="data", column="verdict", *more):
        columns = ("--text_columns=text", f"--label_column={column}", f"--data_dir={folder}/{data}")
        return classifier(folder, "out", *GRID, *files, *columns, *more)

    def with_mood(rows):
        moods = [row["verdict"] for row in rows[2:] + rows[:2]]
        moods[0], moods[1] = moods[1], moods[0]
        return [row | {"mood": mood} for row, mood in zip(rows, moods, strict=True)]

    train, dev = with_mood(sentences(24, 0)), with_mood(sentences(8, 1))
    write("data", train, dev)
    shutil.copytree(folder / "data", folder / "copied")
    write("texts", with_mood(sentences(24, 2)), dev)
    write("labels", [row | {"verdict": row["mood"]} for row in train], dev)
    write("dev", train, with_mood(sentences(8, 3)))
    others = {
        r"train.?(file|ing|set|\.tsv)": line("texts"),
        r"labels|train.?(file|ing|set|\.tsv)": line("labels"),
        r"dev.?(file|set|\.tsv)": line("dev"),
        "label_column": line("data", "mood"),
        "optimizer": line("data", "verdict", "--optimizer=adamw"),
        "lr_schedule": line("data", "verdict", "--lr_schedule=constant"),
        "weight_decay_rate": line("data", "verdict", "--weight_decay_rate=0.5"),
        "warmup_proportion": line("data", "verdict", "--warmup_proportion=0.5"),
        "class_weights": line("data", "verdict", "--class_weights=1,9"),
        "bilstm": line("data", "verdict", "--bilstm"),
    }
    check("run_classifier.py", folder, line(), [line("copied")], others)


@pytest.mark.slow
def test_tags(tmp_path):
    write_model(tmp_path)
    for name, train, dev in (("data", 0, 1), ("texts", 2, 1), ("dev", 0, 3)):
        write_tags(tmp_path / name / "train.txt", 12, train)
        write_tags(tmp_path / name / "dev.txt", 4, dev)
    shutil.copytree(tmp_path / "data", tmp_path / "copied")
    files = (*GRID, "--train_file=train.txt", "--dev_file=dev.txt")

    def line(data="data", *more):
        return tagger(tmp_path, "out", *files, f"--data_dir={tmp_path}/{data}", *more)

    others = {
        r"train.?(file|ing|set|\.txt)": line("texts"),
        r"dev.?(file|set|\.txt)": line("dev"),
        "tag_column": line("data", "--tag_column=1"),
        "optimizer": line("data", "--optimizer=adamw"),
        "lr_schedule": line("data", "--lr_schedule=constant"),
    }
    check("run_ner.py", tmp_path, line(), [line("copied")], others)


@pytest.mark.slow
def test_overwriting_a_search(tmp_path):
    """Runs, best weights and labels of the earlier search are gone, also where settings differ."""
    write_model(tmp_path)
    write_rows(tmp_path / "train.tsv", sentences(24, 0))
    write_rows(tmp_path / "dev.tsv", sentences(8, 1))
    write_rows(tmp_path / "renamed.tsv", sentences(24, 2, ("yes", "no")))
    write_rows(tmp_path / "renamed_dev.tsv", sentences(8, 3, ("yes", "no")))
    columns = ("--text_columns=text", "--label_column=verdict")
    first = ("--train_file=train.tsv", "--dev_file=dev.tsv")
    other = ("--train_file=renamed.tsv", "--dev_file=renamed_dev.tsv")
    succeed(*classifier(tmp_path, "out", *GRID, *columns, *first))
    line = classifier(tmp_path, "out", *GRID, *columns, *other, "--learning_rates=0.002,0.001")
    log = succeed(*line, "--overwrite_output_dir")
    assert "runs are finished" not in log and "count as well" not in log
    rows = (tmp_path / "out" / "search.tsv").read_text().splitlines()[1:]
    assert [row.split("\t")[0] for row in rows] == ["0.002", "0.001"]
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert labels["labels"] == ["no", "yes"]
    assert "2 of 2 runs are finished" in succeed(*line)
