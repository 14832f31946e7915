"""The training loop that all scripts share."""

import math
import signal
import sys
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from modeling.errors import ModelingError
from modeling.training.reporting import Reporter
from modeling.training.run_state import RunState
from modeling.training.step import TrainStep

# No more than about this long between looking up from the steps: to print, or to stop when told.
CHUNK_SECONDS = 5.0
REPORT_SECONDS = 60.0


class Interruption:
    """Turns SIGTERM and SIGINT into a wish to stop after the steps under way.

    A second signal stops at once, as it would have done without this.
    """

    def __init__(self):
        self.wanted = False
        self._previous = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *unused):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        self.wanted = True
        signal.signal(number, self._previous[number])
        logging.info("Signal %d: stopping after the steps under way and saving.", number)


def train(
    train_step: TrainStep,
    iterator,
    run_state: RunState,
    reporter: Reporter,
    *,
    num_train_steps: int,
    save_checkpoints_steps: int,
    steps_per_call: int,
    log_steps: int = 100,
    eval_steps: int = 0,
    evaluate: Callable[[int], None] | None = None,
) -> None:
    """Trains until `num_train_steps` updates are done, counting those of a resumed run.

    Args:
        train_step: The compiled step.
        iterator: Endless training batches.
        run_state: Saves every `save_checkpoints_steps`, at the end, and when told to stop.
        reporter: Gets every step; reports every `log_steps`, or after a minute.
        num_train_steps: Total number of updates.
        save_checkpoints_steps: Steps between checkpoints.
        steps_per_call: Most steps in one call to TensorFlow.
        log_steps: Steps between status lines.
        eval_steps: Steps between calls of `evaluate(step)`; 0 for none.

    Raises:
        ModelingError: The loss is not finite.
        SystemExit: With code 0, after SIGTERM or SIGINT, when the run has been saved.
    """
    step = int(train_step.global_step.numpy())
    if step >= num_train_steps:
        logging.info(
            "Nothing to train: the run is at step %d and --num_train_steps is %d.",
            step,
            num_train_steps,
        )
        return
    every = [n for n in (save_checkpoints_steps, log_steps, eval_steps if evaluate else 0) if n]
    pace = 1.0  # steps in a call, grown until a call takes CHUNK_SECONDS
    reporter.start_clock()
    with Interruption() as interruption:
        while step < num_train_steps and not interruption.wanted:
            to_event = min(n - step % n for n in every)
            chunk = min(to_event, num_train_steps - step, steps_per_call, max(1, int(pace)))
            before = reporter.seconds
            history = train_step.run(iterator, chunk)
            taken = max(reporter.seconds - before, 1e-6)
            pace = min(2 * pace, CHUNK_SECONDS * chunk / taken) if chunk >= int(pace) else pace
            _check_finite(history, step, run_state)
            step += chunk
            reporter.add(history)
            done = step == num_train_steps
            saving = step % save_checkpoints_steps == 0 or done or interruption.wanted
            evaluating = bool(evaluate and eval_steps and step % eval_steps == 0 and not done)
            # Also before what takes time of its own, so that speeds are those of the steps.
            late = reporter.seconds > REPORT_SECONDS
            if step % log_steps == 0 or saving or evaluating or late:
                reporter.report(step)
            if saving:
                logging.info("Saved %s", run_state.save())
            if evaluating:
                evaluate(step)
            if saving or evaluating:
                reporter.start_clock()
    if step < num_train_steps:
        run_state.save()  # the wish to stop may have come during an evaluation
        logging.info(
            "Stopped at step %d of %d. To go on: %s", step, num_train_steps, " ".join(sys.argv)
        )
        sys.exit(0)


def _check_finite(history, first_step: int, run_state: RunState) -> None:
    for offset, (loss, _) in enumerate(history["loss"]):
        rate = history["learning_rate"][offset][0]
        norm = history["gradient_norm"][offset][0]
        # A gradient that isn't finite spoils the weights although the loss was still fine.
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ModelingError(
                f"The loss is {loss} at step {first_step + offset} (learning rate {rate:.3g}, "
                f"gradient norm {norm:.3g}). The last good checkpoint, "
                f"step {max(run_state.saved_step, 0)}, is kept in {run_state.directory}. Lower "
                f"the learning rate or lengthen the warm-up, and look at the input records."
            )


def make_iterator(dataset: tf.data.Dataset, steps_done: int = 0):
    """Distributes a data set of global batches; the iterator, and whether it can be saved.

    A distributed iterator can't be saved. As the order of the data is a function of the seed,
    it is brought to its place by going past the batches of the `steps_done` steps instead.
    """
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync == 1:
        return iter(dataset), True
    if steps_done:
        logging.info("Going past the %d batches that this run has seen.", steps_done)
    return iter(strategy.experimental_distribute_dataset(dataset.skip(steps_done))), False
