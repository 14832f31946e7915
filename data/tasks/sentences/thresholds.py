"""label_thresholds.json: from which probability on each label is predicted, beside its weights."""

import json
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.tasks import labels

FILE = "label_thresholds.json"


def keep_label_thresholds(output_dir: str, thresholds: Mapping[str, float]) -> None:
    """Writes the thresholds by label; DataError if the folder can't be written."""
    text = json.dumps(thresholds, ensure_ascii=False, indent=2)
    atomic.write_text(os.path.join(output_dir, FILE), text + "\n")


def forget_label_thresholds(output_dir: str) -> None:
    """Removes what was kept, since it belongs to weights that are about to change."""
    path = os.path.join(output_dir, FILE)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def kept_label_thresholds(
    output_dir: str, init_checkpoint: str | None, names: Sequence[str]
) -> list[float]:
    """A threshold for each label, from beside the weights or from the output folder.

    Raises:
        DataError: None were kept, or they are of other labels.
    """
    places = labels.task_label_places(output_dir, init_checkpoint)
    places = [os.path.join(os.path.dirname(place), FILE) for place in places]
    place = next((place for place in places if tf.io.gfile.exists(place)), None)
    if place is None:
        raise DataError(
            f"--label_thresholds=tuned needs {FILE} beside the weights, which --do_eval writes. Do "
            f"that first, or in the same command."
        )

    def form(content) -> list[float]:
        if sorted(content) != sorted(names):
            raise ValueError("other labels")
        return [float(content[name]) for name in names]

    return labels.read_labels(place, form)
