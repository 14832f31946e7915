"""The paper's search: some learning rates, batch sizes and epochs, each several times over.

    trials = trial_grid([5e-5, 3e-5], [32], [3.0], num_runs=5, seed=1)
    search = Search(output_dir, "eval_f1", {"train_file": fingerprint, "optimizer": "adam"})
    best = search.run(trials, train)

The paper fine-tunes with each setting, for small sets with several random restarts, and takes
what is best on the dev set (section 4.1, appendix A.3). Every run has a folder in `runs/` of the
output folder; a finished one keeps its curves and `result.json`. The weights of the best run so
far lie in `best/`. Killed and started again, a search goes on in the run where it was.
"""

import dataclasses
import itertools
import json
import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tabulate import tabulate

from modeling.checkpoints.files import BEST_FOLDER, join, staged, write_staged_text
from modeling.errors import DivergedError, ModelingError
from modeling.metrics import first_best_metric, metric_text
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.loop import wait_for_workers
from modeling.training.runs import charts, run_folder
from modeling.training.runs import identity as run_identity
from modeling.training.runs.best import keep_as_best, run_of_best

FOLDER = "runs"
FILE = "result.json"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of a search: a setting and a seed, which is of head, data order and dropout."""

    learning_rate: float
    batch_size: int
    num_epochs: float
    seed: int

    @property
    def setting(self) -> str:
        """What it shares with its restarts."""
        return f"lr {self.learning_rate:g}, batch {self.batch_size}, epochs {self.num_epochs:g}"

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"lr{self.learning_rate:g}-bs{self.batch_size}-ep{self.num_epochs:g}-seed{self.seed}"


@dataclasses.dataclass(frozen=True)
class FinishedTrial:
    """What training one trial gave.

    Attributes:
        results: Of the dev set.
        step: Updates.
        degenerate: Whether it predicts the same whatever the input (the paper's unstable runs).
        tensors: Its weights by name.
    """

    results: Mapping[str, float]
    step: int
    degenerate: bool
    tensors: Mapping[str, np.ndarray]


def trial_grid(
    learning_rates: Sequence[float],
    batch_sizes: Sequence[int],
    numbers_of_epochs: Sequence[float],
    num_runs: int,
    seed: int,
) -> list[Trial]:
    """All settings with seed `seed`, then all with the next, `num_runs` times.

    Raises:
        ModelingError: There would be no run, or one twice.
    """
    settings = list(itertools.product(learning_rates, batch_sizes, numbers_of_epochs))
    trials = [Trial(*setting, seed + run) for run in range(num_runs) for setting in settings]
    names = [trial.name for trial in trials]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not trials or twice:
        problem = f"{twice} comes twice" if twice else "there is nothing to run"
        raise ModelingError(
            f"The search makes no sense: {problem}. It takes different learning rates, batch "
            f"sizes and numbers of epochs, each positive, and one run or more."
        )
    return trials


class Search:
    """Runs trials and keeps the best.

    Args:
        directory: The output folder.
        metric: Of the results, by which runs are compared; see `metrics.smaller_metric_is_better`.
        identity: Everything but the trial that makes another run, by the names of flags; see
            `runs.identity`. A finished run with another one is refused.
        vocabulary: Which one the weights belong to, see `checkpoints.describe_vocabulary`.
    """

    def __init__(
        self,
        directory: str,
        metric: str,
        identity: Mapping[str, Any],
        vocabulary: Mapping[str, Any] | None = None,
    ):
        self.directory = directory
        self.metric = metric
        self.identity = {**identity, "best_metric": metric}
        self.vocabulary = vocabulary

    def folder(self, trial: Trial) -> str:
        """The trial's own output folder."""
        return join(join(self.directory, FOLDER), trial.name)

    def run(self, trials: Sequence[Trial], train: Callable[[Trial, str], FinishedTrial]) -> dict:
        """Trains those that aren't finished; writes search.tsv, search_settings.tsv, search.png.

        Finished runs that the folder has besides, of the same data and weights, are part of it.

        Args:
            trials: See `trial_grid`.
            train: From a trial and its folder to what it gave. A run that diverges
                (DivergedError) counts as degenerate, with results NaN.

        Returns:
            The best run's row of search.tsv.

        Raises:
            ModelingError: The folder holds runs of another search, or every run has diverged.
        """
        stored = {trial: self._read(self.folder(trial)) for trial in trials}
        for trial in trials:
            if not stored[trial]:
                self._check_begun(self.folder(trial))
        rows = {trial: row for trial, row in stored.items() if row}
        if rows:
            logging.info("Search: %d of %d runs are finished.", len(rows), len(trials))
        others = self._others(trials)
        if others:
            logging.info("Search: %d other runs of this folder count as well.", len(others))
        for number, trial in enumerate(trials, 1):
            if trial not in rows:
                logging.info(
                    "Search: run %d of %d: %s, seed %d",
                    number,
                    len(trials),
                    trial.setting,
                    trial.seed,
                )
                rows[trial] = self._train(trial, train, [*rows.values(), *others])
            self._clear(trial)
        ordered = [*(rows[trial] for trial in trials), *others]
        best = self._best(ordered)
        if best is None:
            raise ModelingError(self._why_none(ordered))
        best = self._kept(ordered, best)
        self._report(ordered, best)
        return best

    # ---- One run ----

    def _train(self, trial, train, finished: list[dict]) -> dict:
        start = time.monotonic()
        done = None
        try:
            done = train(trial, self.folder(trial))
        except DivergedError as error:
            logging.warning("This run has diverged: %s", error)
        value = math.nan
        if done:
            if self.metric not in done.results:
                raise ModelingError(
                    f"The search compares runs by {self.metric!r}, which isn't among the results; "
                    f"choose one of {', '.join(sorted(done.results))}."
                )
            value = float(done.results[self.metric])
        row = {
            **dataclasses.asdict(trial),
            "setting": trial.setting,
            "value": value,
            "degenerate": done is None or done.degenerate,
            "step": done.step if done else 0,
            "results": {
                name: float(value) if math.isfinite(value) else None
                for name, value in (done.results if done else {}).items()
            },
        }
        if done and is_chief():
            # First the weights, then the result: a run killed in between is simply repeated.
            if self._best([*finished, row]) is row:
                best = (self.metric, value, done.step, done.tensors)
                keep_as_best(self.directory, *best, self.vocabulary, trial.name)
            self._write(trial, row | {"seconds": round(time.monotonic() - start, 1)})
        elif is_chief():
            self._write(trial, row)
        wait_for_workers()  # the chief writes what the others read
        logging.info(
            "Search: %s = %s%s",
            self.metric,
            metric_text(self.metric, value, 4),
            " (degenerate: the same prediction for every input)" if row["degenerate"] else "",
        )
        return row

    def _best(self, rows: Sequence[dict]) -> dict | None:
        """The first of the best; None if all have diverged."""
        return first_best_metric(self.metric, rows, operator.itemgetter("value"))

    def _kept(self, rows: Sequence[dict], best: dict) -> dict:
        """Which of the best, where several are equally good, has its weights in best/."""
        name = run_of_best(self.directory)
        equals = [row for row in rows if row["value"] == best["value"]]
        kept = next((row for row in equals if _trial_of(row).name == name), None)
        if name and not kept:
            raise ModelingError(
                f"{join(self.directory, 'best')} holds the weights of the run {name}, whose result "
                f"is missing: it was stopped just before it was written. Ask for that run as well, "
                f"and it is repeated; or search in another --output_dir."
            )
        return kept or best

    def _why_none(self, rows: Sequence[dict]) -> str:
        """Why there is no best run."""
        if any(row["step"] for row in rows):
            return (
                f"No run of the search in {self.directory} has a finite {self.metric}: "
                f"{sum(not row['step'] for row in rows)} of {len(rows)} have diverged, the others "
                f"give every example the same answer. Take other learning rates or more steps, or "
                f"compare the runs by another result with --best_metric."
            )
        return (
            f"All {len(rows)} runs of the search in {self.directory} have diverged; take lower "
            f"learning rates."
        )

    # ---- Files ----

    def _others(self, trials: Sequence[Trial]) -> list[dict]:
        """Finished runs of earlier searches that aren't asked for now: best/ may be of one."""
        folder = join(self.directory, FOLDER)
        names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
        names = {name.rstrip("/") for name in names} - {trial.name for trial in trials}
        rows = [self._read(join(folder, name)) for name in sorted(names)]
        return [row for row in rows if row]

    def _read(self, folder: str) -> dict | None:
        path = join(folder, FILE)
        if not tf.io.gfile.exists(path):
            return None
        try:
            with tf.io.gfile.GFile(path, "r") as file:
                row = json.load(file)
            _check_row(row)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelingError(
                f"{path} is damaged: it isn't what a finished run of a search has written there "
                f"({type(error).__name__}: {error}). Copy it again; or remove it, and the run is "
                f"repeated."
            ) from error
        changes = run_identity.identity_differences(row.get("identity", {}), self.identity)
        if changes or "identity" not in row:
            raise ModelingError(
                f"{path} is of another search: {changes or 'it does not say of which data'}. Give "
                f"another --output_dir, or --overwrite_output_dir to search anew in this one."
            )
        row["value"] = math.nan if row["value"] is None else row["value"]
        return row

    def _check_begun(self, folder: str) -> None:
        """Raises ModelingError if a run was stopped that had other settings: it can't go on."""
        if not run_folder.latest_run_checkpoint(folder):
            return
        earlier = run_identity.read_identity(folder)
        # The steps of all its stages, where the search's are those that were asked for.
        earlier.pop("num_train_steps", None)
        changes = run_identity.identity_differences(earlier, self.identity)
        if changes:
            raise ModelingError(
                f"{folder} was begun by another search: {changes}. Give another --output_dir, or "
                f"--overwrite_output_dir to search anew in this one."
            )

    def _write(self, trial: Trial, row: dict) -> None:
        value = row["value"] if math.isfinite(row["value"]) else None
        row = row | {"identity": self.identity, "value": value}
        with staged(self.folder(trial)) as temporary:
            write_staged_text(join(temporary, FILE), json.dumps(row, indent=1) + "\n")

    def _clear(self, trial: Trial) -> None:
        """Removes the checkpoints of a finished run: the best weights are in `best/`."""
        folder = self.folder(trial)
        if not is_chief() or not tf.io.gfile.isdir(folder):
            return
        for name in sorted(tf.io.gfile.listdir(folder), key=lambda n: not n.endswith(".index")):
            if name.startswith(("model.ckpt-", "data-")) or name == "checkpoint":
                tf.io.gfile.remove(join(folder, name))
            elif name.rstrip("/") == BEST_FOLDER:
                tf.io.gfile.rmtree(join(folder, name))

    def _report(self, rows: Sequence[dict], best: dict) -> None:
        by_setting: dict[str, list[dict]] = {}
        for row in rows:
            by_setting.setdefault(row["setting"], []).append(row)
        settings = [_statistics(group, self.metric) for group in by_setting.values()]
        runs = [_run_columns(row, best) for row in rows]
        if is_chief():
            with staged(self.directory) as temporary:
                write_staged_text(join(temporary, "search.tsv"), _tsv(runs))
                write_staged_text(join(temporary, "search_settings.tsv"), _tsv(settings))
            charts.spread_png(rows, join(self.directory, "search.png"), self.metric)
        table = tabulate(settings, headers="keys", disable_numparse=True)
        logging.info("Search: %s of %d runs\n%s", self.metric, len(rows), table)
        logging.info(
            "Search: best %s %.4f: %s, seed %d; its weights are in %s",
            self.metric,
            best["value"],
            best["setting"],
            best["seed"],
            join(self.directory, BEST_FOLDER),
        )


def _trial_of(row: Mapping[str, Any]) -> Trial:
    return Trial(**{field.name: row[field.name] for field in dataclasses.fields(Trial)})


def _check_row(row: Any) -> None:
    """Raises KeyError or TypeError unless it has all that a row of search.tsv is made of."""
    numbers = ("learning_rate", "batch_size", "num_epochs", "seed", "step")
    if not all(isinstance(row[name], (int, float)) for name in numbers):
        raise TypeError(f"one of {', '.join(numbers)} is no number")
    if not isinstance(row["value"], (int, float, type(None))):
        raise TypeError(f"the value is {row['value']!r}")
    if not isinstance(row["setting"], str) or not isinstance(row["degenerate"], bool):
        raise TypeError("setting or degenerate is of another type")
    if not isinstance(row.get("identity", {}), dict):
        raise TypeError("the identity is no object")


def _statistics(rows: Sequence[dict], metric: str) -> dict[str, str]:
    """A setting's row: mean and sample standard deviation of its finite runs."""
    values = np.array([row["value"] for row in rows if math.isfinite(row["value"])])
    best = first_best_metric(metric, values, float)
    return {
        "setting": rows[0]["setting"],
        "runs": str(len(rows)),
        "mean": f"{values.mean():.4f}" if len(values) else "",
        "std": f"{values.std(ddof=1):.4f}" if len(values) > 1 else "",
        "best": "" if best is None else f"{best:.4f}",
        "degenerate": str(sum(row["degenerate"] for row in rows)),
    }


def _run_columns(row: dict, best: dict) -> dict[str, str]:
    return {
        "learning_rate": f"{row['learning_rate']:g}",
        "batch_size": str(row["batch_size"]),
        "num_epochs": f"{row['num_epochs']:g}",
        "seed": str(row["seed"]),
        "step": str(row["step"]),
        "value": repr(row["value"]),
        "degenerate": str(row["degenerate"]),
        "best": str(row is best),
    }


def _tsv(rows: Sequence[Mapping[str, str]]) -> str:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    return "\n".join(lines) + "\n"
