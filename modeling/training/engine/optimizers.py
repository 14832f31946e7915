"""The optimizers: BERT's Adam, AdamW, LAMB, Muon; weight decay excluded by variable name.

optimizer = BertAdam(weights_by_name(model), make_schedule("linear", 1e-4, 1000, 100))
optimizer.apply(gradients, optimizer.schedule(step), scale=1.0)
"""

import abc
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.training.engine.flags import OPTIMIZERS
from modeling.training.engine.orthogonal import orthogonal_updates
from modeling.training.engine.schedules import Schedule

# The original's patterns. They exclude every layer norm and bias, `output_bias` too, but no
# embedding and none of the heads' weights.
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")
BETA_1, BETA_2 = 0.9, 0.999
"""Decay rates of the two moments."""
EPSILON = 1e-6
"""Added to √v, outside the root."""
MUON_MOMENTUM = 0.95
MUON_RMS = 0.2
"""Of Muon's updates, in units of the learning rate: that of Adam's (Liu et al. 2025)."""
# Adam's fused kernel takes 1−β in float32 from β in float32, and there 1−0.999 comes out 1.3e-5
# too small, which scales its moments by these ratios. Rate and epsilon are scaled to make up for
# it, so that the update is the exact one (to 1e-7).
_RATIO_1 = (1 - float(np.float32(BETA_1))) / (1 - BETA_1)
_RATIO_2 = math.sqrt((1 - float(np.float32(BETA_2))) / (1 - BETA_2))


