"""The machinery of the paper's tables, and that each table's commands are ones there are."""

import importlib
import json
import pathlib
import re

import pytest

from modeling.costs import machines as cost_machines
from tests.paper import experiment, full, report
from tests.paper.experiment import ROOT, Cell, Place, Run, Table

TABLES = (
    "table1_glue",
    "table2_squad11",
    "table3_squad20",
    "table4_swag",
    "table5_objectives",
    "table6_model_size",
    "table7_feature_based",
    "figure4_training_steps",
    "appendix_masking",
)
# Writes its seed and rate as results, and counts how often it has run; fails if told to.
SCRIPT = """
import pathlib, sys
flags = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
count = folder / "count"
count.write_text(count.read_text() + "x" if count.exists() else "x")
print("talking")
if pathlib.Path(flags.get("fails_if", "/nowhere/at/all")).exists():
    sys.exit("no way")
(folder / "eval_results.txt").write_text(
    f"eval_accuracy = {flags['rate']}{flags['random_seed']}\\nglobal_step = 3\\n"
)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def place(tmp_path):
    """Where the tables look, with what they read while they are put together."""
    place = Place(*(tmp_path / name for name in ("data", "work", "minilm", "released")))
    place.minilm.mkdir()
    (place.minilm / "config.json").write_text('{"num_hidden_layers": 6, "hidden_size": 384}')
    paragraph = {"context": "One two.", "qas": [{"id": "1", "question": "?", "answers": []}]}
    articles = [{"title": str(n), "paragraphs": [paragraph] * 9} for n in range(30)]
    for name in ("squad/train-v1.1.json", "squad/dev-v1.1.json", "squad/dev-v2.0.json"):
        path = place.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"version": "x", "data": articles}))
    for name in ("eng.train", "eng.testa"):
        path = place.data / "conll2003" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("-DOCSTART- O\n\nOne O\n\nTwo O\n\n" * 9)
    return place


# ---- Running ----


def test_runs_once_for_each_seed(script, tmp_path):
    run = Run("name", script, {"rate": 0.5}, seeds=(1, 2, 3))
    for _ in range(2):
        experiment.complete(run, tmp_path)
    folders = run.folders(tmp_path)
    assert [folder.name for folder in folders] == ["seed-1", "seed-2", "seed-3"]
    assert [(folder / "count").read_text() for folder in folders] == ["x"] * 3
    cell = Cell("row", "column", 1.0, run)
    assert experiment.numbers(cell, tmp_path) == pytest.approx([51, 52, 53])
    cell = Cell("row", "column", 1.0, run, lambda results: results["global_step"], scale=2.0)
    assert experiment.numbers(cell, tmp_path) == [6, 6, 6]
    assert experiment.seconds([run], tmp_path) > 0


def test_first_seed_alone_is_not_made_again(script, tmp_path):
    run = Run("name", script, {"rate": 0.5}, seeds=(1, 2))
    experiment.complete(run.first(), tmp_path)
    assert [folder.exists() for folder in run.folders(tmp_path)] == [True, False]
    record = (tmp_path / "runs/name/seed-1/run.json").read_text()
    experiment.complete(run, tmp_path)
    assert [folder.exists() for folder in run.folders(tmp_path)] == [True, True]
    assert (tmp_path / "runs/name/seed-1/run.json").read_text() == record


def test_goes_on_after_a_failure(script, tmp_path, capsys):
    switch = tmp_path / "switch"
    switch.touch()
    run = Run("name", script, {"rate": 0.5, "fails_if": switch})
    with pytest.raises(experiment.FailedRunError, match="no way"):
        experiment.complete(run, tmp_path)
    first = experiment.seconds([run], tmp_path)
    switch.unlink()
    experiment.complete(run, tmp_path)
    assert experiment.seconds([run], tmp_path) > first > 0
    assert (run.folders(tmp_path)[0] / "count").read_text() == "xx"
    assert "talking" not in capsys.readouterr().out


def test_a_killed_run_keeps_its_flags(script, tmp_path, monkeypatch):
    """Its checkpoints must not go on as another command's."""
    run = Run("name", script, {"rate": 0.5})

    def killed(*arguments, **options):
        [folder] = run.folders(tmp_path)
        record = json.loads((folder / "run.json").read_text())
        assert record["command"] == run.arguments(folder, 1) and "finished" not in record
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(experiment.subprocess, "run", killed)
        experiment.complete(run, tmp_path)
    with pytest.raises(SystemExit, match="another command"):
        experiment.complete(Run("name", script, {"rate": 0.6}), tmp_path)
    experiment.complete(run, tmp_path)


def test_refuses_a_folder_of_other_flags(script, tmp_path):
    experiment.complete(Run("name", script, {"rate": 0.5}), tmp_path)
    with pytest.raises(SystemExit, match="another command"):
        experiment.complete(Run("name", script, {"rate": 0.6}), tmp_path)


def test_results_of_a_search(tmp_path):
    run = Run("name", "run_classifier.py", {"learning_rate": 1e-4}, seeds=(1, 2))
    (folder,) = run.folders(tmp_path)
    assert run.arguments(folder, 1)[-3:] == [
        f"--output_dir={folder}",
        "--random_seed=1",
        "--num_runs=2",
    ]
    for seed, results in ((2, {"eval_f1": 0.75}), (1, {"eval_f1": 0.5}), (3, {})):
        path = folder / "runs" / f"run-{seed}" / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"seed": seed, "results": results}))
    assert experiment.numbers(Cell("r", "c", None, run, "eval_f1"), tmp_path) == [50, 75]
    with pytest.raises(SystemExit, match="no eval_mcc; they have eval_f1"):
        experiment.numbers(Cell("r", "c", None, run, "eval_mcc"), tmp_path)


