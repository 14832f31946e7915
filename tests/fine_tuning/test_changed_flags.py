"""A trained output folder and other flags of training: refused, or trained anew if wished."""

import json

import pytest

from tests.fine_tuning.tiny_tasks import (
    WORDS,
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

# The driver of fine-tuning is one, so the default tests ask one of its scripts.
SCRIPTS = (
    "run_classifier.py",
    pytest.param("run_ner.py", marks=[pytest.mark.slow, pytest.mark.hours]),
    pytest.param("run_squad.py", marks=[pytest.mark.slow, pytest.mark.hours]),
    "run_pretraining.py",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changed")
    write_model(folder)
    write_rows(folder / "train.tsv", sentences(24, 0))
    write_rows(folder / "dev.tsv", sentences(8, 1))
    write_tags(folder / "train.txt", 12, 0)
    write_questions(folder / "train.json", 24, 0)
    paragraph = " ".join(WORDS) + "\n" + " ".join(reversed(WORDS)) + "\n\n"
    (folder / "corpus.txt").write_text(paragraph * 8)
    return folder


def training(script, folder, out, *more):
    """The command line of two steps at a learning rate of 0.003."""
    steps = ("--do_train", "--num_train_steps=2", "--learning_rate=0.003")
    if script == "run_classifier.py":
        columns = ("--text_columns=text", "--label_column=verdict", "--train_file=train.tsv")
        return classifier(folder, out, *steps, *columns, *more)
    if script == "run_ner.py":
        return tagger(folder, out, *steps, "--train_file=train.txt", *more)
    if script == "run_squad.py":
        return answerer(folder, out, *steps, f"--train_file={folder}/train.json", *more)
    return (
        script,
        f"--corpus_file={folder}/corpus.txt",
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--max_seq_length=16", "--max_predictions_per_seq=4", "--train_batch_size=8"),
        *(*steps, "--num_warmup_steps=0", *more),
    )


def newest(out):
    """Contents of the newest checkpoint's data file, and its step."""
    steps = [int(path.name.split("-")[1].split(".")[0]) for path in out.glob("model.ckpt-*.index")]
    step = max(steps)
    return step, (out / f"model.ckpt-{step}.data-00000-of-00001").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_other_training_flags_are_refused(folder, script):
    """What made the weights can't change; what doesn't change them may, and more steps too."""
    out = script.removesuffix(".py")
    start = ("--initialization=local",) if script == "run_pretraining.py" else ()
    lines = {
        "trained": training(script, folder, out),
        "same": training(script, folder, out, "--log_steps=1", "--eval_batch_size=4"),
        "rate": training(script, folder, out, "--learning_rate=0.001"),
        "several": training(
            script, folder, out, "--optimizer=adamw", "--train_batch_size=4", *start
        ),
        "rate and more": training(
            script, folder, out, "--learning_rate=0.001", "--num_train_steps=4"
        ),
    }
    said = messages(script, *(line[1:] for line in lines.values()))
    said = dict(zip(lines, said, strict=True))
    assert said["trained"] == said["same"] == ""
    for name in ("rate", "rate and more"):
        message = said[name]
        assert "learning_rate" in message, (name, message)
        assert "0.003" in message and "0.001" in message, (name, message)
        assert "optimizer" not in message and "log_steps" not in message, (name, message)
    for name in ("optimizer", "train_batch_size", *(["initialization"] if start else [])):
        assert f"{name} was" in said["several"]
    for name in ("rate", "several", "rate and more"):
        assert "--overwrite_output_dir" in said[name] and "--output_dir" in said[name], name
    assert newest(folder / out)[0] == 2

    more = training(script, folder, out, "--num_train_steps=4")
    assert messages(script, more[1:]) == [""]
    assert newest(folder / out)[0] == 4


@pytest.mark.slow
def test_evaluation_of_what_was_trained_needs_no_flag_of_training(folder):
    """Also beside --do_train the weights are those of the flags that are named."""
    files = ("--do_eval", "--dev_file=dev.tsv")
    script = "run_classifier.py"
    succeed(*training(script, folder, "evaluated", *files))
    out = folder / "evaluated"
    before = results(out / "eval_results.txt")
    again = training(script, folder, "evaluated", *files)
    only = classifier(folder, "evaluated", *files, "--label_column=verdict")
    changed = training(script, folder, "evaluated", *files, "--learning_rate=0.001")
    for line in (again, only):
        (out / "eval_results.txt").unlink()
        assert messages(script, line[1:]) == [""]
        assert results(out / "eval_results.txt") == before
    (out / "eval_results.txt").unlink()
    (message,) = messages(script, changed[1:])
    assert "learning_rate" in message
    assert not (out / "eval_results.txt").exists()


@pytest.mark.slow
def test_a_refused_overwriting_takes_nothing_away(folder):
    """The earlier run is there until the new one stands, and its length is what is asked with."""
    out, files = folder / "kept", ("--do_eval", "--dev_file=dev.tsv", "--label_column=verdict")
    (folder / "broken.tsv").write_text("text\tverdict\ngood film\n")
    anew = training(
        "run_classifier.py", folder, out.name, "--overwrite_output_dir", "--train_file=broken.tsv"
    )
    script, *line = training("run_classifier.py", folder, out.name, *files)
    trained, refused = messages(script, line, anew[1:])
    assert trained == ""
    assert "broken.tsv:2" in refused
    assert newest(out)[0] == 2
    assert json.loads((out / "reading.json").read_text())["max_seq_length"] == 16
    evaluating = list(classifier(folder, out.name, *files))
    evaluating.remove("--max_seq_length=16")
    assert "As in training, by" in succeed(*evaluating)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_overwriting_trains_anew(folder, script):
    """It gives what a new folder gives, and takes away what the earlier run wrote, no more."""
    out = folder / f"over-{script}"
    rate = "--learning_rate=0.001"
    evaluated = ("--do_eval", "--dev_file=dev.tsv") if script == "run_classifier.py" else ()
    first = training(script, folder, out.name, "--num_train_steps=3", *evaluated)
    assert messages(script, first[1:]) == [""]
    (out / "notes.txt").write_text("of the user")
    again = training(script, folder, out.name, rate, "--overwrite_output_dir")
    log = succeed(*again)
    assert "Start: random weights" in log
    assert (out / "notes.txt").read_text() == "of the user"
    assert not (out / "eval_results.txt").exists()
    assert not list(out.glob("model.ckpt-3.*"))
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 2

    fresh = training(script, folder, f"fresh-{script}", rate)
    same = training(script, folder, out.name, rate)
    assert messages(script, fresh[1:], same[1:]) == ["", ""]
    assert newest(out) == newest(folder / f"fresh-{script}")
