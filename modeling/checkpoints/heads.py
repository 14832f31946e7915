"""Heads: which ones a checkpoint's weights are of, and the unit of the numbers that one predicts.

A model of numbers answers (w·x + b) · target_scale + target_mean, so that w and b are of one size
whatever the targets' unit is. Checkpoints of runs hold all four. Releases hold w and b alone, as
other programs know them: the unit is folded into them.
"""

import hashlib
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents, Weight
from modeling.config import BertConfig

MEAN, SCALE = "target_mean", "target_scale"
WEIGHTS, BIAS = "output_weights", "output_bias"
UNIT_OF_OTHERS = {MEAN: 0.0, SCALE: 1.0}
"""What the two are where a checkpoint has a head without them."""
_FAR = 3
_SPANS = "cls/squad/output_weights"
_NEXT_SENTENCE = "cls/seq_relationship/output_weights"
HEAD_WEIGHTS = (WEIGHTS, _SPANS, names.MASKED_LM_BIAS, _NEXT_SENTENCE)
"""One of each kind of head."""
# The same weights; only a configuration, or the format's own names, tell them apart.
_OF_OUTPUT_WEIGHTS = ("classes", "multi_label", "regression", "tags", "choices")


def head_checksum(model: keras.Model) -> str:
    """32 hexadecimal digits for the weights of a model besides its encoder.

    Any training changes them; other formats and a cut vocabulary don't.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(names.weights_by_name(model).items()):
        if not name.startswith("bert/"):
            digest.update(f"{name} {weight.value.shape}\n".encode())
            digest.update(np.ascontiguousarray(weight.value.numpy()))
    return digest.hexdigest()


def checkpoint_heads(
    shapes: Mapping[str, tuple[int, ...]], config: BertConfig, told: str | None = None
) -> list[str]:
    """All heads that a set of weights has, keys of `config.HEADS`; the one that counts first.

    Weights decide; the configuration only between heads that have the same weights.

    Args:
        shapes: Original name → shape in the original's layout.
        config: The configuration that belongs to them.
        told: The head that the format's own names tell, see `Contents.head`.
    """
    heads = []
    if WEIGHTS in shapes:
        said = next((h for h in (told, config.head) if h in _OF_OUTPUT_WEIGHTS), None)
        heads.append(_head_of_output_weights(shapes, said))
    if _SPANS in shapes:
        heads.append("spans")
    if names.MASKED_LM_BIAS in shapes:
        heads.append("pretraining" if _NEXT_SENTENCE in shapes else "masked_lm")
    elif _NEXT_SENTENCE in shapes:
        heads.append("next_sentence")
    first = [head for head in heads if head == config.head]
    return first + [head for head in heads if head not in first]


def checkpoint_head(
    shapes: Mapping[str, tuple[int, ...]], config: BertConfig, told: str | None = None
) -> str | None:
    """The first of the `checkpoint_heads`; None for an encoder alone."""
    return next(iter(checkpoint_heads(shapes, config, told)), None)


def config_with_trained_head(
    shapes: Mapping[str, tuple[int, ...]], config: BertConfig, told: str | None = None
) -> BertConfig:
    """The configuration, with the head of fine-tuned weights if it doesn't name it.

    Args:
        shapes, config, told: As `checkpoint_heads` takes them. That of a pre-trained model stays
            as it is: its weights tell all.
    """
    head = checkpoint_head(shapes, config, told)
    if head == config.head or head not in ("spans", *_OF_OUTPUT_WEIGHTS):
        return config
    return config.with_head(head, config.labels or ())


def _head_of_output_weights(shapes: Mapping[str, tuple[int, ...]], said: str | None) -> str:
    outputs = shapes[WEIGHTS][0]
    if SCALE in shapes:
        return "regression"
    if outputs == 1:
        # The original's multiple choice has no bias; Hugging Face's has one, of no effect.
        return said or ("regression" if BIAS in shapes else "choices")
    return said if said not in (None, "choices") else "classes"


def fold_target_unit(tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Weights by name, the unit folded into the head and left out, where they have one."""
    folded = dict(tensors)
    if SCALE in folded:
        head = {name: np.asarray(folded[name]) for name in (WEIGHTS, BIAS)}
        mean, scale = (np.asarray(folded.pop(name)) for name in (MEAN, SCALE))
        return folded | _head(head, mean, scale, 0.0, 1.0)
    return folded


def is_other_unit(contents: Contents, mean: np.ndarray, scale: np.ndarray) -> bool:
    """Whether a head of numbers was trained on numbers that are far from others.

    Rewritten for these its weights would be many times as large as a new head's, or as small:
    from 0 to 4,000 those of 0 to 4 never come back.

    Args:
        contents: With the head.
        mean, scale: Of the other numbers, float32 [outputs].

    Returns:
        False where the unit is folded into the head, as in releases, or none was measured on
        either side, as in the original.
    """
    if SCALE not in contents.shapes:
        return False
    own_mean, own_scale = contents.read(MEAN), contents.read(SCALE)
    for unit in ((own_mean, own_scale), (mean, scale)):
        if all(np.all(n == none) for n, none in zip(unit, UNIT_OF_OTHERS.values(), strict=True)):
            return False
    ratio = own_scale / scale
    away = np.abs(own_mean - mean) / scale
    return bool(np.any((ratio < 1 / _FAR) | (ratio > _FAR) | (away > _FAR)))


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


def reorder_outputs(model: keras.Model, known: Sequence[str]) -> bool:
    """Brings the outputs of a loaded head into the order of the model's own labels.

    Args:
        model: Its configuration tells the labels.
        known: What the outputs are called as they were loaded.

    Returns:
        Whether they were the same labels in another order, capitals aside; else nothing changes.
    """
    there, labels = ([name.casefold() for name in names] for names in (known, model.config.labels))
    if there == labels or len({*labels}) < len(labels) or sorted(there) != sorted(labels):
        return False
    order = [there.index(name) for name in labels]
    for variable in (model.output_weights, model.output_bias):
        variable.assign(variable.numpy()[order])
    return True


def _head(tensors: Mapping[str, np.ndarray], mean, scale, to_mean, to_scale) -> dict:
    """Weights and bias that mean in another unit what `tensors` hold in theirs."""
    factor = scale.astype(np.float64) / to_scale
    shift = (mean.astype(np.float64) - to_mean) / to_scale
    weights = tensors[WEIGHTS] * factor[:, np.newaxis]
    bias = tensors[BIAS] * factor + shift
    return {WEIGHTS: weights.astype(np.float32), BIAS: bias.astype(np.float32)}
