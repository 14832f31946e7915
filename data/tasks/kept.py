"""Numbers that were found for weights, in a JSON file beside them: thresholds, calibrations."""

import json
import math
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.files.text_files import read_text
from data.tasks.labels import task_label_places


def keep_numbers(output_dir: str, file: str, numbers: Mapping[str, float]) -> None:
    """Writes numbers by name; DataError if the folder can't be written."""
    text = json.dumps(dict(numbers), ensure_ascii=False, indent=2)
    atomic.write_text(os.path.join(output_dir, file), text + "\n")


def kept_numbers(
    output_dir: str, init_checkpoint: str | None, file: str, names: Sequence[str], remedy: str
) -> list[float] | None:
    """The numbers of these names, from beside the weights or from the output folder.

    Args:
        output_dir, init_checkpoint: See `task_label_places`.
        file: Its name.
        names: All that the file should have.
        remedy: What to do about a file that can't be used, in whole sentences.

    Returns:
        In the order of the names; None if none were kept.

    Raises:
        DataError: The file can't be read, or isn't what `keep_numbers` writes of these names.
    """
    places = task_label_places(output_dir, init_checkpoint)
    places = [os.path.join(os.path.dirname(place), file) for place in places]
    place = next((place for place in places if tf.io.gfile.exists(place)), None)
    if place is None:
        return None
    try:
        content = json.loads(read_text(place, remedy))
        if sorted(content) != sorted(names):
            raise ValueError("other names")
        numbers = [float(content[name]) for name in names]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("not finite")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{place} doesn't hold the numbers that are kept beside such a model "
            f"({type(error).__name__}: {error}). {remedy}"
        ) from error
    return numbers