class Optimizer(abc.ABC):
    """What all optimizers share: moments of each variable, decay by name, one update of all.

    Create it in the strategy's scope: its slots are variables. Nothing in it depends on anything
    but the slots and the step number, so a checkpoint of these resumes it exactly.

    Args:
        variables: Name → tf.Variable, in the model's order; the names are the original's. Those
            of the model that are missing here are not trained.
        schedule: Learning rate by step.
        weight_decay_rate: Decay, multiplied by the learning rate.
        rate_factors: Name → factor of the learning rate; 1 where a name is missing.
        averaged: Numbers of the updates, from 1, whose weights are averaged (Izmailov et al. 2018;
            Kaddour 2022): their mean becomes the weights with the last of them. Up to there it is
            kept beside them and changes nothing. None: no averaging.
    """

    def __init__(
        self,
        variables: Mapping[str, tf.Variable],
        schedule: Schedule,
        weight_decay_rate: float = 0.01,
        rate_factors: Mapping[str, float] | None = None,
        averaged: range | None = None,
    ):
        self.names = list(variables)
        self.variables = list(variables.values())
        self.schedule = schedule
        self.excluded = [
            any(re.search(pattern, name) for pattern in EXCLUDE_FROM_WEIGHT_DECAY)
            for name in variables
        ]
        self.decay_rates = [0.0 if out else weight_decay_rate for out in self.excluded]
        self.rate_factors = [(rate_factors or {}).get(name, 1.0) for name in self.names]
        self.m = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.variables]
        self.v = [
            tf.Variable(tf.zeros_like(v), trainable=False) if self._has_second_moment(i) else None
            for i, v in enumerate(self.variables)
        ]
        self.averaged = averaged
        self.averages = [
            tf.Variable(tf.zeros_like(v), trainable=False) if averaged else None
            for v in self.variables
        ]
        # Counted, not told by the step: a run may go on with another range than it began with.
        self.averaged_updates = tf.Variable(0, dtype=tf.int64, trainable=False)

    def _has_second_moment(self, index: int) -> bool:
        return True

    def slots(self) -> dict[str, tf.Variable]:
        """Slot variables by the names that the original gave them in checkpoints."""
        named = {}
        for name, m, v in zip(self.names, self.m, self.v, strict=True):
            named[f"{name}/adam_m"] = m
            if v is not None:
                named[f"{name}/adam_v"] = v
        return named

    def averaging_state(self) -> dict[str, tf.Variable]:
        """The weights' means so far by name, and how many updates are in them; {} without any."""
        if not self.averaged:
            return {}
        means = zip(self.names, self.averages, strict=True)
        return {f"{n}/average": mean for n, mean in means} | {
            "averaged_updates": self.averaged_updates
        }

    def apply(
        self,
        gradients: Sequence[tf.Tensor | None],
        learning_rate: tf.Tensor,
        scale: tf.Tensor,
        step: tf.Tensor | int = 0,
        finite: tf.Tensor | None = None,
    ) -> None:
        """One update of every variable; call it in replica context.

        Args:
            gradients: Dense and already summed over replicas; None leaves a variable as it is.
            learning_rate: float32 scalar.
            scale: float32 scalar that multiplies every gradient (clipping, loss scaling).
            step: Integer scalar, the updates done before this one; for the bias correction.
            finite: bool scalar; where it is False no weight or moment changes. None: as True.
        """
        pairs = [(i, g) for i, g in enumerate(gradients) if g is not None]
        indices = [i for i, _ in pairs]
        number = tf.cast(step, tf.float32) + 1.0
        found = self._directions(dict(pairs), scale)
        directions = [found.get(i) for i in indices]

        def apply_all(strategy, learning_rate, scale, number, finite, dense, directions):
            if self.averaged:
                strategy.extended.update(
                    self.averaged_updates, self._count_averaged, args=(number,), group=False
                )
            for i, gradient, direction in zip(indices, dense, directions, strict=True):
                given = (gradient, direction, learning_rate, scale, number, finite)
                strategy.extended.update(
                    self.variables[i],
                    self._update_if,
                    args=(self.m[i], self.v[i], *given),
                    kwargs={"index": i},
                    group=False,
                )
                if self.averages[i] is not None:
                    strategy.extended.update(
                        self.variables[i],
                        self._average,
                        args=(self.averages[i], self.averaged_updates, number),
                        group=False,
                    )

        tf.distribute.get_replica_context().merge_call(
            apply_all,
            args=(learning_rate, scale, number, finite, [g for _, g in pairs], directions),
        )

    def _directions(
        self, gradients: Mapping[int, tf.Tensor], scale: tf.Tensor
    ) -> dict[int, tf.Tensor]:
        """What is found for many variables at once, by their indices; in replica context.

        Args:
            gradients: By index.
            scale: Multiplies them.
        """
        del gradients, scale
        return {}

    def _update_if(
        self, variable, m, v, gradient, direction, learning_rate, scale, number, finite, index
    ):
        def update():
            rate = learning_rate * self.rate_factors[index]
            self._update(variable, m, v, gradient * scale, direction, rate, number, index)
            return tf.constant(True)

        if finite is None:
            update()
        else:
            tf.cond(finite, update, lambda: tf.constant(False))

    def _count_averaged(self, counter, number):
        number = tf.cast(number, tf.int64)
        more = tf.where(self._is_averaged(number), counter + 1, counter)
        counter.assign(tf.where(number < self.averaged.start, tf.zeros_like(more), more))

    def _is_averaged(self, number):
        first, end, every = self.averaged.start, self.averaged.stop, self.averaged.step
        return (number >= first) & (number < end) & tf.equal((number - first) % every, 0)

    def _average(self, variable, average, counter, number):
        """Takes the weights after update `number` into their mean, which replaces them at last."""
        count = tf.cast(counter, variable.dtype)

        def add():
            moved = average + (variable - average) / tf.maximum(count, 1.0)
            average.assign(tf.where(count > 1, moved, variable))
            return tf.constant(True)

        def finish():
            variable.assign(average)
            return tf.constant(True)

        tf.cond(self._is_averaged(tf.cast(number, tf.int64)), add, lambda: tf.constant(False))
        last = tf.equal(number, self.averaged.stop - 1)
        tf.cond(last, finish, lambda: tf.constant(False))

    @abc.abstractmethod
    def _update(self, variable, m, v, gradient, direction, learning_rate, number, index):
        """Changes one variable and its slots.

        Args:
            variable, m, v, gradient: Of the same shape; the gradient is scaled.
            direction: What `_directions` found for it, or None.
            learning_rate: float32 scalar, the variable's own.
            number: float32 scalar that counts updates from 1.
            index: The variable's.
        """


class BertAdam(Optimizer):
    """The optimizer of the original release, or with bias correction AdamW.

    m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  w ← w − lr·(m / (√v + ε) + decay·w)

    It differs from the published Adam in that m and v aren't corrected for their zero start, so
    steps are up to (1−β₁ᵗ)/√(1−β₂ᵗ)·lr long: 3.2·lr at first, 6.6·lr at the 12th, 2.7·lr at the
    150th. From `keras.optimizers.AdamW` it differs also in that the names that are free of decay
    are matched against the whole variable name. With `bias_correction` m/(1−β₁ᵗ) and v/(1−β₂ᵗ)
    stand for m and v (Loshchilov & Hutter 2019), which makes fine-tuning on little data steadier
    (Mosbach et al. 2021).
    """

    def __init__(self, *args, bias_correction: bool = False, **options):
        super().__init__(*args, **options)
        self.bias_correction = bias_correction

    def _update(self, variable, m, v, gradient, direction, learning_rate, number, index):
        decay = self.decay_rates[index]
        if decay:
            # Not before the gradient is there: then no product holds the weights any more, and
            # they are changed where they are. Sooner there would be two copies of most of them.
            with tf.control_dependencies([gradient]):
                variable.assign_sub(variable * (learning_rate * decay))
        rate = learning_rate * (_RATIO_2 / _RATIO_1)
        epsilon = tf.cast(EPSILON * _RATIO_2, variable.dtype)
        if self.bias_correction:
            first, second = _corrections(number)
            rate *= tf.sqrt(second) / first
            epsilon *= tf.sqrt(second)
        # The fused kernel is Adam with ε outside the root. Its own bias correction is
        # √(1−beta2_power)/(1−beta1_power), so powers of 0 turn that off.
        zero = tf.zeros([], variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=zero,
            beta2_power=zero,
            lr=rate,
            beta1=tf.cast(BETA_1, variable.dtype),
            beta2=tf.cast(BETA_2, variable.dtype),
            epsilon=epsilon,
            grad=gradient,
        )


