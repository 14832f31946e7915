"""The training loop that all scripts share."""

import contextlib
import dataclasses
import math
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints import weights_by_name
from modeling.errors import DivergedError, ModelingError
from modeling.logs import activity
from modeling.training.engine import distribution
from modeling.training.engine.step import TrainStep

# No more than about this long between looking up from the steps: to print, or to stop when told.
CHUNK_SECONDS = 5.0
REPORT_SECONDS = 60.0
EXIT_CODES = {number: 128 + number for number in (signal.SIGINT, signal.SIGTERM)}
"""How a run ends that was told to stop: as shells report a death by the signal, 130 or 143."""

_END = b"\0"  # no signal's number


class LoopInterruption:
    """Turns SIGTERM and SIGINT into a wish to stop after the steps under way, and says so at once.

    A second signal stops at once, as it would have done without this. Outside of the main thread
    signals aren't heard, since Python hears them only there.

    Attributes:
        number: Of the signal that came; None: none has.
    """

    def __init__(self):
        self.number: int | None = None
        self._previous = {}  # the handlers whose place ours have taken

    @property
    def wanted(self) -> bool:
        """Whether a signal has come."""
        return self.number is not None

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            return self
        # Python runs handlers between its own instructions, so not while a call to the device
        # lasts. The number of a signal is in this pipe at once, and a thread can tell of it.
        self._heard, self._sent = os.pipe()
        os.set_blocking(self._sent, False)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._previous_pipe = signal.set_wakeup_fd(self._sent, warn_on_full_buffer=False)
        for number in EXIT_CODES:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *unused):
        if threading.current_thread() is not threading.main_thread():
            return
        self._give_back_handlers()
        signal.set_wakeup_fd(self._previous_pipe)
        os.write(self._sent, _END)
        self._listener.join()
        os.close(self._sent)
        os.close(self._heard)

    def _handle(self, number, frame):
        self.number = self.number or number
        self._give_back_handlers()

    def _give_back_handlers(self):
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _listen(self):
        told = False
        while (byte := os.read(self._heard, 1)) != _END:
            number = byte[0]
            if number not in EXIT_CODES:
                continue
            if not told:
                told = True
                self.number = self.number or number
                logging.info("Signal %d: stopping after the steps under way and saving.", number)
            elif self._previous:
                # The first one's handler still waits for a call to end, so this one's does too.
                os._exit(EXIT_CODES[number])


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """When a run saves, reports, evaluates and stops: the flags of these names.

    Attributes:
        save_checkpoints_steps: Steps between checkpoints.
        save_checkpoints_minutes: Most minutes between checkpoints; 0 for no limit.
        keep_checkpoint_max: Checkpoints that stay; 0 for all.
        iterations_per_loop: Most steps in one call to TensorFlow.
        log_steps: Steps between status lines.
        eval_steps: Steps between evaluations, the last step included where it is a multiple; 0
            for none.
        best_metric: Result of the evaluations by which the best weights are kept; None: the last
            weights count. Of a run with several stages, only evaluations of the last one count:
            those before may be on other data, and no earlier weights are what the run is for.
        early_stopping_patience: See `BestKeeper`; in the last stage too.
        rollback: Whether to go on from a checkpoint where the run diverges, see `runs.rollback`.
    """

    save_checkpoints_steps: int
    save_checkpoints_minutes: float = 0.0
    keep_checkpoint_max: int = 5
    iterations_per_loop: int = 1000
    log_steps: int = 100
    eval_steps: int = 0
    best_metric: str | None = None
    early_stopping_patience: int = 0
    rollback: bool = False


