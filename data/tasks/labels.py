"""labels.json: what a trained head's outputs are called, kept beside its weights."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tensorflow as tf

from data.errors import DataError, doubled, error_list
from data.files import atomic
from data.files.text_files import read_text

FILE = "labels.json"
DEV_FRACTION = "dev_fraction"
"""Beside the labels: which share of the training file the model wasn't trained on."""
Form = TypeVar("Form")


def task_label_places(output_dir: str, init_checkpoint: str | None) -> list[str]:
    """Where the labels of the weights to be used may be: beside them, or in the output folder.

    Args:
        output_dir: Of the run.
        init_checkpoint: Weights that are loaded from elsewhere: a folder, or a checkpoint in one,
            or in the folder `best` of one.
    """
    folders = []
    if init_checkpoint:
        path = init_checkpoint.rstrip("/")
        # Never above a folder that was named: there, another model may lie.
        folders = [path if tf.io.gfile.isdir(path) else os.path.dirname(path)]
        folders += [os.path.dirname(f) for f in folders if os.path.basename(f) == "best"]
    return [os.path.join(folder, FILE) for folder in [*folders, output_dir]]


def find_labels(output_dir: str, init_checkpoint: str | None) -> str | None:
    """The first of the `task_label_places` that there is; None if there is none."""
    candidates = task_label_places(output_dir, init_checkpoint)
    return next((place for place in candidates if tf.io.gfile.exists(place)), None)


def read_labels(path: str, form: Callable[[Any], Form] = lambda content: content) -> Form:
    """What `keep_labels` wrote, in the form that a function makes of it.

    Raises:
        DataError: The file can't be read or isn't JSON, or `form` raises a ValueError, KeyError
            or TypeError.
    """
    text = read_text(
        path,
        "It is written beside a model when that is trained. Without it, give the labels or the"
        " --train_file.",
    )
    try:
        content = json.loads(text)
        return form(content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, KeyError) and isinstance(content, dict):
            raise DataError(
                f"{path} is of another kind of model, or damaged: it tells "
                f"{error_list(content)}, and no {error.args[0]}. Name a model that this script "
                f"has trained, or give --train_file."
            ) from error
        raise DataError(
            f"{path} doesn't hold labels as written beside a trained model "
            f"({type(error).__name__}: {error}); give the labels or the --train_file instead."
        ) from error


def task_label_strings(content: Any, name: str) -> tuple[str, ...]:
    """The list of different strings of that name; TypeError or ValueError if it's another."""
    names = content[name]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{name} has to be a list of strings")
    twice = doubled(names)
    if twice:
        raise ValueError(f"{twice[0]!r} stands there twice")
    return tuple(names)


def keep_labels(
    output_dir: str, content: Mapping[str, Any], write: bool, holds_model: bool
) -> None:
    """Writes labels beside the weights that will learn them, in a folder that has no others.

    Args:
        output_dir: The folder.
        content: What JSON can hold, "labels" among it.
        write: For the one process that does.
        holds_model: Whether some in the folder learns the labels that lie there. A command that
            was refused before its first step leaves labels alone, which bind nobody.

    Raises:
        DataError: The folder holds a model of other labels, or can't be written.
    """
    path = os.path.join(output_dir, FILE)
    if holds_model and tf.io.gfile.exists(path):
        earlier = read_labels(path)
        names = earlier.get("labels") if isinstance(earlier, dict) else None
        known = earlier.keys() - {DEV_FRACTION} if isinstance(earlier, dict) else ()
        # An older version didn't name the task.
        told = {key: value for key, value in content.items() if key in (*known, "labels")}
        if known and {key: earlier[key] for key in known} == json.loads(json.dumps(told)):
            return
        raise DataError(
            f"The model in {output_dir} was trained for the labels {_listed(names)} ({path}), and "
            f"the training set has {_listed(content['labels'])}. One head can't mean both: give "
            "another --output_dir, or --overwrite_output_dir to train anew in this one."
        )
    if write:
        atomic.write_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _listed(names: Any) -> str:
    return error_list(map(str, names)) if isinstance(names, list) and names else "(none)"
