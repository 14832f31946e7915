"""The best weights of a run by a dev-set metric, and when to stop for want of better ones.

They lie in `best/` of the output folder: a TF1 bundle `model.ckpt-STEP` with the weights and
`global_step`, `best.json` that says which step it is and how good, and a text file `checkpoint`,
through which the folder can be given as --init_checkpoint. A run that ends with them says so in the
output folder's own file `checkpoint`.
"""

import json
import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from modeling import checkpoints
from modeling.checkpoints import names, tf1
from modeling.checkpoints.files import (
    BEST_FOLDER,
    join,
    remove_abandoned,
    staged,
    write_staged_text,
)
from modeling.errors import ModelingError
from modeling.metrics import first_best_metric, metric_text
from modeling.training.engine.distribution import is_chief
from modeling.training.runs import run_folder

FILE = "best.json"
_NAMED_BEST = re.compile(rb'model_checkpoint_path: "(%s/model\.ckpt-\d+)"' % BEST_FOLDER.encode())


class BestKeeper:
    """Keeps the best weights so far and counts evaluations that brought none.

    Made in the strategy's scope.

    What it does is a function of the evaluations up to now, so a resumed run that hands in those
    of before decides as if it had never stopped. Every worker decides alike; the chief writes.

    Args:
        directory: The run's output folder.
        metric: Name among the evaluation's results. Less is better where the name speaks of a loss,
            perplexity or error. Only strictly better is better; what isn't finite never is.
        patience: Evaluations in a row without improvement after which to stop; 0 for never.
        history: (step, value) of the metric before the run was resumed, up to the step that it
            goes on from: `reporter.curve("eval", metric)`.
        vocabulary: Which one the weights belong to, see `checkpoints.describe_vocabulary`.
    """

    def __init__(
        self,
        directory: str,
        metric: str,
        patience: int = 0,
        *,
        history: Iterable[tuple[int, float]] = (),
        vocabulary: Mapping[str, Any] | None = None,
    ):
        self.directory = directory
        self.metric = metric
        self.patience = patience
        self.vocabulary = vocabulary
        self._folder = join(directory, BEST_FOLDER)
        self._chief = is_chief()
        # Step 0 is an evaluation of a checkpoint from elsewhere. A step evaluated again counts
        # once.
        self._history = {step: value for step, value in history if step > 0}
        self._kept: int | None = None  # the step whose weights are in best/
        self._lost_until = 0  # the weights of no step up to here can be had
        if self._chief:
            self._restore()

    @property
    def best(self) -> tuple[int, float] | None:
        """(step, value) of the best evaluation so far, None before a finite one."""
        return self._best_of(self._history)

    @property
    def evaluations_without_improvement(self) -> int:
        """Evaluations since the best."""
        return _since_best(self.metric, self._history)

    @property
    def should_stop(self) -> bool:
        """Whether patience is at its end; may be so at once where a stopped run is resumed."""
        return 0 < self.patience <= self.evaluations_without_improvement

    def update(self, step: int, results: Mapping[str, float], model: keras.Model) -> bool:
        """Takes an evaluation of the model as it is now; keeps its weights if they are better.

        Args:
            step: Updates done.
            results: Of the evaluation, by name.
            model: Of which the weights are saved.

        Returns:
            Whether to stop training.

        Raises:
            ModelingError: The results have no such metric, or `best/` can't be written.
        """
        check_best_metric(self.metric, results, f"the evaluation at step {step}")
        value = float(results[self.metric])
        self._history[step] = value
        if not math.isfinite(value):
            logging.warning(
                "%s is %s at step %d, so these weights can't be the best by it.",
                self.metric,
                metric_text(self.metric, value),
                step,
            )
        if self._chief:
            self._keep(step, model)
        best = self.best
        if self.should_stop:
            logging.info(
                "Stopping early: %s has not improved in %d evaluations. %s",
                self.metric,
                self.evaluations_without_improvement,
                f"Best: {best[1]:.6g} at step {best[0]}." if best else "It had no finite value.",
            )
        return self.should_stop

    def _keep(self, step: int, model: keras.Model) -> None:
        candidates = {s: v for s, v in self._history.items() if s > self._lost_until}
        best = self._best_of(candidates)
        if best and best[0] == step != self._kept:
            weights = checkpoints.weights_by_name(model)
            tensors = {n: w.value.numpy() for n, w in weights.items()}
            _write_weights(self._folder, step, tensors, self.vocabulary)
            self._point_to(step)
            logging.info(
                "Best %s so far: %.6g at step %d, kept in %s",
                self.metric,
                best[1],
                step,
                self._folder,
            )
        self._remove_others()

    def _best_of(self, history: Mapping[int, float]) -> tuple[int, float] | None:
        return _best_of(self.metric, history)

    # ---- Files ----

    def _point_to(self, step: int) -> None:
        _write_record(self._folder, self.metric, self._history[step], step)
        self._kept = step

    def _remove_others(self) -> None:
        """Leaves the best, and the one that would be it if the run went on from its checkpoint.

        A run that is killed goes on from its newest training checkpoint, where an older best may
        be the valid one.
        """
        if self._kept is None:
            return
        saved = max(run_folder.run_checkpoint_steps(self.directory), default=0)
        earlier = self._best_of({s: v for s, v in self._history.items() if s <= saved})
        _remove_weights_but(
            self._folder,
            {self._kept} | ({earlier[0]} if earlier and saved < self._kept else set()),
        )
        remove_abandoned(self._folder)

    def _restore(self) -> None:
        """Makes `best/` agree with the history of the resumed run."""
        best, stored = self.best, _read_record(self._folder)
        other = f"{self._folder} holds the weights of step {stored['step']}" if stored else ""
        if best is None:
            if stored:
                logging.info(
                    "%s, which this run hasn't evaluated; those of its first evaluation take "
                    "their place.",
                    other,
                )
            return
        step, value = best
        if _tensors(join(self._folder, f"model.ckpt-{step}")) is not None:
            self._point_to(step)
        else:
            # Killed between the evaluation and keeping its weights, or best/ was removed.
            tensors = _tensors(join(self.directory, f"model.ckpt-{step}"))
            if tensors is None:
                self._lost_until = max(self._history)
                logging.warning(
                    "The best %s so far, %.6g, was at step %d, but its weights are gone%s. The "
                    "best of the evaluations to come will be kept in %s.",
                    self.metric,
                    value,
                    step,
                    f" ({other})" if other else "",
                    self._folder,
                )
                return
            _write_weights(self._folder, step, tensors, self.vocabulary)
            self._point_to(step)
        if stored and stored["step"] != step:
            logging.info(
                "%s; at the step that this run goes on from, the best is step %d, which replaces "
                "them.",
                other,
                step,
            )
        logging.info(
            "Best %s so far: %.6g at step %d; evaluations since then without improvement: %d.",
            self.metric,
            value,
            step,
            self.evaluations_without_improvement,
        )
        self._remove_others()


