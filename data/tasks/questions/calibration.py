"""answer_calibration.json: what makes probabilities of answers' odds, beside the weights."""

import json
import math
import os

import tensorflow as tf

from data.errors import DataError
from data.files.text_files import read_text
from data.tasks import labels
from data.tasks.questions.answers import write_squad_json

FILE = "answer_calibration.json"


def keep_calibration(output_dir: str, slope: float, intercept: float) -> None:
    """Writes the two numbers; DataError if the folder can't be written."""
    write_squad_json(os.path.join(output_dir, FILE), {"slope": slope, "intercept": intercept})


def forget_calibration(output_dir: str) -> None:
    """Removes what was kept, since it belongs to weights that are about to change."""
    path = os.path.join(output_dir, FILE)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def kept_calibration(output_dir: str, init_checkpoint: str | None) -> tuple[float, float] | None:
    """Slope and intercept, from beside the weights or the output folder; None if none were kept.

    Raises:
        DataError: The file isn't what `keep_calibration` writes.
    """
    places = labels.task_label_places(output_dir, init_checkpoint)
    places = [os.path.join(os.path.dirname(place), FILE) for place in places]
    place = next((place for place in places if tf.io.gfile.exists(place)), None)
    if place is None:
        return None
    hint = "It is written where questions with answers are answered. Do that again, or remove it."
    try:
        content = json.loads(read_text(place, hint))
        numbers = float(content["slope"]), float(content["intercept"])
        if not all(map(math.isfinite, numbers)):
            raise ValueError("no finite numbers")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place} doesn't hold a calibration ({error}). {hint}") from error
    return numbers
