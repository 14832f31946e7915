"""How a model reads and answers, by its training's flags: kept beside its weights, taken in use.

    reading.json    {"max_seq_length": 64, "long_text": "windows", …}: flags and their values

Evaluation, prediction and export from a trained folder go by it unless a flag says otherwise.
(The original took its defaults: a model trained with 384 pieces was asked with 128.)
"""

import json
from typing import Any

import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import (
    READING_FILE,
    folders_of_checkpoint,
    join,
    staged,
    write_staged_text,
)
from modeling.checkpoints.heads import HEAD_WEIGHTS
from modeling.checkpoints.loading import find, open_contents
from modeling.errors import ModelingError
from modeling.training.runs import run_folder

# Of the scripts together; what else belongs to the labels lies in labels.json.
READING_FLAGS = (
    "max_seq_length", "long_text", "window_stride", "max_windows", "window_pooling", "doc_stride",
    "max_query_length", "max_answer_length", "document_context", "version_2_with_negative",
    "bilstm", "feature_layers",
)  # fmt: skip
_LOST = (
    "so that nobody can tell how the model's texts were read in training. Copy it again; or remove "
    f"it, and give the flags that training had, as far as the script has them: "
    f"{', '.join(f'--{name}' for name in READING_FLAGS)}."
)


def reading_flags(values) -> dict[str, Any]:
    """The flags among `values` that say how texts are read."""
    return {name: values[name].value for name in READING_FLAGS if name in values}


def keep_reading_flags(directory: str, reading: dict[str, Any]) -> None:
    """Says from now on how the texts of the weights in an output folder are read."""
    with staged(directory) as temporary:
        write_staged_text(join(temporary, READING_FILE), json.dumps(reading, indent=1) + "\n")


def kept_reading_flags(path: str) -> dict[str, Any]:
    """How the texts of a checkpoint were read in training; {} if nothing beside it tells.

    Raises:
        ModelingError: There is no checkpoint, or the file is damaged.
    """
    for folder in folders_of_checkpoint(find(path)[1]):
        file = join(folder, READING_FILE)
        if tf.io.gfile.exists(file):
            return run_folder.read_run_file(file, _LOST)
    return {}


def take_reading_flags(values) -> None:
    """Reads texts as those that the weights were trained with, where no flag says otherwise.

    The folder of --init_checkpoint tells, or else the output folder. A script that trains goes by
    its flags alone.

    Args:
        values: A script's flag values; those of the kept flags are changed.

    Raises:
        ModelingError: The file is damaged.
    """
    if values.do_train:
        return
    folders = [values.output_dir]
    # Of a frozen encoder's checkpoint the text settings aren't the tagger's.
    frozen = "feature_based" in values and values.feature_based
    if values.init_checkpoint and not frozen:
        initial = folders_of_checkpoint(find(values.init_checkpoint)[1])
        # As `run_state.load_trained_run` chooses weights.
        trained = run_folder.latest_run_checkpoint(values.output_dir, to_train=False)
        if not trained:
            folders = initial
        elif _has_head_of(values.init_checkpoint, trained):
            folders = [*initial, *folders]
    for path in (join(folder, READING_FILE) for folder in folders):
        if tf.io.gfile.exists(path):
            _take(values, run_folder.read_run_file(path, _LOST), path)
            return


def _has_head_of(initial: str, trained: str) -> bool:
    given, own = (open_contents(path).shapes for path in (initial, trained))
    return all(name in given for name in HEAD_WEIGHTS if name in own)


def _take(values, kept: dict[str, Any], path: str) -> None:
    taken = []
    for name in READING_FLAGS:
        if name not in values or name not in kept or kept[name] == values[name].value:
            continue
        if values[name].present:
            logging.warning(
                "--%s=%s, but the model was trained with %s (%s): it reads or answers otherwise "
                "than in training.",
                name,
                values[name].value,
                kept[name],
                path,
            )
            continue
        try:
            values[name].value = values[name].parser.parse(str(kept[name]))
        except ValueError as error:
            problem = f"{name} is {kept[name]!r}: {error}"
            raise ModelingError(f"{path} is damaged ({problem}), {_LOST}") from error
        taken.append(f"--{name}={values[name].value}")
    if taken:
        logging.info("As in training, by %s: %s.", path, " ".join(taken))
