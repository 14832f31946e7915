"""Learning rates: by the number of updates already done, and by depth in the model."""

import re
from collections.abc import Callable, Iterable

import tensorflow as tf

from modeling.errors import ModelingError
from modeling.training.engine.flags import SCHEDULES

Schedule = Callable[[tf.Tensor], tf.Tensor]
SECOND = "second_"
"""Begins the names of a second encoder's weights; it has as many layers as the first."""


def make_schedule(
    name: str,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 0.5,
) -> Schedule:
    """A schedule by name, each with a linear warm-up.

    "linear" is the original's (paper, appendix A.2). Its decay runs from step 0, under the
    warm-up, so at the end of the warm-up the rate drops from almost `learning_rate` to
    `learning_rate·(1 − W/T)`. That jump is the original's and is kept, since published results
    were trained with it. The original read the step at a moment left open, before or after its
    increment; here it is always the number of updates done, so the first update has rate 0 when
    there is a warm-up. "linear_from_peak" is what the paper describes, and other projects do: in a
    straight line from the end of the warm-up to 0 at the last step. "polynomial" is
    lr·(1 − step/T)^power with the jump of "linear"; a power of 0.5 is what NVIDIA trains BERT with
    LAMB with. "constant" stays at `learning_rate`.

    Args:
        name: One of `SCHEDULES`.
        learning_rate: Peak; never quite reached where there is a jump.
        num_train_steps: T, where the rate reaches 0; it stays there.
        num_warmup_steps: W; 0 for none.
        power: Of "polynomial".

    Returns:
        Function of an integer step tensor → float32 scalar.

    Raises:
        ModelingError: Another name, or a decay over fewer than one step.
    """
    if name not in SCHEDULES:
        raise ModelingError(f"--lr_schedule must be one of {', '.join(SCHEDULES)}; got {name!r}.")
    if name != "constant" and num_train_steps < 1:
        raise ModelingError(
            f"The number of training steps is {num_train_steps}; at least 1 is needed. Check "
            f"the step or epoch flags and the number of training examples."
        )
    decay_steps = num_train_steps
    if name == "linear_from_peak":
        decay_steps = max(num_train_steps - num_warmup_steps, 1)

    def rate(step: tf.Tensor) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        decayed = tf.constant(learning_rate)
        if name != "constant":
            # Subtracted as integers: XLA multiplies by 1/T in place of dividing by T, and
            # 1 − T·(1/T) can be a little below 0, which a power of 0.5 turns into NaN.
            left = tf.maximum(num_train_steps - tf.cast(step, tf.int64), 0)
            share = tf.cast(left, tf.float32) / decay_steps
            decayed = learning_rate * (tf.pow(share, power) if name == "polynomial" else share)
        if not num_warmup_steps:
            return decayed
        warming = learning_rate * (done / num_warmup_steps)
        return tf.where(done < num_warmup_steps, warming, decayed)

    return rate


def layer_depth(name: str, num_hidden_layers: int) -> int:
    """0 for the embeddings, 1 to L for the layers of the encoder, L + 1 for all above.

    Args:
        name: A weight's name, as in the original's checkpoints.
        num_hidden_layers: L.
    """
    name = name.removeprefix(SECOND)
    layer = re.match(r"bert/encoder/layer_(\d+)/", name)
    if layer:
        return int(layer[1]) + 1
    return 0 if name.startswith("bert/embeddings/") else num_hidden_layers + 1


def rate_factors(names: Iterable[str], decay: float, num_hidden_layers: int) -> dict[str, float]:
    """Factors of the learning rate that shrink with every layer down from the top.

    decay^(L + 1 − depth): the task's own weights (and the pooler) have 1, the last layer `decay`,
    the embeddings decay^(L + 1), as ELECTRA is fine-tuned (Clark et al. 2020, appendix B).
    """
    top = num_hidden_layers + 1
    return {name: decay ** (top - layer_depth(name, num_hidden_layers)) for name in names}


def layerwise_trained_weights(
    names: Iterable[str], frozen_layers: int, num_hidden_layers: int
) -> list[str]:
    """The names that are trained when the first layers are frozen.

    Args:
        names: All weights' names.
        frozen_layers: So many layers of the encoder, and the embeddings with them, stay as they
            are; 0 trains everything.
        num_hidden_layers: L.
    """
    if not frozen_layers:
        return list(names)
    return [name for name in names if layer_depth(name, num_hidden_layers) > frozen_layers]