def has_stopped_early(metric: str, patience: int, history: Iterable[tuple[int, float]]) -> bool:
    """Whether patience has come to its end in these evaluations, (step, value)."""
    return 0 < patience <= _since_best(metric, dict(history))


def _since_best(metric: str, history: Mapping[int, float]) -> int:
    best = _best_of(metric, history)
    return sum(step > (best[0] if best else 0) for step in history)


def _best_of(metric: str, history: Mapping[int, float]) -> tuple[int, float] | None:
    return first_best_metric(metric, sorted(history.items()), operator.itemgetter(1))


def keep_as_best(
    directory: str,
    metric: str,
    value: float,
    step: int,
    tensors: Mapping[str, np.ndarray],
    vocabulary: Mapping[str, Any] | None = None,
    run: str = "",
) -> None:
    """Writes weights chosen elsewhere as the best of a run's output folder, over those there.

    Args:
        directory: The output folder.
        metric, value: Why they are the best.
        step: Updates that made them.
        tensors: By name, see `checkpoints.weights_by_name`.
        vocabulary: See `BestKeeper`.
        run: Which of several runs made them, for `run_of_best`.
    """
    folder = join(directory, BEST_FOLDER)
    _write_weights(folder, step, tensors, vocabulary)
    _write_record(folder, metric, value, step, {"run": run})
    _remove_weights_but(folder, {step})


def run_of_best(directory: str) -> str | None:
    """What `keep_as_best` was told to be the run; None if nothing was."""
    return (_read_record(join(directory, BEST_FOLDER)) or {}).get("run")


