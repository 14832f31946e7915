"""The paper's search: which runs are made, which one wins, and what a second search makes of it."""

import json
import math

import numpy as np
import pytest

from modeling.errors import DivergedError, ModelingError
from modeling.training.search import FinishedTrial, Search, trial_grid


class Train:
    """Gives each learning rate its value, and counts."""

    def __init__(self, values, metric="eval_accuracy"):
        self.values = values
        self.metric = metric
        self.trained = []

    def __call__(self, trial, folder):
        self.trained.append((trial.learning_rate, trial.seed))
        value = self.values[trial.learning_rate] + 0.01 * (trial.seed - 5)
        if math.isnan(value):
            raise DivergedError("The loss is nan.")
        results = {self.metric: value, "eval_other": 0.0}
        return FinishedTrial(results, 7, value < 0.4, {"w": np.float32(value)})


def table(folder, name="search.tsv"):
    header, *rows = [line.split("\t") for line in (folder / name).read_text().splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def kept(folder):
    """The value whose weights are in best/."""
    return json.loads((folder / "best" / "best.json").read_text())["value"]


def test_runs_their_order_and_the_best(tmp_path):
    train = Train({1e-3: 0.5, 1e-4: 0.8, 1e-5: 0.3})
    trials = trial_grid([1e-3, 1e-4, 1e-5], [16], [3.0], 2, 5)
    best = Search(str(tmp_path), "eval_accuracy", {"train_file": "x"}).run(trials, train)
    assert train.trained == [(lr, seed) for seed in (5, 6) for lr in (1e-3, 1e-4, 1e-5)]
    assert (best["learning_rate"], best["seed"], best["value"]) == (1e-4, 6, 0.81)
    rows = table(tmp_path)
    assert [row["best"] for row in rows] == ["False"] * 4 + ["True", "False"]
    assert [row["degenerate"] for row in rows] == ["False", "False", "True"] * 2
    middle = table(tmp_path, "search_settings.tsv")[1]
    assert (middle["runs"], middle["mean"], middle["best"]) == ("2", "0.8050", "0.8100")
    assert float(middle["std"]) == pytest.approx(np.std([0.8, 0.81], ddof=1), abs=1e-4)
    assert kept(tmp_path) == 0.81
    # Again: nothing is trained, the files are the same.
    before = (tmp_path / "search.tsv").read_bytes()
    Search(str(tmp_path), "eval_accuracy", {"train_file": "x"}).run(trials, train)
    assert len(train.trained) == 6 and (tmp_path / "search.tsv").read_bytes() == before


def test_a_narrower_search_keeps_what_was_better(tmp_path):
    """The folder's best weights are of the run that its table calls the best."""
    train = Train({1e-3: 0.5, 1e-4: 0.8})
    search = Search(str(tmp_path), "eval_accuracy", {"train_file": "x"})
    search.run(trial_grid([1e-3, 1e-4], [16], [3.0], 1, 5), train)
    best = search.run(trial_grid([1e-3], [16], [3.0], 2, 5), train)
    assert best["value"] == kept(tmp_path) == 0.8
    assert [row["value"] for row in table(tmp_path)] == ["0.5", "0.51", "0.8"]
    assert train.trained == [(1e-3, 5), (1e-4, 5), (1e-3, 6)]


def test_of_equals_the_best_is_that_whose_weights_are_kept(tmp_path):
    train = Train({1e-3: 0.8, 1e-4: 0.8})
    search = Search(str(tmp_path), "eval_accuracy", {"train_file": "x"})
    search.run(trial_grid([1e-4], [16], [3.0], 1, 5), train)
    best = search.run(trial_grid([1e-3, 1e-4], [16], [3.0], 1, 5), train)
    assert best["learning_rate"] == 1e-4
    assert [row["best"] for row in table(tmp_path)] == ["False", "True"]


def test_weights_of_a_run_that_was_killed_before_its_result(tmp_path):
    train = Train({1e-3: 0.7, 1e-4: 0.8})
    search = Search(str(tmp_path), "eval_accuracy", {"train_file": "x"})
    both = trial_grid([1e-3, 1e-4], [16], [3.0], 1, 5)
    search.run(both, train)
    (tmp_path / "runs" / both[1].name / "result.json").unlink()
    with pytest.raises(ModelingError, match=r"of the run lr0\.0001-bs16-ep3"):
        search.run(both[:1], train)
    assert search.run(both, train)["value"] == 0.8


def test_a_loss_is_better_when_smaller_and_divergence_is_no_end(tmp_path):
    train = Train({1e-3: 0.9, 1e-4: 0.6, 1.0: math.nan}, "eval_loss")
    search = Search(str(tmp_path), "eval_loss", {"train_file": "x"})
    best = search.run(trial_grid([1e-3, 1.0, 1e-4], [16], [3.0], 1, 5), train)
    assert best["value"] == kept(tmp_path) == 0.6
    assert [row["degenerate"] for row in table(tmp_path)] == ["False", "True", "False"]
    stored = json.loads(next(tmp_path.glob("runs/lr1-*/result.json")).read_text())
    assert stored["value"] is None
    with pytest.raises(ModelingError, match="have diverged; take lower"):
        search = Search(str(tmp_path / "b"), "eval_loss", {"train_file": "x"})
        search.run(trial_grid([1.0], [16], [3.0], 2, 5), train)


def test_what_makes_no_sense(tmp_path):
    with pytest.raises(ModelingError, match="comes twice"):
        trial_grid([1e-3, 1e-3], [16], [3.0], 1, 5)
    with pytest.raises(ModelingError, match="nothing to run"):
        trial_grid([1e-3], [16], [3.0], 0, 5)
    trials = trial_grid([1e-3], [16], [3.0], 1, 5)
    train = Train({1e-3: 0.5})
    Search(str(tmp_path), "eval_accuracy", {"train_file": "x"}).run(trials, train)
    with pytest.raises(ModelingError, match="is of another search: train_file was x and is y now"):
        Search(str(tmp_path), "eval_accuracy", {"train_file": "y"}).run(trials, train)
    with pytest.raises(ModelingError, match="isn't among the results; choose one of eval_acc"):
        Search(str(tmp_path / "b"), "eval_f1", {"train_file": "x"}).run(trials, train)