def test_flags():
    assert experiment.flag("do_train", True) == "--do_train=true"
    assert experiment.flag("ensemble", ["a", "b"]) == "--ensemble=a,b"
    assert experiment.flag("output_file", "{folder}/x", "/y") == "--output_file=/y/x"


# ---- Tables ----


def numbers_of(*pairs):
    return [report.Number(Cell(str(n), "c", paper), ours) for n, (paper, ours) in enumerate(pairs)]


def test_order():
    holds = report.order(numbers_of((1, [10.0, 10.2]), (2, [20.0, 20.2]), (3, [30.0])))
    assert (holds.right, holds.pairs, holds.unsure) == (3, 3, 0)
    assert holds.text == "holds"
    broken = report.order(numbers_of((1, [10.0, 12.0]), (2, [9.0, 12.0]), (3, [30.0, 30.1])))
    assert broken.text == "2 of 3, 1 unsure"
    assert report.order(numbers_of((1, [1.0]), (2, [2.0]))).text == "holds, 1 unsure"
    # Equal in the paper, not in the paper, or not run: no pair.
    assert report.order(numbers_of((1, [1.0]), (1, [2.0]), (None, [3.0]), (4, []))).text == "–"


@pytest.mark.parametrize("line", [False, True])
def test_report(script, tmp_path, capsys, line):
    runs = [Run(name, script, {"rate": rate}, seeds=(1, 2)) for name, rate in ("a5", "b6")]
    cells = [
        Cell(row, column, paper, run)
        for row, run in zip(("one", "two"), runs, strict=True)
        for column, paper in (("10", 70.0 if row == "one" else 60.0), ("20", None))
    ]
    table = Table("name", "Title", [*cells, Cell("three", "10", 1.0)], ["A note."], line=line)
    for run in table.runs:
        experiment.complete(run, tmp_path)
    report.show(table, tmp_path)
    text = capsys.readouterr().out
    assert re.search(r"one +70 +5150\.0 ± 70\.7 \(2\)", text)
    assert re.search(r"three +1 +–", text)
    assert re.search(r"the paper's order +0 of 1", text)
    assert "A note." in text
    rows = [line.split("\t") for line in (tmp_path / "name.tsv").read_text().splitlines()]
    named = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert named[0]["paper"] == "70"
    assert [named[0]["mean"], named[0]["n"], named[0]["values"]] == ["5150", "2", "5100 5200"]
    assert (tmp_path / "name.png").read_bytes().startswith(b"\x89PNG")


def test_corners():
    run = Run("name", "run_squad.py", {})
    cells = [Cell(row, column, 1.0, run) for row in "abc" for column in "xyz"]
    table = experiment.corners(Table("name", "Title", [Cell("0", "x", 1.0), *cells]))
    assert [cell.row + cell.column for cell in table.cells] == ["ax", "az", "cx", "cz"]


def flags_there_are() -> set[str]:
    paths = [*ROOT.glob("run_*.py"), *ROOT.glob("data/**/*.py"), *ROOT.glob("modeling/**/*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    return set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text))


@pytest.mark.parametrize("name", TABLES)
def test_table(name, place):
    table = importlib.import_module(f"tests.paper.{name}").small_scale(place)
    assert table.name == name
    keys = [(cell.row, cell.column) for cell in table.cells]
    assert len(keys) == len(set(keys))
    measured = [cell for cell in table.cells if cell.run]
    assert any(cell.paper is not None for cell in measured)
    known, commands, ready = flags_there_are(), {}, set()
    for run in table.runs:
        assert set(run.flags) <= known, run.name
        assert run.command.endswith(".py") or "." in run.command
        # What a run reads of other runs is there before it.
        text = " ".join(experiment.flag(*item) for item in run.flags.items())
        for needed in re.findall(rf"{place.work}/runs/[^ ,]+", text):
            path = pathlib.Path(needed)
            assert ready & {path, *path.parents}, f"{run.name} needs {path}"
        ready.update(run.folders(place.work))
        for folder, seed in zip(run.folders(place.work), run.seeds, strict=False):
            assert commands.setdefault(folder, run.arguments(folder, seed)) == run.arguments(
                folder, seed
            )
    for cell in measured:
        assert cell.run in table.runs  # no other run of that name


@pytest.mark.parametrize("name", TABLES)
def test_paper_scale(name, place, capsys):
    launches = importlib.import_module(f"tests.paper.{name}").paper_scale(place)
    known = flags_there_are()
    for launch in launches:
        assert set(launch.flags) <= known, launch.what
        assert launch.hours(cost_machines.H100) > 0 or not launch.phases
    full.show(launches, place)
    text = capsys.readouterr().out
    assert text.count("\npython run_") + text.startswith("python run_") == len(launches)
    assert "All of it" in text
    assert re.search(r"1 × H100 SXM: [\d.e+]+ h, \$[\d,.]+ \(", text)


def test_shared_runs_are_the_same(place):
    """A run that two tables have is made by one command."""
    commands = {}
    for name in TABLES:
        for run in importlib.import_module(f"tests.paper.{name}").small_scale(place).runs:
            for folder, seed in zip(run.folders(place.work), run.seeds, strict=False):
                arguments = run.arguments(folder, seed)
                assert commands.setdefault(folder, arguments) == arguments
    assert len(commands) > 50
