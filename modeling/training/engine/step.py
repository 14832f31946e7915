"""One training step, compiled, on any number of replicas.

weights of the losses over all replicas → forward and backward, one micro-batch after the other, on
a processor in parts side by side → dense gradients → all-reduce → clip by global norm → update.
Clipping comes after the all-reduce, so that N replicas take the step that one device would take
with the whole batch (the original clipped each replica on its own).
"""

import itertools

import numpy as np
import tensorflow as tf

from modeling.layers.execution import PLAIN, Execution
from modeling.losses import Losses
from modeling.training.engine.flops import step_flops
from modeling.training.engine.optimizers import Optimizer
from modeling.training.engine.precision import LossScale

CLIP_NORM = 1.0
# An int64 [B] in a training batch that says which examples it holds, or [B, K] where a row holds
# several of them and -1 stands for none. The model never sees it.
EXAMPLE_IDS = "index"


class TrainStep:
    """Runs training steps inside one `tf.function`.

    Args:
        model: A `keras.Model`, called as model(batch, dropout_key=key, execution=execution).
        losses: See `modeling.losses`.
        optimizer: Updates its variables, which may be a part of the model's.
        seed: Of the dropout masks, together with step, replica and micro-batch.
        dropout: Whether there are any dropout masks.
        accumulation_steps: Micro-batches that a replica's batch is cut into, which has to be
            possible. The update is that of the whole batch; only the dropout masks are others.
        parts: That are computed side by side of each batch or micro-batch, if its number of
            examples is known; they give the same numbers. See `modeling.side_by_side`.
        loss_scale: For float16; None for other types.
        jit_compile: Compiles the forward and backward pass with XLA, on each replica for itself.
            On a TPU that happens anyway, and this must be False.
        execution: How the model's forward pass is run.
        frozen_layers: The first layers that the optimizer leaves alone, for counting operations.
    """

    def __init__(
        self,
        model,
        losses: Losses,
        optimizer: Optimizer,
        seed: int,
        *,
        dropout: bool = True,
        accumulation_steps: int = 1,
        parts: int = 1,
        loss_scale: LossScale | None = None,
        jit_compile: bool = False,
        execution: Execution = PLAIN,
        frozen_layers: int = 0,
    ):
        self.model = model
        self.losses = losses
        self.optimizer = optimizer
        self.seed = seed
        self.dropout = dropout
        self.accumulation_steps = accumulation_steps
        self.parts = parts
        self.loss_scale = loss_scale
        self.frozen_layers = frozen_layers
        self.strategy = tf.distribute.get_strategy()
        self.execution = execution
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self._metric_names: list[str] = []
        self.example_ids = None
        self._sum_names: list[str] = []
        self._gradients = self._batch_gradients
        if jit_compile:
            self._gradients = tf.function(self._batch_gradients, jit_compile=True, autograph=False)
        # A function that is called, so that it is traced and optimized once for all parts.
        self._part_gradients = tf.function(
            self._examples_gradients,
            autograph=False,
            experimental_attributes={"_noinline": True},
        )
        # AutoGraph would take a second to rewrite what has one loop.
        self._run = tf.function(self._run_steps, autograph=False)

    def run(self, iterator, steps: int) -> dict[str, list[tuple[float, float]]]:
        """Does `steps` updates with batches from `iterator`.

        `example_ids` then holds int64 [B] for each step, which examples it saw, if the batches
        say so (and None otherwise).

        Returns:
            Name → one (total, weight) per step; `loss`, the sum of the losses' means, the
            `learning_rate` used and the `gradient_norm` before clipping have weight 1. `tokens`
            is the number of real tokens with that of places in the batch, `flops` counts
            operations as `flops.step_flops` does. With a loss scale
            also `loss_scale`, and `skipped_updates`, 1 where the gradient was not finite; the
            norm there has weight 0.
        """
        names, values, ids, sizes = self._run(iterator, tf.constant(steps, tf.int32))
        values = values.numpy()  # [steps, names, 2]
        self.example_ids = None
        if tf.size(ids):
            self.example_ids = np.split(ids.numpy(), np.cumsum(sizes.numpy())[:-1])
        return {
            name.decode(): [(float(total), float(weight)) for total, weight in values[:, index]]
            for index, name in enumerate(names.numpy())
        }

    def _run_steps(self, iterator, steps):
        history = tf.TensorArray(tf.float32, size=steps)
        # Batches made by a budget of tokens differ in size.
        ids = tf.TensorArray(tf.int64, size=steps, infer_shape=False, element_shape=[None])
        sizes = tf.TensorArray(tf.int32, size=steps)

        def one_step(index, history, ids, sizes):
            step = tf.identity(self.global_step)
            batch = dict(next(iterator))
            examples = batch.pop(EXAMPLE_IDS, tf.zeros([0], tf.int64))
            examples = self.strategy.experimental_local_results(examples)
            examples = tf.concat([tf.reshape(of_replica, [-1]) for of_replica in examples], 0)
            ids = ids.write(index, examples)
            sizes = sizes.write(index, tf.size(examples))
            values = self.strategy.run(self._replica_step, args=(batch, step))
            history = history.write(index, self.strategy.experimental_local_results(values)[0])
            self.global_step.assign_add(1)
            return index + 1, history, ids, sizes

        start = tf.constant(0), history, ids, sizes
        _, history, ids, sizes = tf.while_loop(
            lambda index, *_: index < steps, one_step, start, maximum_iterations=steps
        )
        # Batches of another kind, which are traced anew, may have others.
        names = tf.constant(self._metric_names)
        return names, history.stack(), ids.concat(), sizes.stack()

    def _replica_step(self, batch, step):
        replica = tf.distribute.get_replica_context()

        def total(tensors):
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

        # ---- Gradients of this replica's share ----
        weights = total(list(self.losses.weights(batch).values()))
        stream = tf.cast(replica.replica_id_in_sync_group, tf.int32) * self.accumulation_steps
        key = tf.stack([tf.constant(self.seed, tf.int32), tf.cast(step, tf.int32), stream])
        scale = tf.ones([]) if self.loss_scale is None else tf.identity(self.loss_scale.scale)
        gradients, sums = self._gradients(batch, key, weights, scale)

        # ---- Of all replicas ----
        reduced = iter(total([g for g in gradients if g is not None]))
        gradients = [g if g is None else next(reduced) for g in gradients]
        norm = tf.linalg.global_norm(gradients) / scale

        # ---- Update ----
        learning_rate = self.optimizer.schedule(step)
        factor = CLIP_NORM / tf.maximum(norm, CLIP_NORM) / scale
        finite = None if self.loss_scale is None else tf.math.is_finite(norm)
        self.optimizer.apply(gradients, learning_rate, factor, step=step, finite=finite)
        if self.loss_scale is not None:
            self.loss_scale.update(finite)

        # ---- What the step has to tell ----
        one = tf.ones([])
        rows = dict(zip(self._sum_names, tf.unstack(total(sums)), strict=True))
        rows["loss"] = tf.stack([rows["loss"][0], one])
        mask = batch.get("input_mask")
        if mask is not None:
            places = tf.stack([tf.reduce_sum(mask), tf.size(mask)])
            rows["tokens"] = total(tf.cast(places, tf.float32))
        flops = step_flops(self.model, batch, self.frozen_layers)
        if flops is not None:
            rows["flops"] = tf.stack([total(flops), one])
        rows["learning_rate"] = tf.stack([learning_rate, one])
        rows["gradient_norm"] = tf.stack([norm, one])
        if finite is not None:
            good = tf.cast(finite, tf.float32)
            rows["gradient_norm"] = tf.where(finite, rows["gradient_norm"], 0.0)
            rows["loss_scale"] = tf.stack([scale, one])
            rows["skipped_updates"] = tf.stack([1.0 - good, one])
        self._metric_names = list(rows)
        return tf.stack(list(rows.values()))

    def _batch_gradients(self, batch, key, weights, scale):
        """Sums over the micro-batches: (gradients, [names, 2])."""
        number = self.accumulation_steps
        if number == 1:
            return self._micro_batch_gradients(batch, key, weights, scale)
        parts = {name: _divided(tensor, number) for name, tensor in batch.items()}

        def micro_batch(index):
            part = {name: tensor[index] for name, tensor in parts.items()}
            stream = tf.stack([0, 0, index])
            return self._micro_batch_gradients(part, key + stream, weights, scale)

        # The first one outside of the loop shows which variables have a gradient.
        gradients, sums = micro_batch(tf.constant(0))
        connected = [g is not None for g in gradients]

        def add(index, sums, *accumulated):
            more, more_sums = micro_batch(index)
            more = [g for g in more if g is not None]
            added = [a + g for a, g in zip(accumulated, more, strict=True)]
            return index + 1, sums + more_sums, *added

        dense = [g for g in gradients if g is not None]
        # One at a time, or the executor would hold the activations of several.
        with tf.control_dependencies(dense):
            start = tf.constant(1)
        _, sums, *dense = tf.while_loop(
            lambda index, *_: index < number,
            add,
            [start, sums, *dense],
            parallel_iterations=1,
            maximum_iterations=number - 1,
        )
        summed = iter(dense)
        return [next(summed) if is_connected else None for is_connected in connected], sums

    def _micro_batch_gradients(self, batch, key, weights, scale):
        """Sums over the parts that are computed side by side: (gradients, [names, 2])."""
        size = next(iter(batch.values())).shape[0] or 1
        number = min(self.parts, size)
        if number == 1:
            return self._examples_gradients(batch, key, weights, scale)
        found = []
        bounds = [size * part // number for part in range(number + 1)]
        for begin, end in itertools.pairwise(bounds):
            part = {name: tensor[begin:end] for name, tensor in batch.items()}
            of_part = tf.concat([key, [begin, end - begin]], 0)
            found.append(self._part_gradients(part, of_part, weights, scale))
        gradients = zip(*(of_part for of_part, _ in found), strict=True)
        added = [None if gs[0] is None else tf.add_n(gs) for gs in gradients]
        return added, tf.add_n([sums for _, sums in found])

    def _examples_gradients(self, batch, key, weights, scale):
        with tf.GradientTape() as tape:
            dropout_key = key if self.dropout else None
            outputs = self.model(batch, dropout_key=dropout_key, execution=self.execution)
            losses, metrics = self.losses(outputs, batch)
            loss = tf.add_n(
                [
                    tf.math.divide_no_nan(mean.total, weight + mean.epsilon)
                    for mean, weight in zip(losses.values(), weights, strict=True)
                ]
            )
            scaled = loss if self.loss_scale is None else loss * scale
        gradients = tape.gradient(scaled, self.optimizer.variables)
        # Dense before anything else: rows of equal ids must be added before they are squared.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        rows = {"loss": tf.stack([loss, 0.0])}
        for name, mean in (losses | metrics).items():
            if name != "loss":  # of a single loss, which is the sum already
                rows[name] = tf.stack([mean.total, mean.weight])
        self._sum_names = list(rows)
        return gradients, tf.stack(list(rows.values()))


def _divided(tensor: tf.Tensor, number: int) -> tf.Tensor:
    """[B, ...] → [number, B / number, ...]."""
    size = tensor.shape[0]
    shape = tf.concat([[number, tf.shape(tensor)[0] // number], tf.shape(tensor)[1:]], 0)
    static = [number, None if size is None else size // number, *tensor.shape[1:]]
    return tf.ensure_shape(tf.reshape(tensor, shape), static)