def _corrections(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """1 − β₁ᵗ and 1 − β₂ᵗ. As powers, float32 would lose up to 1e-5 of them."""
    first, second = (-tf.math.expm1(number * math.log(beta)) for beta in (BETA_1, BETA_2))
    return first, second


class Lamb(Optimizer):
    """LAMB for large batches (You et al. 2020, algorithm 2).

    u ← m̂ / (√v̂ + ε) + decay·w, with bias-corrected m̂ and v̂;  w ← w − lr·(‖w‖ / ‖u‖)·u

    The decay is inside the trust ratio, as in the paper. The ratio is 1 where either norm is 0,
    and for the variables that are free of decay, as in the authors' code.
    """

    def _update(self, variable, m, v, gradient, direction, learning_rate, number, index):
        new_m = BETA_1 * m + (1.0 - BETA_1) * gradient
        new_v = BETA_2 * v + (1.0 - BETA_2) * tf.square(gradient)
        first, second = _corrections(number)
        update = (new_m / first) / (tf.sqrt(new_v / second) + EPSILON)
        ratio = 1.0
        if not self.excluded[index]:
            update += self.decay_rates[index] * variable
            size, change = tf.norm(variable), tf.norm(update)
            ratio = tf.where((size > 0) & (change > 0), tf.math.divide_no_nan(size, change), 1.0)
        m.assign(new_m)
        v.assign(new_v)
        variable.assign_sub(learning_rate * ratio * update)


class Muon(BertAdam):
    """Muon for the matrices between hidden states (Jordan et al. 2024), AdamW for all else.

    m ← μm + (1−μ)g;  w ← w − lr·(0.2·√max(rows, columns)·O + decay·w),  O = orthogonal(μm + (1−μ)g)

    The update of a matrix has singular values near 1 in all directions. Its factor gives it the
    root mean square of AdamW's updates, so that the same learning rate and decay serve both kinds
    of weights (Liu et al. 2025, section 2.2). Matrices are the kernels of rank 2: queries, keys,
    values, attention's output, both wide layers, the pooler and the masked-LM head's transform;
    embeddings, biases, layer norms, a BiLSTM (whose matrices are of four gates each) and the last
    layers of heads are AdamW's. A matrix has one moment, not two.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, bias_correction=True, **options)

    def _has_second_moment(self, index: int) -> bool:
        name, rank = self.names[index], self.variables[index].shape.rank
        return not (name.endswith("/kernel") and rank == 2) or name.startswith("bilstm/")

    def _update(self, variable, m, v, gradient, direction, learning_rate, number, index):
        if v is not None:
            super()._update(variable, m, v, gradient, None, learning_rate, number, index)
            return
        m.assign(_moved(m, gradient))
        update = MUON_RMS * math.sqrt(max(variable.shape)) * direction
        update += self.decay_rates[index] * variable
        variable.assign_sub(learning_rate * update)

    def _directions(self, gradients, scale):
        moved = {}
        for index, gradient in gradients.items():
            if self.v[index] is None:
                scaled = gradient * scale
                moved[index] = _moved(_moved(self.m[index], scaled), scaled)
        return orthogonal_updates(moved)


def _moved(momentum, gradient):
    return MUON_MOMENTUM * momentum + (1.0 - MUON_MOMENTUM) * gradient


def make_optimizer(
    name: str, variables: Mapping[str, tf.Variable], schedule: Schedule, **options
) -> Optimizer:
    """An optimizer by name.

    Args:
        name: "adam" is the original's, without bias correction; "adamw" has it; "lamb"; "muon".
        variables, schedule, **options: See `Optimizer`.

    Raises:
        ModelingError: Another name.
    """
    if name == "lamb":
        return Lamb(variables, schedule, **options)
    if name == "muon":
        return Muon(variables, schedule, **options)
    if name in ("adam", "adamw"):
        return BertAdam(variables, schedule, bias_correction=name == "adamw", **options)
    raise ModelingError(f"--optimizer must be one of {', '.join(OPTIMIZERS)}; got {name!r}.")
