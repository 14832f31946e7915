"""run_squad.py evaluates on the way, keeps the best weights, stops early and searches."""

import json

import pytest

from tests.fine_tuning.tiny_tasks import answerer, write_model, write_questions
from tests.scripts import messages, succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad")
    write_model(folder)
    write_questions(folder / "train.json", 64, 0)
    write_questions(folder / "dev.json", 16, 1)
    write_questions(folder / "unanswered.json", 4, 2, answers=False)
    return folder


def training(folder, out, *more):
    files = (f"--train_file={folder}/train.json", f"--predict_file={folder}/dev.json")
    return answerer(folder, out, "--do_train", *files, *more)


def read(path):
    return json.loads(path.read_text())


def evaluations(out):
    """{step: results} of the evaluations on the way and in the end."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line for line in lines if "eval_f1" in line}


@pytest.mark.slow
def test_evaluates_every_so_many_steps(folder):
    """No best weights are wanted: the last ones answer, and nothing is in best/."""
    log = succeed(*training(folder, "curve", "--eval_steps=2", "--num_train_steps=5"))
    assert "dev set at step 2" in log and "dev set at step 4" in log
    made = evaluations(folder / "curve")
    assert {2, 4} <= made.keys()
    assert all({"eval_exact_match", "eval_f1"} <= results.keys() for results in made.values())
    assert not (folder / "curve" / "best").exists()


@pytest.mark.slow
def test_keeps_the_best_weights_and_answers_with_them(folder):
    flags = ("--eval_steps=4", "--best_metric=eval_f1", "--num_train_steps=24")
    succeed(*training(folder, "best", *flags, "--learning_rate=0.01", "--do_predict"))
    out = folder / "best"
    made = evaluations(out)
    assert {4, 8, 12, 16, 20, 24} <= made.keys()
    best = read(out / "best" / "best.json")
    values = {step: results["eval_f1"] for step, results in made.items()}
    assert best["metric"] == "eval_f1"
    assert best["value"] == pytest.approx(max(values.values()))
    assert values[best["step"]] == max(values.values())
    assert read(out / "eval_results.json")["f1"] == pytest.approx(best["value"])
    assert (out / "best" / f"model.ckpt-{best['step']}.index").exists()

    # They are what a later command answers with, too.
    (out / "predictions.json").rename(out / "before.json")
    predict = ("--do_predict", f"--predict_file={folder}/dev.json")
    for more in ((), ("--best_metric=eval_f1",)):
        succeed(*answerer(folder, "best", *predict, *more))
        assert read(out / "before.json") == read(out / "predictions.json")
    succeed(*answerer(folder, "elsewhere", *predict, f"--init_checkpoint={out}"))
    assert read(out / "before.json") == read(folder / "elsewhere" / "predictions.json")
    # The same command finds nothing to train and keeps to them.
    flags = ("--num_train_steps=24", "--learning_rate=0.01", "--do_predict")
    log = succeed(*training(folder, "best", *flags))
    assert f"best eval_f1, {best['value']:.6g}, of step {best['step']}" in log


def test_stops_early(folder):
    """A learning rate that changes nothing: what the first evaluation found stays the best."""
    flags = ("--eval_steps=2", "--best_metric=eval_f1", "--early_stopping_patience=2")
    log = succeed(
        *training(folder, "early", *flags, "--learning_rate=1e-12", "--num_train_steps=40")
    )
    assert "Stopping early" in log
    assert max(evaluations(folder / "early")) == 6
    assert read(folder / "early" / "best" / "best.json")["step"] == 2


@pytest.mark.hours
@pytest.mark.slow
def test_searches(folder):
    """Two learning rates with two seeds; the best run by F1 answers."""
    grid = ("--learning_rates=0.01,1e-12", "--num_runs=2", "--num_train_steps=24")
    succeed(*training(folder, "search", *grid, "--do_predict"))
    out = folder / "search"
    names, *rows = [line.split("\t") for line in (out / "search.tsv").read_text().splitlines()]
    rows = [dict(zip(names, row, strict=True)) for row in rows]
    assert names[:4] == ["learning_rate", "batch_size", "num_epochs", "seed"]
    assert [row["learning_rate"] for row in rows] == ["0.01", "1e-12", "0.01", "1e-12"]
    (best,) = [row for row in rows if row["best"] == "True"]
    assert float(best["value"]) == max(float(row["value"]) for row in rows)
    assert read(out / "eval_results.json")["f1"] == pytest.approx(float(best["value"]))
    assert read(out / "best" / "best.json")["metric"] == "eval_f1"
    assert (out / "search_settings.tsv").exists()


def test_what_an_evaluation_lacks_is_named(folder):
    """Before training begins, and whatever else is asked for."""
    train = ("--do_train", f"--train_file={folder}/train.json", "--num_train_steps=2")
    unanswered = f"--predict_file={folder}/unanswered.json"
    lines = {
        ("--predict_file",): answerer(folder, "bad", *train, "--eval_steps=1"),
        ("unanswered.json", "answers"): answerer(
            folder, "bad", *train, "--eval_steps=1", unanswered
        ),
        ("'accuracy'", "eval_exact_match", "eval_f1"): training(
            folder, "bad", "--eval_steps=1", "--best_metric=accuracy", "--num_train_steps=2"
        ),
    }
    said = messages("run_squad.py", *(line[1:] for line in lines.values()))
    for expected, message in zip(lines, said, strict=True):
        assert all(part in message for part in expected), (expected, message)
    assert not list((folder / "bad").glob("model.ckpt-*"))
