"""Learning rate as a function of the number of updates already done."""

from collections.abc import Callable

import tensorflow as tf

from modeling.errors import ModelingError
from modeling.training.engine.flags import SCHEDULES

Schedule = Callable[[tf.Tensor], tf.Tensor]


def warmup_linear_decay(
    learning_rate: float, num_train_steps: int, num_warmup_steps: int
) -> Schedule:
    """The original's schedule: linear warm-up, then linear decay to zero (paper, appendix A.2).

    The decay runs from step 0, under the warm-up, so at the end of the warm-up the rate drops
    from almost `learning_rate` to `learning_rate·(1 − W/T)`. That jump is the original's and is
    kept, since published results were trained with it. The original read the step at a moment
    left open, before or after its increment; here it is always the number of updates done, so
    the first update has rate 0 when there is a warm-up.

    Args:
        learning_rate: Peak, never quite reached.
        num_train_steps: T, where the rate reaches 0; it stays there.
        num_warmup_steps: W; 0 for none.

    Returns:
        Function of an integer step tensor → float32 scalar.

    Raises:
        ModelingError: `num_train_steps` is below 1.
    """
    return warmup_polynomial_decay(learning_rate, num_train_steps, num_warmup_steps, power=1.0)


def warmup_polynomial_decay(
    learning_rate: float, num_train_steps: int, num_warmup_steps: int, power: float
) -> Schedule:
    """lr·(1 − step/T)^power with the warm-up of `warmup_linear_decay`, jump included.

    A power of 0.5 is what NVIDIA trains BERT with LAMB with. Arguments and errors as there.
    """
    _check_steps(num_train_steps)

    def rate(step: tf.Tensor) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        # Subtracted as integers: XLA multiplies by 1/T in place of dividing by T, and 1 − T·(1/T)
        # can be a little below 0, which a power of 0.5 turns into NaN.
        left = tf.cast(tf.maximum(num_train_steps - tf.cast(step, tf.int64), 0), tf.float32)
        left /= num_train_steps
        if power != 1.0:
            left = tf.pow(left, power)
        return _warmed_up(done, learning_rate, num_warmup_steps, learning_rate * left)

    return rate


def warmup_then_linear_decay(
    learning_rate: float, num_train_steps: int, num_warmup_steps: int
) -> Schedule:
    """Linear warm-up to `learning_rate`, and from there in a straight line to 0 at the last step.

    What the paper describes, and other projects do; the original's schedule has a jump at the
    end of the warm-up, see `warmup_linear_decay`. Arguments and errors as there.
    """
    _check_steps(num_train_steps)
    decay_steps = max(num_train_steps - num_warmup_steps, 1)

    def rate(step: tf.Tensor) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        left = tf.maximum(num_train_steps - tf.cast(step, tf.int64), 0)
        decayed = learning_rate * (tf.cast(left, tf.float32) / decay_steps)
        return _warmed_up(done, learning_rate, num_warmup_steps, decayed)

    return rate


def warmup_constant(learning_rate: float, num_warmup_steps: int) -> Schedule:
    """Linear warm-up, then `learning_rate` for ever."""

    def rate(step: tf.Tensor) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        return _warmed_up(done, learning_rate, num_warmup_steps, tf.constant(learning_rate))

    return rate


def make_schedule(
    name: str,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 0.5,
) -> Schedule:
    """A schedule by name; `power` is that of "polynomial".

    Raises:
        ModelingError: Another name, or fewer than one step.
    """
    if name not in SCHEDULES:
        raise ModelingError(f"--lr_schedule must be one of {', '.join(SCHEDULES)}; got {name!r}.")
    if name == "constant":
        return warmup_constant(learning_rate, num_warmup_steps)
    if name == "linear_from_peak":
        return warmup_then_linear_decay(learning_rate, num_train_steps, num_warmup_steps)
    power = power if name == "polynomial" else 1.0
    return warmup_polynomial_decay(learning_rate, num_train_steps, num_warmup_steps, power)


def _warmed_up(done, learning_rate: float, num_warmup_steps: int, afterwards) -> tf.Tensor:
    """`afterwards`, or before the end of the warm-up the rate there."""
    if not num_warmup_steps:
        return afterwards
    warming = learning_rate * (done / num_warmup_steps)
    return tf.where(done < num_warmup_steps, warming, afterwards)


def _check_steps(num_train_steps: int) -> None:
    if num_train_steps < 1:
        raise ModelingError(
            f"The number of training steps is {num_train_steps}; at least 1 is needed. Check "
            f"the step or epoch flags and the number of training examples."
        )
