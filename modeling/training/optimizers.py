"""BERT's Adam: no bias correction, decoupled weight decay, exclusion by variable name.

optimizer = BertAdam(weights_by_name(model), warmup_linear_decay(1e-4, 1000, 100))
optimizer.apply(gradients, optimizer.schedule(step), scale=1.0)
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from modeling.training.schedules import Schedule

# The original's patterns. They exclude every layer norm and bias, `output_bias` too, but no
# embedding and none of the heads' weights.
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


class BertAdam:
    """The optimizer of the original release.

    m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  w ← w − lr·(m / (√v + ε) + decay·w)

    It differs from the published Adam in that m and v aren't corrected for their zero start, so
    the first steps are up to 4.25·lr long, and from `keras.optimizers.AdamW` also in that the
    names that are free of decay are matched against the whole variable name.

    Create it in the strategy's scope: its slots are variables.

    Args:
        variables: Name → tf.Variable, in the model's order; the names are the original's.
        schedule: Learning rate by step.
        weight_decay_rate: Decay, multiplied by the learning rate.
        beta_1, beta_2: Decay rates of the two moments.
        epsilon: Added to √v, outside the root.
        exclude: Regular expressions; a variable whose name one of them finds isn't decayed.
    """

    def __init__(
        self,
        variables: Mapping[str, tf.Variable],
        schedule: Schedule,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude: Sequence[str] = EXCLUDE_FROM_WEIGHT_DECAY,
    ):
        self.names = list(variables)
        self.variables = list(variables.values())
        self.schedule = schedule
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        # The fused kernel takes 1−β in float32 from β in float32, and there 1−0.999 comes out
        # 1.3e-5 too small, which scales its moments by these ratios. Rate and epsilon are scaled
        # to make up for it, so that the update is the exact one (to 1e-7).
        ratio_1 = (1 - float(np.float32(beta_1))) / (1 - beta_1)
        ratio_2 = math.sqrt((1 - float(np.float32(beta_2))) / (1 - beta_2))
        self._rate_factor = ratio_2 / ratio_1
        self._kernel_epsilon = epsilon * ratio_2
        self.decay_rates = [
            0.0 if any(re.search(pattern, name) for pattern in exclude) else weight_decay_rate
            for name in self.names
        ]
        self.m = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.variables]
        self.v = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.variables]

    def slots(self) -> dict[str, tf.Variable]:
        """Slot variables by the names that the original gave them in checkpoints."""
        named = {}
        for name, m, v in zip(self.names, self.m, self.v, strict=True):
            named[f"{name}/adam_m"] = m
            named[f"{name}/adam_v"] = v
        return named

    def apply(
        self, gradients: Sequence[tf.Tensor | None], learning_rate: tf.Tensor, scale: tf.Tensor
    ) -> None:
        """One update of every variable; call it in replica context.

        Args:
            gradients: Dense and already summed over replicas; None leaves a variable as it is.
            learning_rate: float32 scalar.
            scale: float32 scalar that multiplies every gradient (clipping).
        """
        pairs = [(i, g) for i, g in enumerate(gradients) if g is not None]
        indices = [i for i, _ in pairs]

        def apply_all(strategy, learning_rate, scale, *dense):
            for i, gradient in zip(indices, dense, strict=True):
                strategy.extended.update(
                    self.variables[i],
                    self._update,
                    args=(self.m[i], self.v[i], gradient, learning_rate, scale),
                    kwargs={"decay": self.decay_rates[i]},
                    group=False,
                )

        tf.distribute.get_replica_context().merge_call(
            apply_all, args=(learning_rate, scale, *(g for _, g in pairs))
        )

    def _update(self, variable, m, v, gradient, learning_rate, scale, decay):
        if decay:
            variable.assign(variable * (1.0 - learning_rate * decay))
        # The fused kernel is Adam with ε outside the root. Its bias correction is
        # √(1−beta2_power)/(1−beta1_power), so powers of 0 turn that off.
        zero = tf.zeros([], variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=zero,
            beta2_power=zero,
            lr=learning_rate * self._rate_factor,
            beta1=tf.cast(self.beta_1, variable.dtype),
            beta2=tf.cast(self.beta_2, variable.dtype),
            epsilon=tf.cast(self._kernel_epsilon, variable.dtype),
            grad=gradient * scale,
        )