def end_with_best(directory: str) -> None:
    """Has a run's file `checkpoint` name its best weights, so that its folder stands for them.

    Further training names its own checkpoints there again.
    """
    record = _read_record(join(directory, BEST_FOLDER))
    with staged(directory) as temporary:
        write_staged_text(
            join(temporary, "checkpoint"),
            f'model_checkpoint_path: "{BEST_FOLDER}/{record["checkpoint"]}"\n',
        )


def ended_with_best(directory: str) -> str | None:
    """The best weights of a run that ended with them; None if it ended with its last ones."""
    path = join(directory, "checkpoint")
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        named = _NAMED_BEST.match(file.read(1000))
    best = named and join(directory, named[1].decode())
    return best if best and tf1.is_tf1_prefix(best) else None


def check_best_metric(metric: str, names: Iterable[str], of: str) -> None:
    """Raises ModelingError if there is no such metric among the results of an evaluation."""
    names = sorted(names)
    if metric not in names:
        raise ModelingError(
            f"The metric {metric!r}, by which the best checkpoint is to be chosen, isn't among "
            f"the results of {of}. Choose one of {', '.join(names)}."
        )


def has_best(directory: str) -> bool:
    """Whether `load_best` will find weights in an output folder."""
    return _read_record(join(directory, BEST_FOLDER)) is not None


def _write_weights(
    folder: str,
    step: int,
    tensors: Mapping[str, np.ndarray],
    vocabulary: Mapping[str, Any] | None,
) -> None:
    with staged(folder) as temporary:
        prefix = join(temporary, f"model.ckpt-{step}")
        checkpoints.stage_vocabulary(prefix, vocabulary)
        tf1.write_bundle(prefix, {**tensors, "global_step": np.int64(step)})


def _remove_weights_but(folder: str, steps: Iterable[int]) -> None:
    keep = tuple(f"model.ckpt-{step}." for step in steps)
    # An index goes before its data: without it the rest no longer counts as a checkpoint.
    entries = tf.io.gfile.listdir(folder)
    for name in sorted(entries, key=lambda name: not name.endswith(".index")):
        if name.startswith("model.ckpt-") and not name.startswith(keep):
            tf.io.gfile.remove(join(folder, name))


def _write_record(
    folder: str, metric: str, value: float, step: int, more: Mapping[str, str] | None = None
) -> None:
    name = f"model.ckpt-{step}"
    record = {"metric": metric, "value": value, "step": step, "checkpoint": name, **(more or {})}
    with staged(folder) as temporary:
        write_staged_text(join(temporary, FILE), json.dumps(record) + "\n")
        write_staged_text(join(temporary, "checkpoint"), f'model_checkpoint_path: "{name}"\n')


def _tensors(prefix: str) -> dict[str, np.ndarray] | None:
    """The weights of a bundle that can be read in full, else None."""
    if not tf1.is_tf1_prefix(prefix):
        return None
    try:
        stored = tf1.read_bundle(prefix)
    except ModelingError as error:
        logging.warning("Damaged: %s", error)
        return None
    return {
        name: tensor
        for name, tensor in stored.items()
        if not names.is_bookkeeping(name) and not name.startswith("loss_scale")
    }


def _read_record(folder: str) -> dict | None:
    """What best.json says, or None where there is none that can be read."""
    path = join(folder, FILE)
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            record = json.load(file)
        sound = isinstance(record["step"], int) and isinstance(record["value"], (int, float))
        return record if sound and isinstance(record["checkpoint"], str) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def load_best(model: keras.Model, directory: str) -> int:
    """Loads the best weights of a run into a model; returns the step that they are of.

    Args:
        model: As it was trained.
        directory: The run's output folder.

    Raises:
        ModelingError: There are none, or they don't fit the model.
    """
    folder = join(directory, BEST_FOLDER)
    record = _read_record(folder)
    if record is None:
        raise ModelingError(
            f"There is no best checkpoint in {directory}: {join(folder, FILE)} is absent or can't "
            f"be read. Training writes it when it evaluates on the way; or use the newest "
            f"checkpoint instead."
        )
    checkpoints.load(model, join(folder, record["checkpoint"]), required=("",))
    metric, value = record.get("metric", "value"), record["value"]
    logging.info("Weights: best %s, %.6g, of step %d.", metric, value, record["step"])
    return int(record["step"])
