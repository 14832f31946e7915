"""A run that diverges goes back to a checkpoint and leaves out the batches that it diverged on.

iterator = roll_back(error, stage, first_step, state, reporter)  # where training raised `error`

`rollbacks.json` in the output folder tells of each time, and how far the data are ahead of the
steps since then, so that a run that is interrupted goes on with the same batches.
"""

import collections
import json
import math
import statistics
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.errors import DivergedError
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.loop import make_iterator, wait_for_workers
from modeling.training.runs import run_folder
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_state import RunState

FILE = "rollbacks.json"
MOST = 3
"""Times that a run goes back; then something else is wrong than a few batches."""
LOSS_WINDOW = "loss_window"
"""Name of `SpikeWatch.losses` in checkpoints."""
AHEAD = "batches_ahead"
"""Name in checkpoints of how far the place in the data is ahead of the steps."""
MARGIN = 100
"""Batches that are left out behind the last bad one: what spoiled it may not be at its end."""
_BEFORE, _NOW = 100, 10
"""Steps whose losses are compared: so many before, and the newest."""


class SpikeWatch:
    """Raises when the loss has jumped: call it with the first step of a history, and that.

    It has where the median of the last ten steps is above that of the hundred before them by more
    than six times their spread: 1.48 times the median distance from the median, as the standard
    deviation of a normal distribution, and 0.05 at least.

    Attributes:
        losses: float32 [110], those of the newest steps in order, -1 where there are none yet. A
            part of every checkpoint, so that an interrupted run sees the same jumps.
    """

    def __init__(self):
        self.losses = tf.Variable(tf.fill([_BEFORE + _NOW], -1.0), trainable=False)

    def forget(self) -> None:
        """Begins anew: other data have other losses, which is no jump."""
        self.losses.assign(tf.fill([_BEFORE + _NOW], -1.0))

    def __call__(self, first_step: int, history: Mapping[str, Sequence]) -> None:
        """Raises DivergedError, with the first step whose loss was too high, if there is one."""
        losses = collections.deque(self.losses.numpy().tolist(), maxlen=_BEFORE + _NOW)
        for step, (loss, _) in enumerate(history["loss"], start=first_step):
            # float16 skips updates whose loss overflows; they are no news, and can't be saved.
            losses.append(loss if math.isfinite(loss) else losses[-1])
            if losses[0] >= 0:
                _check_jump(list(losses), step)
        self.losses.assign(losses)


def _check_jump(losses: Sequence[float], step: int) -> None:
    """Raises DivergedError if there is one in the losses, of which the last is of `step`."""
    before = losses[:_BEFORE]
    median, recent = statistics.median(before), statistics.median(losses[_BEFORE:])
    distance = statistics.median(abs(loss - median) for loss in before)
    spread = max(1.4826 * distance, 0.05)
    if recent <= median + 6 * spread:
        return
    high = [loss > median + 3 * spread for loss in losses]
    first = high.index(True, _BEFORE)
    while first and high[first - 1]:
        first -= 1
    begun = step + 1 - len(losses) + first
    raise DivergedError(
        f"The loss has jumped from {median:.4g} to {recent:.4g}, at step {begun}.", begun, step + 1
    )


def read_rollbacks(directory: str) -> list[dict[str, int]]:
    """How often a run has gone back: `step` from which, `to` which, and `batches_ahead` since.

    Raises:
        ModelingError: The file is damaged.
    """
    path = join(directory, FILE)
    if not tf.io.gfile.exists(path):
        return []
    return run_folder.read_run_file(
        path,
        "so that nobody knows which batches the run has left out. Copy it again; or remove it to "
        "go on with batches that it may have seen or left out.",
        ["rollbacks"],
    )["rollbacks"]


def batches_ahead(
    rollbacks: Sequence[Mapping[str, int]], first_step: int, step: int, saved: bool = False
) -> int:
    """How far a stage's data are ahead of its steps, when a run goes on from `step`.

    Args:
        rollbacks: Of the run, in order.
        first_step: Where the stage begins.
        step: Of the checkpoint.
        saved: How far they were when the checkpoint was written, before any rollback to it.
    """
    before = step if saved else step + 1
    ahead = [r["batches_ahead"] for r in rollbacks if first_step <= r["to"] < before]
    return ahead[-1] if ahead else 0