def train_steps(
    train_step: TrainStep,
    iterator,
    run_state,
    reporter,
    num_train_steps: int,
    options: LoopOptions,
    *,
    evaluate: Callable[[int], bool | None] | None = None,
    describe_examples: Callable[[np.ndarray], str] | None = None,
    watch: Callable[[int, Mapping[str, Sequence]], None] | None = None,
    interruption: "LoopInterruption | None" = None,
    agreement: "LoopAgreement | None" = None,
) -> bool:
    """Trains until `num_train_steps` updates are done, counting those of a resumed run.

    Args:
        train_step: The compiled step.
        iterator: Endless training batches.
        run_state: A `runs.run_state.RunState`. Saves when the options say so, before evaluations
            (which may take longer than a machine leaves between telling to stop and stopping), at
            the end, and when told to stop.
        reporter: A `runs.reporting.Reporter`. Gets every step; reports when the options say so,
            or after a minute.
        num_train_steps: Total number of updates.
        options: When to do what.
        evaluate: From a step to whether to stop training here.
        describe_examples: Says in words which examples the `example_ids` of a batch are.
        watch: Gets the first step and the history of each call, and may raise.
        interruption, agreement: Of the caller, if that heeds signals already.

    Returns:
        Whether `evaluate` stopped it early.

    Raises:
        DivergedError: The loss is not finite, or `watch` says so.
        SystemExit: After SIGTERM or SIGINT, when the run has been saved; see `leave_training_loop`.
    """
    step = int(train_step.global_step.numpy())
    start = _starting_point(train_step.model) if step == 0 else ""
    eval_steps = options.eval_steps if evaluate else 0
    every = [n for n in (options.save_checkpoints_steps, options.log_steps, eval_steps) if n]
    agreement = agreement or LoopAgreement()
    pace = 1.0  # steps in a call, grown until a call takes CHUNK_SECONDS
    stop_early = interrupted = False
    first = True
    saved_at = time.monotonic()
    heeding = contextlib.nullcontext(interruption) if interruption else LoopInterruption()
    with heeding as interruption:
        if eval_steps and step and step % eval_steps == 0 and step not in reporter.steps("eval"):
            # A run may have been stopped between saving and evaluating.
            stop_early = bool(evaluate(step))
        if step >= num_train_steps:
            logging.info(
                "Nothing to train: the run is at step %d and --num_train_steps is %d.",
                step,
                num_train_steps,
            )
        reporter.start_clock()
        while step < num_train_steps and not stop_early and not interrupted:
            to_event = min(n - step % n for n in every)
            chunk = min(
                to_event, num_train_steps - step, options.iterations_per_loop, max(1, int(pace))
            )
            before = reporter.seconds
            compiling = first and activity("Compiling the training step")
            with compiling or contextlib.nullcontext():
                history = train_step.run(iterator, chunk)
            first = False
            taken = max(reporter.seconds - before, 1e-6)
            pace = min(2 * pace, CHUNK_SECONDS * chunk / taken) if chunk >= int(pace) else pace
            try:
                _check_finite(history, step, train_step, run_state, describe_examples, start)
            except DivergedError as error:
                if watch:
                    # A jump before it is what went wrong, however long this call was.
                    watch(step, {"loss": history["loss"][: error.step - step]})
                raise
            if watch:
                watch(step, history)
            step += chunk
            reporter.add(history)
            minutes = (time.monotonic() - saved_at) / 60
            late = 0 < options.save_checkpoints_minutes <= minutes
            interrupted, late, pace = agreement.reach(interruption.wanted, late, pace)
            done = step == num_train_steps
            evaluating = eval_steps > 0 and step % eval_steps == 0
            due = step % options.save_checkpoints_steps == 0
            saving = due or evaluating or done or interrupted or late
            # Also before what takes time of its own, so that speeds are those of the steps.
            unheard = reporter.seconds > REPORT_SECONDS
            if step % options.log_steps == 0 or saving or unheard:
                reporter.report(step)
            if saving:
                with activity(f"Saving the checkpoint of step {step}"):
                    prefix = run_state.save()
                if distribution.is_chief():
                    logging.info("Saved %s", prefix)
                saved_at = time.monotonic()
            if evaluating and not interrupted:
                stop_early = bool(evaluate(step))
                # The wish to stop may have come during the evaluation.
                interrupted, _, _ = agreement.reach(interruption.wanted, False, pace)
            if saving:
                reporter.start_clock()
    if interrupted:
        reporter.close()
        leave_training_loop(step, interruption)
    return stop_early


def leave_training_loop(step: int, interruption: LoopInterruption) -> NoReturn:
    """Ends the process, saying how the run can go on.

    The exit code is of `EXIT_CODES`: no success, so that what waits for the run's end in a command
    line doesn't go on. A worker that stops because another one was told to ends as by SIGTERM.

    Args:
        step: Where the run stands.
        interruption: Knows the signal, if this process got one.

    Raises:
        SystemExit: Always.
    """
    command = shlex.join([sys.executable, *sys.argv])
    logging.info("Stopped at step %d. To go on: %s", step, command)
    number = interruption.number
    sys.exit(EXIT_CODES[number or signal.SIGTERM])


