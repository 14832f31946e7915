"""One training step, compiled, on any number of replicas.

forward → losses as global means → backward → dense gradients → all-reduce → clip by global norm
→ update. Clipping comes after the all-reduce, so that N replicas take the step that one device
would take with the whole batch (the original clipped each replica on its own).
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from modeling.losses import Mean
from modeling.training.optimizers import BertAdam

Losses = Callable[[Mapping, Mapping], tuple[dict[str, Mean], dict[str, Mean]]]

CLIP_NORM = 1.0


class TrainStep:
    """Runs training steps inside one `tf.function`.

    Args:
        model: A `keras.Model`, called as model(batch, training=True, dropout_key=key).
        losses: (outputs, batch) → (losses, metrics); see `modeling.losses`.
        optimizer: Updates the model's variables.
        seed: Of the dropout masks, together with step and replica.
        original_sparse_norm: Takes the norm for clipping as the original did in fine-tuning: over
            the rows of the word embedding's sparse gradient without first adding up rows of
            equal ids. Only for comparison with its numbers, on one replica.
    """

    def __init__(
        self,
        model,
        losses: Losses,
        optimizer: BertAdam,
        seed: int,
        original_sparse_norm: bool = False,
    ):
        self.model = model
        self.losses = losses
        self.optimizer = optimizer
        self.seed = seed
        self.original_sparse_norm = original_sparse_norm
        self.strategy = tf.distribute.get_strategy()
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self.metric_names: list[str] = []
        self._run = tf.function(self._run_steps)

    def run(self, iterator, steps: int) -> dict[str, list[tuple[float, float]]]:
        """Does `steps` updates with batches from `iterator`.

        Returns:
            Name → one (total, weight) per step; `loss`, the sum of the losses' means, the
            `learning_rate` used and the `gradient_norm` before clipping have weight 1.
        """
        values = self._run(iterator, tf.constant(steps, tf.int32)).numpy()  # [steps, names, 2]
        return {
            name: [(float(total), float(weight)) for total, weight in values[:, index]]
            for index, name in enumerate(self.metric_names)
        }

    def _run_steps(self, iterator, steps):
        history = tf.TensorArray(tf.float32, size=steps)
        for index in tf.range(steps):
            step = tf.identity(self.global_step)
            values = self.strategy.run(self._replica_step, args=(next(iterator), step))
            history = history.write(index, self.strategy.experimental_local_results(values)[0])
            self.global_step.assign_add(1)
        return history.stack()

    def _replica_step(self, batch, step):
        replica = tf.distribute.get_replica_context()

        def total(tensors):
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

        stream = tf.cast(replica.replica_id_in_sync_group, tf.int32)
        key = tf.stack([tf.constant(self.seed, tf.int32), tf.cast(step, tf.int32), stream])
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, dropout_key=key)
            losses, metrics = self.losses(outputs, batch)
            weights = total([mean.weight for mean in losses.values()])
            loss = tf.add_n(
                [
                    tf.math.divide_no_nan(mean.total, weight + mean.epsilon)
                    for mean, weight in zip(losses.values(), weights, strict=True)
                ]
            )
        gradients = tape.gradient(loss, self.optimizer.variables)
        sparse_norm = tf.linalg.global_norm(gradients) if self.original_sparse_norm else None
        # Dense before anything else: rows of equal ids must be added before they are squared.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        reduced = iter(total([g for g in gradients if g is not None]))
        gradients = [g if g is None else next(reduced) for g in gradients]
        norm = tf.linalg.global_norm(gradients) if sparse_norm is None else sparse_norm
        learning_rate = self.optimizer.schedule(step)
        self.optimizer.apply(gradients, learning_rate, CLIP_NORM / tf.maximum(norm, CLIP_NORM))

        means = losses | metrics
        named = ["loss", *(name for name in means if name != "loss")]
        self.metric_names = [*named, "learning_rate", "gradient_norm"]
        ones = tf.ones([])
        sums = total([tf.stack([mean.total, mean.weight]) for mean in means.values()])
        rows = dict(zip(means, sums, strict=True))
        rows["loss"] = tf.stack([total(loss), ones])
        rows["learning_rate"] = tf.stack([learning_rate, ones])
        rows["gradient_norm"] = tf.stack([norm, ones])
        return tf.stack([rows[name] for name in self.metric_names])
