"""The recipes' ablation: its variants, its commands, and curves from what runs have logged."""

import json
import re
import sys

import pytest

from modeling.training.recipes import RECIPES
from tests.paper import experiment, recipes
from tests.paper.test_experiment import flags_there_are, place  # noqa: F401

SHORT = recipes.INGREDIENTS["short-first"]


def test_each_ingredient_is_tried_alone_and_left_out_or_added():
    found = recipes.variants()
    assert found["paper"] == {} and found["fast"] == RECIPES["fast"]
    for name, flags in recipes.INGREDIENTS.items():
        assert found[name] == flags
    in_fast = {n for n, f in recipes.INGREDIENTS.items() if f.items() <= RECIPES["fast"].items()}
    # What the recipe consists of is all tried.
    assert {f for n in in_fast for f in recipes.INGREDIENTS[n]} == set(RECIPES["fast"])
    for name in in_fast:
        left = found[f"fast-without-{name}"]
        assert left.keys() == RECIPES["fast"].keys() - recipes.INGREDIENTS[name].keys()
    assert found["fast-with-average"] == RECIPES["fast"] | {"average_last": 0.2}


@pytest.mark.parametrize("name", list(recipes.variants()))
@pytest.mark.parametrize("minutes", [0.0, 2.0])
def test_commands(place, name, minutes):  # noqa: F811
    flags = recipes.variants()[name]
    run = recipes.pretraining(place, "4x256", name, flags, 100, minutes)
    assert (
        set(run.flags) <= flags_there_are()
        and run.flags.items()
        >= {key: value for key, value in flags.items() if key != "phases"}.items()
    )
    assert ("minutes" in run.flags) == bool(minutes)
    assert not any(re.search(r"\{(?!max_seq_length)", str(v)) for v in run.flags.values())
    made = {str(folder) for each in run.after for folder in each.folders(place.work)}
    for file in (run.flags["input_file"], run.flags["eval_file"]):
        for length in (32, 64) if name == "short-first" else (64,):
            folder = str(file).replace("{max_seq_length}", str(length)).rpartition("/")[0]
            assert folder in made
    # The tasks begin with the weights of their own seed.
    task = recipes.tuning(place, run, "MRPC")
    for folder, seed in zip(task.folders(place.work), task.seeds, strict=True):
        [start] = [a for a in task.arguments(folder, seed) if a.startswith("--init_checkpoint")]
        assert start.endswith(f"runs/{run.name}/seed-{seed}/bert_model.ckpt")


def test_curves(place, tmp_path):  # noqa: F811
    lines = [
        {"kind": "train", "step": 10, "examples_per_second": 32.0},
        {"kind": "eval", "step": 10, "masked_lm_loss": 7.0},
        {"kind": "train", "step": 20, "examples_per_second": 64.0},
        {"kind": "eval", "step": 20, "masked_lm_loss": 6.0},
        {"kind": "eval", "step": 20, "masked_lm_loss": 6.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    points = recipes.curve(tmp_path, [(100, 32, 64)])
    seconds = 10.0, 10.0 + 5.0  # 320 rows at 32, then at 64 a second
    for point, step, second, loss in zip(
        points, (10, 20, 20), (*seconds, seconds[1]), (7, 6, 6), strict=True
    ):
        assert point == pytest.approx((step * 2048 / 1e6, second / 60, loss))
    # Two phases; what is evaluated in the first one is of other records.
    short = recipes.curve(tmp_path, [(10, 64, 32), (20, 32, 64)])
    assert short == [pytest.approx((2 * 10 * 2048 / 1e6, (640 / 32 + 320 / 64) / 60, 6))] * 2
    run = recipes.pretraining(place, "4x256", "short-first", SHORT, 100, 0)
    assert recipes.phases_of(run) == [(50, 64, 32), (100, 32, 64)]
    run = recipes.pretraining(place, "4x256", "paper", {}, 100, 0)
    assert recipes.phases_of(run) == [(100, 32, 64)]
    recipes.draw({"one": [points], "two": [points, points[:2]]}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_a_variant_that_fails_leaves_the_others(place, monkeypatch, capsys):  # noqa: F811
    tried = []

    def complete(run, work):
        tried.append(run.name)
        if "muon-2-minutes" in run.name:
            raise experiment.FailedRunError("the loss is nan")

    monkeypatch.setattr(recipes, "complete", complete)
    monkeypatch.setattr(recipes, "numbers", lambda cell, work: [7.0, 8.0])
    monkeypatch.setattr(recipes, "curve", lambda *_: [(1.0, 1.0, 7.0)])
    there = f"--shared={place.data}", f"--work={place.work}", "--only=muon,paper", "--minutes=2"
    monkeypatch.setattr(sys, "argv", ["recipes", *there, "--steps=20"])
    place.work.mkdir()
    with pytest.raises(SystemExit, match=r"^Failed: muon\. Given again"):
        recipes.main()
    assert "the loss is nan" in capsys.readouterr().out
    muon, paper = (place.work / "recipes.txt").read_text().splitlines()[2:]
    assert muon.split() == ["muon", "7.500", "±", "0.707", "(2)", *["failed"] * 4]
    assert paper.split().count("7.500") == 5 and (place.work / "recipes.png").exists()
    assert tried.count("4x256-muon-2-minutes") == 1

    def without_text(run, work):
        raise experiment.FailedRunError(f"{run.name} has no text")

    monkeypatch.setattr(recipes, "complete", without_text)
    with pytest.raises(SystemExit, match=r"has no text$"):  # and isn't tried for each variant
        recipes.main()


def test_an_unknown_variant_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["recipes", "--only=paper,quick"])
    with pytest.raises(SystemExit):
        recipes.main()
    assert "'quick' is no variant; they are paper, muon, " in capsys.readouterr().err


def test_the_last_part_of_a_folder_is_the_seeds(tmp_path):
    run = experiment.Run(
        "tuned", "run_classifier.py", {"x": "{seed_folder}"}, seeds=(1, 2), apart=True
    )
    folders = run.folders(tmp_path)
    said = [run.arguments(folder, seed)[1] for folder, seed in zip(folders, run.seeds, strict=True)]
    assert said == ["--x=seed-1", "--x=seed-2"]