def forget_later_rollbacks(directory: str, step: int) -> None:
    """Drops rollbacks to steps that the folder's weights, of `step`, haven't come to."""
    done = read_rollbacks(directory)
    # One before another that the weights have seen they have seen, too.
    seen = [number for number, rollback in enumerate(done, 1) if rollback["to"] <= step]
    kept = done[: max(seen, default=0)]
    if kept != done:
        logging.warning(
            "%s tells of %d rollbacks that the weights of step %d haven't seen; they don't count.",
            join(directory, FILE),
            len(done) - len(kept),
            step,
        )
        _write_rollbacks(directory, kept)


def _write_rollbacks(directory: str, rollbacks: Sequence[Mapping[str, int]]) -> None:
    with staged(directory) as temporary:
        text = json.dumps({"rollbacks": [*rollbacks]}, indent=2) + "\n"
        write_staged_text(join(temporary, FILE), text)


def skip_batches(iterator, count: int) -> None:
    """Goes past so many batches of an iterator that can be saved."""
    for _ in range(count):
        next(iterator)


def roll_back(
    error: DivergedError,
    stage,
    first_step: int,
    state: RunState,
    reporter: Reporter,
):
    """Puts a run back to its newest checkpoint from before it diverged, and its data ahead.

    Args:
        error: Why, and since which step.
        stage: The `fit.RunStage` that it is in.
        first_step: Where that begins.
        state: Of the run. Checkpoints count of whose `every` they are multiples: others are left by
            a signal or after some minutes, and a run must not depend on them. It is put back.
        reporter: Of the run; forgets what came after the checkpoint.

    Returns:
        The iterator to go on with.

    Raises:
        DivergedError: It has gone back often enough, or there is no checkpoint to go back to.
    """
    directory, done = state.directory, read_rollbacks(state.directory)
    if len(done) >= MOST:
        raise DivergedError(
            f"{error} The run has gone back {len(done)} times already, so that single batches "
            f"aren't to blame. Lower the learning rate or lengthen the warm-up, and look at the "
            f"input records.",
            error.step,
            error.until,
        ) from error
    # A checkpoint right before the bad step may hold the weights that it is bad with, unless the
    # run has come back to it, or done no step of the stage yet: then other batches are to blame.
    returned = {rollback["to"] for rollback in done} | {first_step or -1}
    usable = [
        step
        for step in reversed(run_folder.run_checkpoint_steps(directory))
        if (first_step <= step < error.step or (step == error.step and step in returned))
        and (step == first_step or any(step % number == 0 for number in state.every))
    ]
    step = next((step for step in usable if run_folder.is_whole(directory, step)), None)
    wait_for_workers()  # the chief renames none that a worker still reads
    if step is None:
        raise DivergedError(
            f"{error} --rollback finds no checkpoint from before that: give a smaller "
            f"--save_checkpoints_steps, or a larger --keep_checkpoint_max.",
            error.step,
            error.until,
        ) from error
    if is_chief():
        run_folder.set_damaged_run_aside(directory, step)
    # The steps of a call to the device that came later don't count: how many they are is chance.
    seen = error.until - first_step + batches_ahead(done, first_step, error.until)
    iterator, can_be_saved = make_iterator(stage.make_dataset(), seen + MARGIN)
    place = stage.data_id, first_step, stage.former_data_id
    state.change_data(iterator if can_be_saved else None, *place)
    before = batches_ahead(done, first_step, step)
    # Where the checkpoint doesn't tell.
    state.watch[AHEAD].assign(batches_ahead(done, first_step, step, saved=True))
    for mean in state.train_step.optimizer.averaging_state().values():
        mean.assign(tf.zeros_like(mean))  # where a checkpoint has none
    state.restore(join(directory, f"model.ckpt-{step}"))
    ahead = seen + MARGIN - (step - first_step)
    logging.warning(
        "%s Going back to step %d, and %d batches are left out: time %d of at most %d.",
        error,
        step,
        ahead - before,
        len(done) + 1,
        MOST,
    )
    if can_be_saved:
        in_place = 0 if step == first_step else int(state.watch[AHEAD].numpy())
        skip_batches(iterator, ahead - in_place)
    # The checkpoint stays as it is, with its own place in the data: what a run that is killed now
    # has to skip from there, this tells.
    if is_chief():
        entry = {"step": error.until, "to": step, "batches_ahead": ahead}
        _write_rollbacks(directory, [*done, entry])
        state.name_checkpoints()  # no longer those set aside
    state.watch[AHEAD].assign(ahead)
    reporter.resume(step)
    return iterator
