"""Learning rate as a function of the number of updates already done."""

from collections.abc import Callable

import tensorflow as tf

from modeling.errors import ModelingError

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
    if num_train_steps < 1:
        raise ModelingError(
            f"The number of training steps is {num_train_steps}; at least 1 is needed. Check "
            f"the step or epoch flags and the number of training examples."
        )

    def rate(step: tf.Tensor) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        decayed = learning_rate * (1.0 - tf.minimum(done, num_train_steps) / num_train_steps)
        if not num_warmup_steps:
            return decayed
        warming = learning_rate * (done / num_warmup_steps)
        return tf.where(done < num_warmup_steps, warming, decayed)

    return rate
