"""How a demo's runs are asked for, without running them."""

import json
import types

import numpy as np
import pytest
from absl import flags

from data.demo import comparison
from data.demo.scores import counts_of_answers
from data.errors import DataError

DEMO = types.SimpleNamespace(METRIC="accuracy", SETTINGS={"eval_steps": 4}, SHOWN=("a.txt",))


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Script names and flags of the runs, in their order."""
    calls = []

    def run(script, given, further):
        calls.append((script.rpartition("/")[2], given, further))
        folder = tmp_path / given.get("output_dir", "output/demo")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))

    monkeypatch.setattr(comparison, "run_shown", run)
    monkeypatch.chdir(tmp_path)
    return calls


def values(*arguments: str) -> flags.FlagValues:
    found = flags.FlagValues()
    for name in ("output_dir", "init_checkpoint", "vocab_file", "train_file"):
        flags.DEFINE_string(name, None, "", flag_values=found)
    for name, default in (("num_runs", 1), ("random_seed", 7), ("eval_steps", 0)):
        flags.DEFINE_integer(name, default, "", flag_values=found)
    found(["", *arguments])
    return found


def make(folder: str) -> comparison.DemoData:
    counts = counts_of_answers(np.array([1, 0]))
    return comparison.DemoData(
        "A task",
        {"train_file": f"{folder}/train.tsv"},
        {"train": (9, 3), "test": (2, 2)},
        ["a", "b"],
        {"majority": counts},
        lambda run: counts_of_answers(np.array([1, "pretrained" in run])),
        "Which?",
    )


def test_pretraining_comes_first_where_there_is_none(asked, tmp_path, capsys):
    comparison.run_demo(values(), "/x/run_classifier.py", DEMO, make)
    scripts = [script for script, _, _ in asked]
    assert scripts == ["run_pretraining.py", "run_classifier.py", "run_classifier.py"]
    (_, first, _), (_, second, _) = asked[1:]
    assert first["init_checkpoint"] == "output/demo" and first["do_export"]
    assert first["output_dir"] == "output/demo_classifier/pretrained"
    assert "init_checkpoint" not in second and second["do_lower_case"] is False
    assert second["bert_config_file"] == "output/demo_classifier/pretrained/bert_config.json"
    assert first["random_seed"] == second["random_seed"] == 7
    table = (tmp_path / "output/demo_classifier/comparison.txt").read_text()
    assert table in capsys.readouterr().out and "2 test examples of 2 modules" in table
    # With the weights there, only the two.
    (tmp_path / "output/demo/bert_model.ckpt.index").touch()
    del asked[:]
    comparison.run_demo(values(), "/x/run_classifier.py", DEMO, make)
    assert len(asked) == 2


def test_flags_given_go_to_every_run(asked):
    given = ("--num_runs=2", "--eval_steps=9", "--output_dir=out", "--init_checkpoint=there")
    comparison.run_demo(values(*given), "run_ner.py", DEMO, make)
    assert [run["output_dir"] for _, run, _ in asked] == [
        *("out/pretrained", "out/random", "out/pretrained_2", "out/random_2")
    ]
    assert [run["random_seed"] for _, run, _ in asked] == [7, 7, 8, 8]
    assert all(further == ["--eval_steps=9"] for _, _, further in asked)
    with pytest.raises(DataError, match="--train_file and --demo exclude"):
        comparison.run_demo(values("--train_file=a"), "run_ner.py", DEMO, make)


def test_a_run_that_fails_ends_the_demo(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit) as ended:
        comparison.run_shown(str(script), {"do_train": True}, [])
    assert ended.value.code == 3
