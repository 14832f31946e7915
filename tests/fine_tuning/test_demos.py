"""The demos of fine-tuning, from a short pre-training that the three share."""

import re

import pytest

from tests.scripts import fail, succeed

SYSTEMS = ("BERT from random weights", "BERT from the checkpoint")


ENOUGH = 600


@pytest.fixture(scope="module", params=[100, pytest.param(ENOUGH, marks=pytest.mark.hours)])
def pretrained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"demo-{request.param}")
    fewer = (f"--num_train_steps={request.param}", "--num_warmup_steps=60", "--eval_steps=0")
    succeed("run_pretraining.py", "--demo", *fewer, f"--output_dir={folder}", timeout=900)
    return folder


def scores(table: str) -> dict[str, float]:
    """System → score."""
    rows = re.findall(r"(?m)^(\S.*?)  +(\d\.\d+)  +\d\.\d+ to \d\.\d+", table)
    return {name: float(score) for name, score in rows}


def demo(script: str, pretrained, folder, *flags: str) -> dict[str, float]:
    """Runs it; the scores that it prints, which are those of its file."""
    start = (script, "--demo", f"--init_checkpoint={pretrained}", f"--output_dir={folder}")
    printed = succeed(*start, *flags, timeout=900)
    table = (folder / "comparison.txt").read_text()
    assert table in printed and printed.count(f"python {script}") == 2
    shown = re.findall(r"(?m)^  (/\S+)$", printed)
    assert len(shown) >= 4
    for path in shown:
        assert (folder / path).exists(), path
    assert (folder / "pretrained/export/1/saved_model.pb").exists()
    assert scores(table).keys() > {*SYSTEMS}
    return scores(table)


def test_files_of_ones_own_are_refused(tmp_path):
    """Before anything is made or trained."""
    given = ("--demo", f"--output_dir={tmp_path}/out", f"--init_checkpoint={tmp_path}")
    for script, flag in (("run_ner.py", "--train_file=a"), ("run_squad.py", "--vocab_file=b")):
        assert "exclude each other" in fail(script, *given, flag)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_libraries(pretrained, tmp_path):
    enough = pretrained.name.startswith(f"demo-{ENOUGH}")
    steps = f"--num_train_steps={300 if enough else 40}"
    found = demo("run_classifier.py", pretrained, tmp_path, steps, "--eval_steps=0")
    assert found["majority"] < 0.2
    assert found["bag of words"] > 0.5
    if enough:
        assert found["BERT from the checkpoint"] > 0.3
        assert found["BERT from the checkpoint"] > found["BERT from random weights"]


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.parametrize("pretrained", [ENOUGH], indirect=True)
def test_code_words_with_two_seeds(pretrained, tmp_path):
    few = ("--num_train_steps=200", "--eval_steps=0")
    found = demo("run_ner.py", pretrained, tmp_path, *few)
    assert found["BERT from the checkpoint"] > 0.2 > found["majority (no code)"] == 0
    assert found["bag of words, two to each side"] > found["most frequent tag of the word"]
    # What is done isn't done again.
    start = ("run_ner.py", "--demo", f"--init_checkpoint={pretrained}", f"--output_dir={tmp_path}")
    printed = succeed(*start, *few, "--num_runs=2", timeout=900)
    assert printed.count("python run_ner.py") == 4 and "2 seeds" in printed and "±" in printed
    assert (tmp_path / "pretrained_2/predictions.txt").exists()


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.parametrize("pretrained", [ENOUGH], indirect=True)
def test_arguments(pretrained, tmp_path):
    found = demo("run_squad.py", pretrained, tmp_path, "--num_train_steps=400")
    assert found["BERT from the checkpoint"] > 0.25
    assert found["bag of pairs of words"] > found["first sentence"] + 0.1
