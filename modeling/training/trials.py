"""What fine-tuning scripts share: a run as their flags ask for it, several in a search, weights.

start = {"init_checkpoint": values.init_checkpoint}
step, results = train_trial(values, model, losses, trial, data, folder, evaluator, **start)
run_search(values, names, about, trials, make_model, train)
step = load_weights(values, model, searching, **start)
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf

from modeling import checkpoints
from modeling.losses import Losses
from modeling.training import flags as common_flags
from modeling.training.engine import precision
from modeling.training.engine.evaluation import reported
from modeling.training.engine.setup import make_train_step
from modeling.training.runs import run_folder, run_state
from modeling.training.runs.best import has_best, load_best
from modeling.training.runs.fit import Stage, fit
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.summary import RunSummary
from modeling.training.search import Finished, Search, Trial


class DevSet(Protocol):
    """Evaluates a model on the dev set.

    Attributes:
        names: Of the results: metrics, then the loss.
    """

    names: Sequence[str]

    def __call__(self, step: int = 0) -> dict[str, float]: ...


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What a trial trains on.

    Attributes:
        make_dataset: Endless batches, always in the same order; see `Stage`.
        steps_per_epoch: Batches that the examples make.
        num_examples: Of an epoch.
        data_id: See `Stage`.
        describe_examples: See `Stage`.
    """

    make_dataset: Callable[[], tf.data.Dataset]
    steps_per_epoch: float
    num_examples: int
    data_id: str
    describe_examples: Callable[[np.ndarray], str]


def train_trial(
    values,
    model: keras.Model,
    losses: Losses,
    trial: Trial,
    data: TrainingData,
    folder: str,
    evaluator: DevSet | None,
    summary: RunSummary | None = None,
    *,
    init_checkpoint: str | None,
) -> tuple[int, dict[str, float]]:
    """Fine-tunes from where the folder or a checkpoint stands.

    Args:
        values: The script's flag values: those that `common_flags` defines, `num_train_steps` and
            `warmup_proportion`.
        model, losses: What is trained.
        trial: Learning rate, number of epochs and seed.
        data: Batches of the trial's size, in the order of its seed.
        folder: The run's output folder.
        evaluator: Evaluates on the way (--eval_steps) and in the end; None for never.
        summary: Of the session, unless the run is one of several.
        init_checkpoint: What a run that begins starts from; None for random weights.

    Returns:
        The step of the weights that the model then has; the results in the end, {} without an
        evaluator.
    """
    num_train_steps = values.num_train_steps or int(data.steps_per_epoch * trial.num_epochs)
    warmup_steps = int(num_train_steps * values.warmup_proportion)
    settings = dataclasses.replace(
        common_flags.training_settings(values, num_train_steps, warmup_steps),
        learning_rate=trial.learning_rate,
        seed=trial.seed,
    )
    examples_per_step = round(data.num_examples / data.steps_per_epoch)
    reporter = Reporter(folder, num_train_steps, examples_per_step)
    stage = Stage(
        num_train_steps,
        data.make_dataset,
        data.data_id,
        examples_per_step,
        data.describe_examples,
    )
    names = evaluator.names if evaluator else []
    evaluate = reported(evaluator, reporter, "dev set") if evaluator else None
    panels = {"Loss": ["loss", "eval_loss"], "Training": ["accuracy"], "Dev set": names[:-1]}
    plot = functools.partial(reporter.plot, "training.png", panels)
    step = fit(
        make_train_step(model, losses, settings),
        [stage],
        folder,
        init_checkpoint,
        reporter,
        common_flags.loop_options(values),
        evaluate,
        summary,
        result_names=lambda: names,
        plot=plot,
    )
    results = evaluate(step) if evaluate else {}
    plot()
    return step, results


def run_search(
    values,
    names: Sequence[str],
    about: str,
    trials: Sequence[Trial],
    make_model: Callable[[], keras.Model],
    train: Callable[[keras.Model, Trial, str], tuple[int, dict[str, float], bool]],
) -> None:
    """The paper's search; leaves the best weights in best/ of the output folder.

    Args:
        values: The script's flag values.
        names: Of the results; runs are compared by --best_metric, or the first.
        about: Says what is trained on what, see `Search`.
        trials: See `common_flags.search_trials`.
        make_model: A model with random weights.
        train: Trains a new model in a folder: the step, the results, and whether it predicts the
            same whatever the input.
    """

    def train_one(trial: Trial, folder: str) -> Finished:
        precision.forget_model()
        keras.utils.set_random_seed(trial.seed)
        run_folder.prepare_directory(folder)
        model = make_model()
        step, results, degenerate = train(model, trial, folder)
        weights = checkpoints.weights_by_name(model)
        tensors = {name: weight.value.numpy() for name, weight in weights.items()}
        return Finished(results, step, degenerate, tensors)

    about = f"{about}, {values.num_train_steps or 'all'} steps, from {values.init_checkpoint}"
    Search(values.output_dir, values.best_metric or names[0], about).run(trials, train_one)


def load_weights(
    values, model: keras.Model, searched: bool = False, *, init_checkpoint: str | None
) -> int:
    """Loads what was trained before into a model; returns its step.

    The best weights after a search (just now, or what the output folder is of) and where
    --best_metric is given; otherwise see `run_state.load_trained`.
    """
    folder = values.output_dir
    # A search leaves no training checkpoint in the output folder itself.
    found = not run_folder.latest(folder) and has_best(folder) and not init_checkpoint
    if searched or values.best_metric or found:
        return load_best(model, folder)
    return run_state.load_trained(model, folder, init_checkpoint)
