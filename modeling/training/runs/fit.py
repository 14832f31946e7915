"""A whole training run: from where it stands, stage after stage, to the weights to go on with.

stages = [RunStage(1000, make_dataset, "my data", 32)]
step = fit_run(train_step, stages, output_dir, None, reporter,
               LoopOptions(save_checkpoints_steps=100))
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from modeling.costs.utilisation import peak_flops
from modeling.errors import DivergedError, ModelingError
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.loop import (
    LoopAgreement,
    LoopInterruption,
    LoopOptions,
    leave_training_loop,
    make_iterator,
    train_steps,
)
from modeling.training.engine.step import TrainStep
from modeling.training.runs import identity as run_identity
from modeling.training.runs import run_folder
from modeling.training.runs.best import (
    BestKeeper,
    check_best_metric,
    end_with_best,
    ended_with_best,
    has_stopped_early,
    load_best,
)
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.rollback import (
    AHEAD,
    LOSS_WINDOW,
    SpikeWatch,
    batches_ahead,
    forget_later_rollbacks,
    read_rollbacks,
    roll_back,
    skip_batches,
)
from modeling.training.runs.run_state import RunState, start_or_resume
from modeling.training.runs.summary import RunSummary

_STEPS, _JUDGED_BY = "num_train_steps", "judged_by"


@dataclasses.dataclass(frozen=True)
class RunStage:
    """A part of a run with data of its own.

    Attributes:
        last_step: Updates done when it ends, those of the stages before it counted.
        make_dataset: Endless batches, by the rule of `distribution.share_of_worker`, always in
            the same order.
        data_id: Says in words which data and order that is; see `RunState`.
        batch_size: Examples per update, over all replicas.
        describe_examples: Says which examples the `index` of a batch means, for messages.
        length: Of an example: what is left of a run is judged by the places of its batches.
        former_data_id: What an earlier version called the same.
    """

    last_step: int
    make_dataset: Callable[[], tf.data.Dataset]
    data_id: str
    batch_size: int
    describe_examples: Callable[[np.ndarray], str] | None = None
    length: int = 1
    former_data_id: str | None = None


def fit_run(
    train_step: TrainStep,
    stages: Sequence[RunStage],
    directory: str,
    init_checkpoint: str | None,
    reporter: Reporter,
    options: LoopOptions,
    evaluate: Callable[[int], dict[str, float]] | None = None,
    summary: RunSummary | None = None,
    *,
    result_names: Callable[[], Iterable[str]] | None = None,
    identity: Mapping[str, Any] | None = None,
    judged_by: Mapping[str, Any] | None = None,
    vocabulary: Mapping[str, Any] | None = None,
    begin: Callable[[bool], None] | None = None,
) -> int:
    """Trains from where the folder stands until the last stage ends; call it in the scope.

    Args:
        train_step: Holds model and optimizer.
        stages: In order.
        directory: The run's output folder, see `start_or_resume`.
        init_checkpoint: Weights to start from if the folder has none.
        reporter: Of the run.
        options: See there.
        evaluate: From a step to the results of an evaluation of the model as it is; see
            `reporting.reported_evaluation`.
        summary: Is told what it is about once the run stands.
        result_names: Names of the results that `evaluate` gives, by which a mistyped `best_metric`
            is found before training. Only called if there is one.
        identity: Everything that changes the result, by the names of flags; see `identity`.
        judged_by: What the evaluations depend on besides, by the names of flags. It counts where
            there is a `best_metric`: those of different examples can't be compared.
        vocabulary: Which one the weights belong to, see `checkpoints.describe_vocabulary`.
        begin: Called once the run stands, before its first step, with whether there is a step left
            to do: a run that is refused, because its first weights don't fit, say, must leave
            nothing in the folder that binds the next.

    Returns:
        The step of the weights that the model has in the end: the last, or the best.

    Raises:
        ModelingError: The loss isn't finite, a setting can't work, or the folder's finished run
            was trained with other settings.
    """
    check_run_options(options)
    if options.best_metric and result_names:
        check_best_metric(options.best_metric, result_names(), "the evaluations")
    with LoopInterruption() as interruption:
        run = _Run(
            train_step, directory, reporter, options, evaluate, interruption, vocabulary, begin
        )
        run.identify(identity or {}, judged_by or {}, stages[-1].last_step)
        # A run that diverges is taken off the terminal too.
        with contextlib.closing(reporter):
            step = run.through(stages, init_checkpoint, summary)
        if run.is_to_leave():
            leave_training_loop(step, interruption)
    return step


@dataclasses.dataclass
class _Run:
    """What the stages of one run have in common."""

    train_step: TrainStep
    directory: str
    reporter: Reporter
    options: LoopOptions
    evaluate: Callable[[int], dict[str, float]] | None
    interruption: LoopInterruption
    vocabulary: Mapping[str, Any] | None = None
    begin: Callable[[bool], None] | None = None
    keeper: BestKeeper | None = None
    identity: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    changes: str = ""  # in the settings, since the folder's weights were trained
    judged_after: int = 0  # evaluations up to this step don't count for the best weights

    def __post_init__(self):
        self.agreement = LoopAgreement()
        self.watch = SpikeWatch() if self.options.rollback else None
        keep = self.options.keep_checkpoint_max
        evaluating = self.options.eval_steps if self.evaluate else 0
        every = [n for n in (self.options.save_checkpoints_steps, evaluating) if n]
        self.ahead = tf.Variable(0, trainable=False, dtype=tf.int64)
        watched = {LOSS_WINDOW: self.watch.losses} if self.watch else {}
        if self.watch or read_rollbacks(self.directory):
            watched[AHEAD] = self.ahead
        self.state = RunState(
            *(self.directory, self.train_step, keep, self.vocabulary, watched),
            every=every if self.watch else (),
        )

    def identify(
        self, identity: Mapping[str, Any], judged_by: Mapping[str, Any], last_step: int
    ) -> None:
        """Compares the settings with those that the folder's weights were trained with."""
        step = run_folder.latest_run_step(self.directory)
        earlier = run_identity.read_identity(self.directory) if step else {}
        planned = max(earlier.pop(_STEPS, last_step), step)
        finished = step >= min(last_step, planned)
        before = earlier.pop(_JUDGED_BY, {})
        self.changes = run_identity.identity_differences(earlier, identity)
        judged_otherwise = run_identity.identity_differences(before, judged_by)
        if judged_otherwise and self.options.best_metric:
            self.changes = "; ".join(filter(None, (self.changes, judged_otherwise)))
            self._refuse_changes(step)
        if judged_otherwise:
            # Evaluations of both are in the run's history: none may choose by it any more.
            judged_by = dict.fromkeys((*before, *judged_by), "several")
        changes = self.changes
        if step > 0 and planned != last_step and min(step, last_step) < planned:
            # The learning rate was to fall to its end at another one.
            steps = f"{_STEPS} was {planned} and is {last_step} now"
            changes = f"{changes}; {steps}" if changes else steps
        if last_step < planned and last_step <= step:
            self.changes = changes
        if finished:
            self._refuse_changes(step)
        if changes:
            logging.warning(
                "The run in %s goes on from step %d with other settings: %s.",
                self.directory,
                step,
                changes,
            )
        if identity:
            self.identity = {**identity, _STEPS: last_step, _JUDGED_BY: {**before, **judged_by}}

    def _refuse_changes(self, step: int) -> None:
        """Weights of other settings mustn't pass for what this command was to train."""
        if self.changes:
            raise ModelingError(
                f"The run in {self.directory} has come to step {step}, but it was trained "
                f"with other settings: {self.changes}. Give another --output_dir, or "
                f"--overwrite_output_dir to train anew in this one; without --do_train its "
                f"weights are taken as they are."
            )

    def is_to_leave(self) -> bool:
        """Whether some worker was told to stop; every worker waits here for the others."""
        return self.agreement.reach(self.interruption.wanted, False, 1.0)[0]

    def through(self, stages, init_checkpoint, summary) -> int:
        """Trains through the stages that are left; the step of the weights to go on with."""
        step = run_folder.latest_run_step(self.directory)
        first_step = 0
        self.reporter.work = functools.partial(_places, stages)
        for number, stage in enumerate(stages):
            if step < stage.last_step or stage is stages[-1]:
                if len(stages) > 1:
                    logging.info(
                        "Stage %d of %d, steps %d to %d: %s",
                        number + 1,
                        len(stages),
                        first_step,
                        stage.last_step,
                        stage.data_id.splitlines()[-1],
                    )
                iterator = self._take_up(stage, first_step, step)
                stopped = stage is stages[-1] and self._has_stopped_early(first_step, step)
                if stopped:
                    self._refuse_changes(step)
                self._start(init_checkpoint, summary, step < stage.last_step and not stopped)
                if self.state.iterator is not None:
                    self._catch_up(iterator, first_step)
                if stage is stages[-1] and self.options.best_metric:
                    self._keep_best(first_step)
                self._train(stage, first_step, iterator)
                step = int(self.train_step.global_step.numpy())
            first_step = stage.last_step
        return self._best(step)

    def _take_up(self, stage: RunStage, first_step: int, step: int):
        done, rollbacks = max(step - first_step, 0), read_rollbacks(self.directory)
        ahead = batches_ahead(rollbacks, first_step, step)
        iterator, can_be_saved = make_iterator(stage.make_dataset(), done + ahead)
        if can_be_saved and step == first_step:
            # Elsewhere the iterator is brought to its place by a checkpoint.
            skip_batches(iterator, ahead)
        # Where a checkpoint doesn't tell.
        self.ahead.assign(batches_ahead(rollbacks, first_step, step, saved=True))
        place = stage.data_id, first_step, stage.former_data_id
        self.state.change_data(iterator if can_be_saved else None, *place)
        self.reporter.batch_size = stage.batch_size
        return iterator

    def _catch_up(self, iterator, first_step: int) -> None:
        """Goes past what rollbacks to this checkpoint have left out since it was written."""
        step = int(self.train_step.global_step.numpy())
        ahead = batches_ahead(read_rollbacks(self.directory), first_step, step)
        if step > first_step:
            skip_batches(iterator, ahead - int(self.ahead.numpy()))
        self.ahead.assign(ahead)

    def _start(self, init_checkpoint, summary, trains: bool) -> None:
        if self.state.saved_step >= 0:
            return
        start_or_resume(self.state, self.reporter, init_checkpoint)
        if is_chief():
            # Not before: a refused command mustn't change what the folder says of its weights.
            if self.identity:
                run_identity.write_identity(self.directory, self.identity)
            run_folder.forget_run(self.directory)
            has_weights = bool(run_folder.run_checkpoint_steps(self.directory))
            forget_later_rollbacks(self.directory, self.state.saved_step if has_weights else -1)
        if self.begin:
            self.begin(trains)
        self.reporter.peak_flops = peak_flops()
        if summary:
            summary.attach(
                model=self.train_step.model, train_step=self.train_step, reporter=self.reporter
            )

    def _history(self, first_step: int) -> list[tuple[int, float]]:
        """The evaluations that the best weights are chosen by."""
        curve = self.reporter.curve("eval", self.options.best_metric)
        return [(step, value) for step, value in curve if step > first_step]

    def _has_stopped_early(self, first_step: int, step: int) -> bool:
        """Whether the folder's run has, at the step that it stands at."""
        metric, patience = self.options.best_metric, self.options.early_stopping_patience
        history = self._history(first_step) if metric else []
        return has_stopped_early(metric, patience, [each for each in history if each[0] <= step])

    def _keep_best(self, first_step: int) -> None:
        metric = self.options.best_metric
        if first_step:
            logging.info(
                "The best %s is chosen among evaluations after step %d.", metric, first_step
            )
        self.judged_after = first_step
        self.keeper = BestKeeper(
            self.directory,
            metric,
            self.options.early_stopping_patience,
            history=self._history(first_step),
            vocabulary=self.vocabulary,
        )

    def _train(self, stage: RunStage, first_step: int, iterator) -> None:
        if self.keeper and self.keeper.should_stop:
            logging.info("This run has stopped early already.")
            return
        if self.watch and int(self.train_step.global_step.numpy()) == first_step:
            self.watch.forget()
        try:
            train_steps(
                self.train_step,
                iterator,
                self.state,
                self.reporter,
                stage.last_step,
                self.options,
                evaluate=self._evaluate_and_judge if self.evaluate else None,
                describe_examples=stage.describe_examples,
                watch=self.watch,
                interruption=self.interruption,
                agreement=self.agreement,
            )
        except DivergedError as error:
            if not self.watch:
                raise
            self.watch.forget()  # where a checkpoint doesn't tell
            iterator = roll_back(error, stage, first_step, self.state, self.reporter)
            if self.keeper:
                self._keep_best(self.judged_after)
            self._train(stage, first_step, iterator)

    def _evaluate_and_judge(self, step: int) -> bool:
        results = self.evaluate(step)
        if not self.keeper or step <= self.judged_after:
            return False
        return self.keeper.update(step, results, self.train_step.model)

    def _best(self, step: int) -> int:
        if not self.keeper:
            # There was nothing to train, or the last checkpoint would be named there.
            best = ended_with_best(self.directory)
            return load_best(self.train_step.model, self.directory) if best else step
        if step not in self.reporter.steps("eval"):
            self._evaluate_and_judge(step)
        if self.keeper.best is None:
            logging.warning(
                "No evaluation gave %s a finite value, so there are no best weights by it; those "
                "of step %d, the last, are taken.",
                self.options.best_metric,
                step,
            )
            return step
        # The chief writes what the others are going to read.
        if self.is_to_leave():
            leave_training_loop(step, self.interruption)
        best = load_best(self.train_step.model, self.directory)
        if is_chief():
            end_with_best(self.directory)
        return best


def _places(stages: Sequence[RunStage], step: int) -> float:
    """How many places of input the steps up to one have: about what they cost."""
    total, first = 0, 0
    for stage in stages:
        steps = min(step, stage.last_step) - first
        total += max(steps, 0) * stage.batch_size * stage.length
        first = stage.last_step
    return float(total)


def check_run_options(options: LoopOptions) -> None:
    """Raises ModelingError for options that contradict each other."""
    if options.best_metric and not options.eval_steps:
        raise ModelingError(
            f"--best_metric={options.best_metric} needs evaluations to choose by: give "
            f"--eval_steps."
        )
    if options.early_stopping_patience and not options.best_metric:
        raise ModelingError(
            "--early_stopping_patience needs --best_metric, the result that has to get better."
        )
