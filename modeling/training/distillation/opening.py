"""A command's teachers: opened, and compared with what the student reads.

teaching = open_teaching(task, settings, train_splits, from_pretrained)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from modeling import checkpoints
from modeling.checkpoints.vocabularies import TextFolding
from modeling.errors import ModelingError
from modeling.training.distillation.teaching import TeacherModel, Teaching, check_teacher_lengths
from modeling.training.reading_flags import kept_reading_flags
from modeling.training.settings import FineTuningSettings
from modeling.training.task import Task, TrainingTaskSplit

_BESIDES = ("bilstm/", "second_bert/")
"""Beginnings of the names of weights that models have besides BERT's and a head's."""


def open_teaching(
    task: Task,
    settings: FineTuningSettings,
    train: Sequence[TrainingTaskSplit],
    open_teacher: Callable[[str], TeacherModel] | None,
) -> Teaching | None:
    """The teachers of a command, if there are any; call it in the strategy's scope.

    Args:
        task: The student's.
        settings: What the command is told.
        train: What is trained on.
        open_teacher: From a path to the model there; None where a script doesn't say.

    Raises:
        ModelingError: A teacher can't be opened, or doesn't fit the task; see `Teaching`.
    """
    told = settings.teaching
    if not told.teacher:
        return None
    if open_teacher is None:
        raise ModelingError("--teacher: this script doesn't say how teachers are opened.")
    teachers = [_open_teacher(path, open_teacher, settings.reading) for path in told.teacher]
    check_teacher_lengths(told, teachers, settings.max_seq_length)
    folding = TextFolding(settings.do_lower_case, settings.strip_accents)
    vocab_file, output_dir = settings.vocab_file, settings.output_dir
    return Teaching(teachers, told, task, train, vocab_file, folding, output_dir)


def _open_teacher(path: str, open_teacher, reading: Mapping[str, Any]) -> TeacherModel:
    """A teacher, which reads the student's rows; what it was trained with is told if it differs."""
    shapes = checkpoints.open_contents(path).shapes
    own = next((name for name in shapes if name.startswith(_BESIDES)), None)
    if own:
        raise ModelingError(
            f"--teacher={path} has the weight {own}, of a BiLSTM or a second encoder. Only models "
            f"without them can teach."
        )
    teacher = open_teacher(path)
    kept = kept_reading_flags(path)
    if hasattr(teacher.model, "row_pooling"):
        pooling = kept.get("window_pooling", reading.get("window_pooling"))
        teacher.model.row_pooling = pooling or teacher.model.row_pooling
    others = [n for n, value in reading.items() if kept.get(n, value) != value]
    if others:
        logging.warning(
            "The teacher %s was trained with %s. It reads the student's rows, which are made with "
            "%s.",
            path,
            " ".join(f"--{name}={kept[name]}" for name in others),
            " ".join(f"--{name}={reading[name]}" for name in others),
        )
    return teacher
