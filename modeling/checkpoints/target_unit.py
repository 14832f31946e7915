"""The unit of the numbers that a model predicts, beside its head: mean and scale of the targets.

A model of numbers answers (w·x + b) · target_scale + target_mean, so that w and b are of one size
whatever the targets' unit is. Checkpoints of runs hold all four. Releases hold w and b alone, as
other programs know them: the unit is folded into them.
"""

from collections.abc import Mapping

import keras
import numpy as np

MEAN, SCALE = "target_mean", "target_scale"
WEIGHTS, BIAS = "output_weights", "output_bias"
UNIT_OF_OTHERS = {MEAN: 0.0, SCALE: 1.0}
"""What the two are where a checkpoint has a head without them."""


def fold_target_unit(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights by name, the unit folded into the head and left out, where they have one."""
    folded = dict(tensors)
    if SCALE in folded:
        return folded | _head(folded, folded.pop(MEAN), folded.pop(SCALE), 0.0, 1.0)
    return folded


def change_target_unit(model: keras.Model, mean: np.ndarray, scale: np.ndarray) -> None:
    """Gives a model of numbers another unit; its answers stay, up to rounding.

    Args:
        model: Has `target_mean` and `target_scale`.
        mean, scale: The new ones, float32 [outputs].
    """
    variables = {
        MEAN: model.target_mean,
        SCALE: model.target_scale,
        WEIGHTS: model.output_weights,
        BIAS: model.output_bias,
    }
    values = {name: variable.numpy() for name, variable in variables.items()}
    if np.array_equal(values[MEAN], mean) and np.array_equal(values[SCALE], scale):
        return
    head = _head(values, values[MEAN], values[SCALE], mean, scale)
    for name, value in {MEAN: mean, SCALE: scale, **head}.items():
        variables[name].assign(value)


def _head(tensors: Mapping[str, np.ndarray], mean, scale, to_mean, to_scale) -> dict:
    """Weights and bias that mean in another unit what `tensors` hold in theirs."""
    factor = scale.astype(np.float64) / to_scale
    shift = (mean.astype(np.float64) - to_mean) / to_scale
    weights = tensors[WEIGHTS] * factor[:, np.newaxis]
    bias = tensors[BIAS] * factor + shift
    return {WEIGHTS: weights.astype(np.float32), BIAS: bias.astype(np.float32)}
