"""The frame of a script's work: folder, seed, devices, number format, summary.

with session(values, [values.train_batch_size]) as summary:
    ...
"""

import contextlib
import os
from collections.abc import Iterable, Iterator

import keras

from modeling.errors import ModelingError
from modeling.training import settings
from modeling.training.engine import distribution, precision
from modeling.training.engine.loop import wait_for_workers
from modeling.training.given_student import take_student
from modeling.training.runs import run_folder
from modeling.training.runs.summary import RunSummary, given_run_flags


def run_outputs(
    values, release: bool = False
) -> tuple[dict[str, str], dict[str, list[str]], tuple[str, int]]:
    """Where a script writes: what `data.files.locks.one_run` asks for.

    Args:
        values: The script's flag values.
        release: Whether it leaves its weights as a release in the output folder.

    Returns:
        Flag → folder; flag → files there that a run may replace; and the processes that write
        together, see `distribution.team_of_workers`.
    """
    folders = {"output_dir": values.output_dir}
    if values.do_export:
        folders["export_dir"] = values.export_dir or os.path.join(values.output_dir, "export")
    replaced = run_folder.written_files(values.output_dir)
    # In a folder with checkpoints what lies there is of an earlier session of the same run.
    if release and not run_folder.run_checkpoint_steps(values.output_dir):
        names = ("bert_config.json", "bert_model.ckpt.index")
        replaced += [os.path.join(values.output_dir, name) for name in names]
    return folders, {"output_dir": replaced}, distribution.team_of_workers(values)


@contextlib.contextmanager
def session(
    values, train_batch_sizes: Iterable[int] = (), *, parts: bool = False, **batch_sizes: int
) -> Iterator[RunSummary]:
    """Within it everything happens in the strategy's scope; at its end the summary is written.

    Args:
        values: The script's flag values, of the flags that `training.flags` and
            `engine.flags` define.
        train_batch_sizes: Those that will be trained with.
        parts: See `settings.make_strategy`.
        batch_sizes: Others, by the names of their flags.

    Raises:
        ModelingError: The output folder can't be written, there are no such devices, or a batch
            can't be divided among them.
    """
    if values.overwrite_output_dir and not values.do_train:
        raise ModelingError(
            "--overwrite_output_dir would remove trained weights and put none in their place; it "
            "goes with --do_train."
        )
    inside = os.path.join(os.path.realpath(values.output_dir), "")
    paths = [(n, values[n].value) for n in ("init_checkpoint", "bert_config_file", "vocab_file")]
    paths += [("teacher", path) for path in (values.teacher if "teacher" in values else ())]
    for name, path in paths:
        place = os.path.join(os.path.realpath(path or ""), "")
        if values.overwrite_output_dir and path and place.startswith(inside):
            raise ModelingError(
                f"--{name}={path} lies in the output folder, whose earlier run "
                f"--overwrite_output_dir replaces. Move it, or choose another --output_dir."
            )
    # Before several workers join: one of them that fails here must not leave the others waiting.
    run_folder.prepare_run_folder(values.output_dir)
    keras.utils.set_random_seed(values.random_seed)
    strategy = settings.make_strategy(values, parts)
    precision.set_precision(values.dtype)
    summary = RunSummary(values.output_dir, flags=given_run_flags(values))
    with strategy.scope(), _replacing(values), summary:
        for size in train_batch_sizes:
            distribution.check_replica_batch_sizes(
                values.gradient_accumulation_steps, size, **batch_sizes
            )
        yield summary


@contextlib.contextmanager
def task_session(
    values, given: settings.FineTuningSettings
) -> Iterator[tuple[settings.FineTuningSettings, RunSummary]]:
    """`session` of a script that fine-tunes, from a student where its flags ask for one.

    Args:
        values: The script's flag values; those of `define_student_flags` may be absent.
        given: What `fine_tuning_settings` made of them.

    Yields:
        The settings, which are the student's if there is one, and the summary.

    Raises:
        ModelingError: See `session` and `take_student`.
    """
    sizes = [trial.batch_size for trial in given.trials]
    evaluations = {"predict_batch_size": values.predict_batch_size}
    if given.evaluating:
        evaluations["eval_batch_size"] = values.eval_batch_size
    with session(values, sizes, **evaluations) as summary:
        if "student_layers" in values and take_student(values):
            given = settings.fine_tuning_settings(values)
        yield given, summary


@contextlib.contextmanager
def _replacing(values) -> Iterator[None]:
    """What an earlier run has written is out of the way for --overwrite_output_dir.

    It comes back if this one is refused before it stands, see `run_folder.set_run_aside`.
    """
    folder, chief = values.output_dir, distribution.is_chief()
    if chief:
        run_folder.restore_run(folder)  # of one that was killed
    if values.overwrite_output_dir:
        if chief:
            run_folder.set_run_aside(folder)
        # The other workers mustn't see what is about to go.
        wait_for_workers()
    try:
        yield
    except BaseException:
        if chief:
            run_folder.restore_run(folder)
        raise
