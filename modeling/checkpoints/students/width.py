"""A narrower student: which dimensions, heads and neurons of its teacher it begins with.

A layer norm's gamma and beta belong to one dimension each, so that a subset of the dimensions is
cut out of every weight exactly, while a rotation (principal components) passes no layer norm.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from modeling.checkpoints.contents import StoredWeight, Weight
from modeling.config import BertConfig
from modeling.errors import ModelingError

BEST, RANDOM = "best", "random"
PROJECTIONS = (BEST, RANDOM)

_HIDDEN, _HEADS, _NEURONS = "hidden", "heads", "neurons"
_LAYER = r"(?P<layer>bert/encoder/layer_\d+/)"
# Name → which part of the model each axis counts; None: one that keeps its size.
_AXES: list[tuple[str, tuple[str | None, ...]]] = [
    (r"bert/embeddings/\w+", (None, _HIDDEN)),
    (r".+/LayerNorm/(gamma|beta)", (_HIDDEN,)),
    (_LAYER + r"attention/self/(query|key|value)/kernel", (_HIDDEN, _HEADS)),
    (_LAYER + r"attention/self/(query|key|value)/bias", (_HEADS,)),
    (_LAYER + r"attention/output/dense/kernel", (_HEADS, _HIDDEN)),
    (_LAYER + r"intermediate/dense/kernel", (_HIDDEN, _NEURONS)),
    (_LAYER + r"intermediate/dense/bias", (_NEURONS,)),
    (_LAYER + r"output/dense/kernel", (_NEURONS, _HIDDEN)),
    (r"(bert/pooler|cls/predictions/transform)/dense/kernel", (_HIDDEN, _HIDDEN)),
    (r"bert/.+/dense/bias|cls/predictions/transform/dense/bias", (_HIDDEN,)),
    (r"(cls/(seq_relationship|squad)/)?output_weights", (None, _HIDDEN)),
    (r"(cls/(seq_relationship|squad|predictions)/)?output_bias", (None,)),
]


def narrow_config(config: BertConfig, hidden_size: int) -> BertConfig:
    """The configuration of a narrower student: fewer heads of the same size.

    The feed-forward layers shrink in proportion.

    Raises:
        ModelingError: It isn't narrower, or isn't a multiple of the size of a head.
    """
    head_size = config.hidden_size // config.num_attention_heads
    if hidden_size % head_size or not 0 < hidden_size < config.hidden_size:
        sizes = range(head_size, config.hidden_size, head_size)
        raise ModelingError(
            f"--student_hidden_size is {hidden_size}; the teacher is {config.hidden_size} wide and "
            f"its heads are {head_size}. A narrower student has fewer heads of that size, so its "
            f"width is one of {', '.join(map(str, sizes)) or '(none: it has one head)'}; without "
            f"the flag it is as wide as the teacher."
        )
    wide = config.intermediate_size * hidden_size // config.hidden_size
    return dataclasses.replace(
        config,
        hidden_size=hidden_size,
        num_attention_heads=hidden_size // head_size,
        intermediate_size=max(wide, 1),
    )


def narrow_weights(
    weights: Mapping[str, Weight],
    config: BertConfig,
    student: BertConfig,
    projection: str = BEST,
    seed: int = 0,
) -> dict[str, Weight]:
    """A student's weights: parts of the teacher's, or random ones of their shapes.

    "best" keeps the dimensions in which layer norms give most: a norm's output has the mean square
    gamma² + beta² there, and these are summed over all norms of the encoder. In each layer, the
    heads and neurons are kept that write most to these dimensions for what they read from them.
    Every gamma grows by the ratio of the widths: as with dropout, sums over the part that is left
    are to be as large as those over the whole.

    Args:
        weights: Original name → weight, of as many layers as the student has.
        config: Of these weights.
        student: What `narrow_config` makes of it.
        projection: One of `PROJECTIONS`. "random" begins with a new model: no number is the
            teacher's.
        seed: Of random weights.

    Raises:
        ModelingError: A weight isn't BERT's own, so that nobody knows how to make it narrower.
    """
    axes = {name: _axes_of(name, weight, config) for name, weight in weights.items()}
    sizes = {
        _HIDDEN: student.hidden_size,
        _HEADS: student.hidden_size,
        _NEURONS: student.intermediate_size,
    }
    if projection == RANDOM:
        return {
            name: _random(
                name,
                tuple(sizes.get(a or "", n) for a, n in zip(axes[name], weight.shape, strict=True)),
                (seed, number),
                config.initializer_range,
            )
            for number, (name, weight) in enumerate(sorted(weights.items()))
        }
    hidden = _largest(_norm_squares(weights), student.hidden_size)
    kept = {
        f"bert/encoder/layer_{i}/": _kept_in_layer(
            weights, f"bert/encoder/layer_{i}/", hidden, config, student
        )
        for i in range(student.num_hidden_layers)
    }
    narrow: dict[str, Weight] = {}
    for name, weight in weights.items():
        layer = re.match(_LAYER, name)
        indices = {_HIDDEN: hidden, **(kept[layer["layer"]] if layer else {})}
        scale = config.hidden_size / student.hidden_size if name.endswith("/gamma") else 1.0
        taken = [
            indices[axis] if axis else np.arange(size)
            for axis, size in zip(axes[name], weight.shape, strict=True)
        ]
        narrow[name] = StoredWeight(
            tuple(map(len, taken)), weight.dtype, functools.partial(_part, weight, taken, scale)
        )
    return narrow


def _axes_of(name: str, weight: Weight, config: BertConfig) -> tuple[str | None, ...]:
    """Which part of the model each axis of a weight counts."""
    axes = next((axes for pattern, axes in _AXES if re.fullmatch(pattern, name)), ())
    wide = config.intermediate_size
    sizes = {_HIDDEN: config.hidden_size, _HEADS: config.hidden_size, _NEURONS: wide}
    fits = len(axes) == len(weight.shape) and all(
        axis is None or sizes[axis] == size for axis, size in zip(axes, weight.shape, strict=True)
    )
    if not fits:
        raise ModelingError(
            f"The teacher holds {name} {list(weight.shape)}, which isn't one of BERT's own weights "
            f"(it may be of a BiLSTM or of a second encoder), so that it can't be made narrower. "
            f"Leave out --student_hidden_size; or take the model from before its fine-tuning."
        )
    return axes


def _norm_squares(weights: Mapping[str, Weight]) -> np.ndarray:
    """Mean squares of what the encoder's layer norms give in each dimension, summed."""
    norms = [name for name in weights if re.fullmatch(r"bert/.+/LayerNorm/(gamma|beta)", name)]
    return np.sum([np.square(np.asarray(weights[name], np.float64)) for name in norms], axis=0)


