"""A budget in place of a number of steps: so many minutes of training, or so many operations.

phases, num_warmup_steps, keep_budget = budgeted_phases(values, phases, make_step, datasets)

The steps are decided once, before the first one, so that the learning rate falls to its end there,
and the same steps can be asked for again by their number. `budget.json` in the output folder keeps
them for a run that goes on.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import logging

from modeling.checkpoints import weights_by_name
from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.errors import ModelingError
from modeling.logs import activity
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.loop import LoopAgreement, make_iterator
from modeling.training.engine.setup import EngineSettings
from modeling.training.engine.step import TrainStep
from modeling.training.phases import Phase
from modeling.training.runs.run_folder import latest_run_step, read_run_file
from modeling.training.settings import training_settings

FILE = "budget.json"
MEASURED_SHARE = 0.02
"""Of the minutes, for which steps are timed; of each phase at least `LEAST_SECONDS`."""
LEAST_SECONDS = 10.0


def budgeted_phases(
    values,
    phases: Sequence[Phase],
    make_step: Callable[[EngineSettings], TrainStep],
    datasets: Sequence[Callable[[], tf.data.Dataset]],
) -> tuple[list[Phase], int, Callable[[], None]]:
    """The phases of a run, its steps of warm-up and what keeps both, within --minutes or --flops.

    Steps of phases and warm-up keep their proportions and are made as many as the budget holds.
    What a step takes is seen in steps with a learning rate of 0, which change nothing. Minutes
    are those of training steps: compiling, evaluations and checkpoints come on top. Operations are
    those that `engine.flops` counts.

    Args:
        values: The script's flag values.
        phases: What the other flags mean.
        make_step: From settings to the step that trains with them, in the strategy's scope.
        datasets: For each phase its endless batches.

    Returns:
        Phases and warm-up as they are without a budget. What keeps them is to be called once the
        run stands: the plan of a command that is refused mustn't replace that of the folder's
        weights.

    Raises:
        ModelingError: A budget that holds less than a step of each phase, or a damaged file.
    """
    with_budget = values.minutes or values.flops
    if values.do_train and not with_budget:
        keep = functools.partial(_forget_plan, values.output_dir)
        return list(phases), values.num_warmup_steps, keep
    asked = {
        "minutes": values.minutes,
        "flops": values.flops,
        "phases": [dataclasses.asdict(phase) for phase in phases],
        "num_warmup_steps": values.num_warmup_steps,
    }
    plan = _kept_plan(values.output_dir)
    same = plan is not None and plan["asked"] == asked
    if plan and not with_budget:
        # Evaluations are of the phase that a step belongs to, whatever made its steps so many.
        same = plan["asked"]["phases"] == asked["phases"]
    if not same:
        if not values.do_train:
            return list(phases), values.num_warmup_steps, _keep_nothing
        settings = training_settings(values, num_train_steps=1)
        step = make_step(dataclasses.replace(settings, learning_rate=0.0))
        plan = {"asked": asked, **_new_plan(values, phases, step, datasets)}
        keep = functools.partial(_keep_plan, values.output_dir, plan)
    else:
        keep = _keep_nothing
        logging.info("The steps are those of %s.", join(values.output_dir, FILE))
    planned: list[Phase] = []
    for phase, steps in zip(phases, plan["steps"], strict=True):
        first = planned[-1].last_step if planned else 0
        planned.append(dataclasses.replace(phase, num_steps=steps, first_step=first))
    return planned, plan["num_warmup_steps"], keep


def _keep_nothing() -> None:
    """There is no plan, or it is kept."""


def _forget_plan(directory: str) -> None:
    """Of steps that are given evaluations mustn't take those of an earlier budget."""
    path = join(directory, FILE)
    if is_chief() and tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def _keep_plan(directory: str, plan: dict) -> None:
    if is_chief():
        with staged(directory) as temporary:
            write_staged_text(join(temporary, FILE), json.dumps(plan, indent=2) + "\n")


def _kept_plan(directory: str) -> dict | None:
    """That of the folder's weights; None without any, as another model may come now."""
    path = join(directory, FILE)
    if not latest_run_step(directory) or not tf.io.gfile.exists(path):
        return None
    return read_run_file(
        path,
        "so that nobody knows how many steps the run's budget holds. Copy it again; or remove it "
        "to have the budget divided anew.",
        ["asked", "steps", "num_warmup_steps"],
    )


def _new_plan(values, phases, step: TrainStep, datasets) -> dict:
    of_minutes = bool(values.minutes)
    seconds = max(LEAST_SECONDS, MEASURED_SHARE * 60 * values.minutes) if of_minutes else 0
    # A rate of 0 changes nothing, but where a gradient isn't finite.
    weights = [(w.value, w.value.numpy()) for w in weights_by_name(step.model).values()]
    with activity("Measuring what a step takes"):
        costs = [_step_cost(step, make_dataset, seconds) for make_dataset in datasets]
    for variable, value in weights:
        variable.assign(value)
    budget = 60 * values.minutes if of_minutes else values.flops
    factor = budget / sum(p.num_steps * cost for p, cost in zip(phases, costs, strict=True))
    capped = values.adapt and factor > 1.0  # a small corpus is gone over so often at most
    factor = 1.0 if capped else factor
    steps = [round(phase.num_steps * factor) for phase in phases]
    given = f"--minutes={values.minutes:g}" if of_minutes else f"--flops={values.flops:g}"
    shown = [f"{cost:.3g} {'s' if of_minutes else 'FLOPs'}" for cost in costs]
    if not all(steps):
        raise ModelingError(
            f"{given} holds {', '.join(map(str, steps))} steps, at {', '.join(shown)} each; every "
            f"phase needs one at least. Give more, or a smaller model or batch."
        )
    logging.info(
        "%s holds more than %s steps, at %s each; a text as short as this is gone over no further."
        if capped
        else "%s holds %s steps, at %s each.",
        given,
        " and ".join(f"{number:,}" for number in steps),
        " and ".join(shown),
    )
    return {"steps": steps, "num_warmup_steps": round(values.num_warmup_steps * factor)}


def _step_cost(step: TrainStep, make_dataset, seconds: float) -> float:
    """What a step takes on average: in seconds, timed for so many of them; or 0: in operations."""
    iterator, _ = make_iterator(make_dataset())
    history = step.run(iterator, 1)  # compiles
    if not seconds:
        return history["flops"][0][0]
    # All workers have to count alike, and to stop alike.
    agreement = LoopAgreement()
    done, chunk, start, taken = 0, 1, time.perf_counter(), 0.0
    while taken < seconds:
        step.run(iterator, chunk)
        done += chunk
        chunk = min(2 * chunk, 32)
        taken = agreement.reach(False, False, time.perf_counter() - start)[2]
    return taken / done
