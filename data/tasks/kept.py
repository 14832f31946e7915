"""Numbers that were found for weights, in a JSON file beside them: thresholds, calibrations.

The file tells by a checksum which weights these are, so that no others answer by them.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.files.text_files import read_text
from data.tasks.labels import task_label_places

_WEIGHTS = "weights"


def keep_numbers(output_dir: str, file: str, numbers: Mapping[str, float], weights: str) -> None:
    """Writes numbers by name, and the checksum of the weights that they were found for.

    Raises:
        DataError: The folder can't be written.
    """
    # A label may be called so; then nothing tells.
    text = json.dumps({_WEIGHTS: weights, **numbers}, ensure_ascii=False, indent=2)
    atomic.write_text(os.path.join(output_dir, file), text + "\n")


def kept_numbers(
    output_dir: str,
    init_checkpoint: str | None,
    file: str,
    names: Sequence[str],
    remedy: str,
    weights: str | None = None,
    earlier: str | None = None,
) -> list[float] | None:
    """The numbers of these names that were found for weights, wherever these lie.

    Where both places have some, the output folder's count. A file of an earlier version doesn't
    tell its weights: it counts where no other does, beside --init_checkpoint before the output
    folder.

    Args:
        output_dir, init_checkpoint: See `task_label_places`.
        file: Its name.
        names: All that the file should have.
        remedy: What to do about a file that can't be used, in whole sentences.
        weights: Checksum of those that answer; None: any.
        earlier: What earlier versions wrote in its place, which told less.

    Returns:
        In the order of the names; None if none were kept.

    Raises:
        DataError: A file can't be read, isn't what `keep_numbers` writes of these names, or all
            that there are were found for other weights.
    """
    places = task_label_places(output_dir, init_checkpoint)
    places = [os.path.join(os.path.dirname(place), file) for place in places]
    places = [place for place in places if tf.io.gfile.exists(place)]
    found = [_read(place, names, remedy) for place in places]
    if not found:
        return None
    # What was found for them last is in the folder that the command writes to.
    fitting = [numbers for of, numbers in found[::-1] if weights and of == weights]
    fitting += [numbers for of, numbers in found if of in (None, earlier) or weights is None]
    if not fitting:
        raise DataError(
            f"{' and '.join(places)}: found for other weights, or other models together, than "
            f"those that answer now, or otherwise. {remedy}"
        )
    return fitting[0]


def _read(place: str, names: Sequence[str], remedy: str) -> tuple[str | None, list[float]]:
    """The weights' checksum, None if it isn't told, and the numbers."""
    try:
        content = json.loads(read_text(place, remedy))
        weights = None if _WEIGHTS in names else content.pop(_WEIGHTS, None)
        if sorted(content) != sorted(names):
            raise ValueError("other names")
        numbers = [float(content[name]) for name in names]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("not finite")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{place} doesn't hold the numbers that are kept beside such a model "
            f"({type(error).__name__}: {error}). {remedy}"
        ) from error
    return weights, numbers