def _kept_in_layer(
    weights: Mapping[str, Weight],
    layer: str,
    hidden: np.ndarray,
    config: BertConfig,
    student: BertConfig,
) -> dict[str, np.ndarray]:
    """What of a layer's heads and neurons is kept, as indices of an axis."""

    def read(name: str) -> np.ndarray:
        return np.asarray(weights[layer + name], np.float64)

    heads = config.num_attention_heads
    size = config.hidden_size // heads
    values = read("attention/self/value/kernel")[hidden].reshape(len(hidden), heads, size)
    outputs = read("attention/output/dense/kernel")[:, hidden].reshape(heads, size, len(hidden))
    through = [np.linalg.norm(values[:, head] @ outputs[head]) for head in range(heads)]
    chosen = _largest(np.array(through), student.num_attention_heads)
    reads = np.linalg.norm(read("intermediate/dense/kernel")[hidden], axis=0)
    writes = np.linalg.norm(read("output/dense/kernel")[:, hidden], axis=1)
    return {
        _HEADS: (chosen[:, np.newaxis] * size + np.arange(size)).ravel(),
        _NEURONS: _largest(reads * writes, student.intermediate_size),
    }


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the largest are, in their order; of equal ones the first."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _part(weight: Weight, taken: list[np.ndarray], scale: float) -> np.ndarray:
    return np.asarray(weight)[np.ix_(*taken)] * weight.dtype.type(scale)


def _random(name: str, shape: tuple[int, ...], seed: tuple[int, int], stddev: float) -> Weight:
    """As a new model has it."""
    if name.endswith(("/gamma", "bias", "/beta")):
        return np.full(shape, float(name.endswith("/gamma")), np.float32)

    def draw() -> np.ndarray:
        with tf.device("CPU:0"):
            return tf.random.stateless_truncated_normal(shape, seed, stddev=stddev).numpy()

    return StoredWeight(shape, np.dtype(np.float32), draw)
