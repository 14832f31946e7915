"""Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2)."""

import tensorflow as tf

INITIAL = 2.0**15
GROWTH_STEPS = 2000
LARGEST = 2.0**24


class LossScale:
    """The factor that keeps small gradients from vanishing in float16.

    Halved after a step whose summed gradient isn't finite on any replica, and that step changes
    no weight; doubled after `growth_steps` good ones in a row. It is decided on the sum over all
    replicas, so that all of them keep the same scale.

    Create it in the strategy's scope: it has variables.

    Attributes:
        scale: float32 scalar variable.
        good_steps: int32 scalar variable, good steps since the scale last changed.
    """

    def __init__(self, initial: float = INITIAL, growth_steps: int = GROWTH_STEPS):
        self.growth_steps = growth_steps
        options = {
            "trainable": False,
            "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self.scale = tf.Variable(initial, dtype=tf.float32, **options)
        self.good_steps = tf.Variable(0, dtype=tf.int32, **options)

    def state(self) -> dict[str, tf.Variable]:
        """Variables by the names that they have in checkpoints."""
        return {"loss_scale": self.scale, "loss_scale_good_steps": self.good_steps}

    def update(self, finite: tf.Tensor) -> None:
        """Takes note of one step; call it in replica context.

        Args:
            finite: bool scalar, equal on all replicas: the summed gradient was finite.
        """
        grow = self.good_steps + 1 >= self.growth_steps
        larger = tf.where(grow, tf.minimum(self.scale * 2.0, LARGEST), self.scale)
        smaller = tf.maximum(self.scale / 2.0, 1.0)
        good_steps = tf.where(finite & ~grow, self.good_steps + 1, 0)
        self.scale.assign(tf.where(finite, larger, smaller))
        self.good_steps.assign(good_steps)
