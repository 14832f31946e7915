"""Which of a teacher's layers a student begins with."""

import re
from collections.abc import Mapping, Sequence

from modeling.checkpoints.contents import Weight
from modeling.errors import ModelingError

_LAYER = re.compile(r"bert/encoder/layer_(\d+)/(.+)")


def student_layers(items: Sequence[str], num_hidden_layers: int) -> list[int]:
    """The teacher's layers, counted from 0, that the student's layers begin as.

    Args:
        items: Numbers as a flag gives them, strictly increasing: ["0", "2", "4"].
        num_hidden_layers: Of the teacher.

    Raises:
        ModelingError: There are none, or one isn't a layer of the teacher or not above the one
            before it.
    """
    given = f"--student_layers is {','.join(items) or 'empty'}"
    rule = (
        f"It takes layers of the teacher, counted from 0 to {num_hidden_layers - 1}, with commas "
        f"between them and each above the one before: "
        f"{','.join(map(str, evenly_spaced_layers(min(3, num_hidden_layers), num_hidden_layers)))}."
    )
    if not items:
        raise ModelingError(f"{given}. {rule}")
    layers = []
    for item in items:
        if not re.fullmatch(r"\s*[0-9]{1,4}\s*", item):
            raise ModelingError(f"{given}, and {item!r} is no whole number from 0 on. {rule}")
        layer = int(item)
        if layer >= num_hidden_layers:
            raise ModelingError(
                f"{given}, but the teacher has {num_hidden_layers} layers and no layer {layer}. "
                f"{rule}"
            )
        if layers and layer <= layers[-1]:
            raise ModelingError(f"{given}, where {layer} follows {layers[-1]}. {rule}")
        layers.append(layer)
    return layers


def evenly_spaced_layers(count: int, num_hidden_layers: int) -> list[int]:
    """So many of a teacher's layers, the first and the last among them, evenly spaced.

    Of 12 layers, 6 are 0, 2, 4, 7, 9 and 11, those that DistilBERT (Sanh et al. 2019) begins as.
    A half is rounded up; one layer is the first.

    Raises:
        ModelingError: The teacher hasn't so many, or it is none.
    """
    if not 1 <= count <= num_hidden_layers:
        raise ModelingError(
            f"--student_num_layers is {count}, but the teacher has {num_hidden_layers} layers: a "
            f"student takes from 1 to {num_hidden_layers} of them."
        )
    gaps = max(count - 1, 1)
    return [(2 * i * (num_hidden_layers - 1) + gaps) // (2 * gaps) for i in range(count)]


def weights_of_layers(weights: Mapping[str, Weight], layers: Sequence[int]) -> dict[str, Weight]:
    """The weights of an encoder that has these of the layers only, numbered anew.

    Args:
        weights: Original name → weight. Those outside of the layers stay.
        layers: As `student_layers` gives them.
    """
    numbers = {layer: number for number, layer in enumerate(layers)}
    kept = {}
    for name, weight in weights.items():
        layer = _LAYER.fullmatch(name)
        if not layer:
            kept[name] = weight
        elif int(layer[1]) in numbers:
            kept[f"bert/encoder/layer_{numbers[int(layer[1])]}/{layer[2]}"] = weight
    return kept
