"""Students of the fine-tuning scripts: what teachers add to a run, from the command line."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import modeling
from tests.fine_tuning.tiny_tasks import (
    answerer,
    classifier,
    results,
    sentences,
    tagger,
    write_model,
    write_questions,
    write_rows,
    write_tags,
)
from tests.scripts import messages, succeed

COLUMNS = ("--train_file=train.tsv", "--dev_file=dev.tsv", "--text_columns=text")
COLUMNS += ("--label_column=verdict",)
TRAIN = ("--do_train", "--do_eval", "--num_train_steps=60", "--learning_rate=0.003")
TAGS = ("--train_file=train.txt", "--dev_file=dev.txt")
STEPS = ("--do_train", "--num_train_steps=30", "--learning_rate=0.003")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Files of three tasks, teachers for each, and a model that is half as wide."""
    folder = tmp_path_factory.mktemp("taught")
    write_model(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"initializer_range": 0.2}
    (folder / "config.json").write_text(json.dumps(config))
    deeper = {"num_hidden_layers": 2, "hidden_size": 32}
    (folder / "deeper.json").write_text(json.dumps(config | deeper))
    for name, count, seed in (("train", 160, 0), ("dev", 40, 1)):
        write_rows(folder / f"{name}.tsv", sentences(count, seed))
        write_tags(folder / f"{name}.txt", count, seed)
        write_questions(folder / f"{name}.json", count, seed)
    large = f"--bert_config_file={folder}/deeper.json"
    succeed(*classifier(folder, "sentences", *COLUMNS, *TRAIN, large))
    succeed(*tagger(folder, "tags", *TAGS, *STEPS, "--do_eval", large))
    questions = (f"--train_file={folder}/train.json", f"--predict_file={folder}/dev.json")
    succeed(*answerer(folder, "spans", *questions, *STEPS, "--do_predict", large))
    return folder


def losses(out: pathlib.Path) -> list[dict]:
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == "train"]


def test_a_student_learns_without_labels(folder):
    """Its teacher's answers alone say what is right; they are computed once."""
    taught = (f"--teacher={folder}/sentences", "--label_share=0", "--log_steps=10")
    log = succeed(*classifier(folder, "student", *COLUMNS, *TRAIN, *taught))
    assert "Teacher: " in log and log.count("Computing the teacher's answers to 160") == 1
    assert results(folder / "student/eval_results.txt")["eval_accuracy"] > 0.9
    rows = losses(folder / "student")
    assert {row["label_loss"] for row in rows} == {0.0}
    assert rows[-1]["teacher_loss"] < 0.3 * rows[0]["teacher_loss"]
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["teacher_loss"], rel=1e-4)

    # Another run of the same data has another seed, but no other answers.
    again = [*classifier(folder, "student", *COLUMNS, *TRAIN, *taught)]
    again += ["--overwrite_output_dir", "--random_seed=5"]
    kept = sorted((folder / "student/teacher").iterdir())
    shutil.copytree(folder / "student/teacher", folder / "kept")
    log = succeed(*again)
    assert len(kept) == 1