class LoopAgreement:
    """Several workers have to stop, save and count alike, though only one may get a signal.

    Made in the strategy's scope, by every worker.
    """

    def __init__(self):
        strategy = tf.distribute.get_strategy()
        self._strategy = strategy if distribution.num_workers() > 1 else None
        self._sum = tf.function(self._sum_over_replicas, autograph=False)

    def reach(self, stop: bool, save: bool, pace: float) -> tuple[bool, bool, float]:
        """Whether any worker wants to stop, to save; and the mean pace of all.

        No worker gets past this before all have come here.
        """
        if self._strategy is None:
            return stop, save, pace
        sums = self._sum(tf.constant([float(stop), float(save), pace])).numpy()
        return sums[0] > 0, sums[1] > 0, float(sums[2]) / self._strategy.num_replicas_in_sync

    def _sum_over_replicas(self, values):
        def replica_sum(values):
            replica = tf.distribute.get_replica_context()
            # The argument is on no device yet; only here it gets the replica's.
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

        sums = self._strategy.run(replica_sum, args=(values,))
        return self._strategy.experimental_local_results(sums)[0]


def wait_for_workers() -> None:
    """No worker gets past this before all have come here; in the strategy's scope."""
    LoopAgreement().reach(False, False, 1.0)


def _starting_point(model) -> str:
    """What to look at if already the first loss isn't finite: the first update spoils the weights.

    Raises:
        ModelingError: A weight isn't finite, so no loss will be.
    """
    largest = {
        name: float(tf.reduce_max(tf.abs(tf.cast(weight.value, tf.float32))))
        for name, weight in weights_by_name(model).items()
    }
    bad = [name for name, value in largest.items() if not math.isfinite(value)]
    if bad:
        raise ModelingError(
            f"The weight {bad[0]} isn't finite before the first step. Look at --init_checkpoint, "
            f"or at initializer_range in the configuration."
        )
    name = max(largest, key=largest.get)
    config = model.config
    return (
        f"No weight had changed yet, so the learning rate isn't the reason. Look at the "
        f"configuration (layer_norm_eps is {config.layer_norm_eps:g}, initializer_range "
        f"{config.initializer_range:g}) and at the weights that training started from: the "
        f"largest number is {largest[name]:.3g}, in {name}, and hardly above 20 in released "
        f"models. If both are as they should be, look at --class_weights and the input records."
    )


def _check_finite(history, first_step, train_step, run_state, describe_examples, start) -> None:
    for offset, (loss, _) in enumerate(history["loss"]):
        rate = history["learning_rate"][offset][0]
        norm = history["gradient_norm"][offset][0]
        if "skipped_updates" in history and history["skipped_updates"][offset][0]:
            # No weight has changed, and the scale is halved: usual with float16. At a scale of 1
            # there is nothing left to lower.
            if history["loss_scale"][offset][0] > 1:
                continue
            norm = math.nan
        # A gradient that isn't finite spoils the weights although the loss was still fine.
        if not (math.isfinite(loss) and math.isfinite(norm)):
            examples = ""
            if describe_examples and train_step.example_ids is not None:
                described = describe_examples(train_step.example_ids[offset])
                examples = f" The batch held {described}."
            what = (
                f"The loss is {loss} at step {first_step + offset} (learning rate {rate:.3g}, "
                f"gradient norm {norm:.3g})."
            )
            if first_step + offset == 0:
                raise DivergedError(f"{what} {start}{examples}", 0)
            raise DivergedError(
                f"{what}{examples} {run_state.last_good} Lower the learning rate or lengthen the "
                f"warm-up, and look at the input records.",
                first_step + offset,
            )


def make_iterator(dataset: tf.data.Dataset, steps_done: int = 0):
    """Distributes a data set of batches (see `distribution.share_of_worker`).

    Returns:
        The iterator, and whether it can be saved.

    A distributed iterator can't be saved. As the order of the data is a function of the seed,
    it is brought to its place by going past the batches of the `steps_done` steps instead: of
    several workers each takes one for each of its replicas.
    """
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return iter(dataset), True
    if steps_done:
        logging.info("Going past the %d batches that this run has seen.", steps_done)
    batches = steps_done * distribution.batches_per_step()
    return iter(distribution.distribute_dataset(dataset.skip(batches))), False
