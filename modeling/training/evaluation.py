"""A model over a whole data set: exact means, or one row of outputs per example."""

import numpy as np
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.losses import Losses
from modeling.training.distribution import distribute


class Evaluator:
    """Exact means over a data set, each example counted once, on all replicas.

    Made once and called as often as wanted: the model is compiled at the first call.

    Args:
        model, losses: As for `TrainStep`.
    """

    def __init__(self, model, losses: Losses):
        self.model = model
        self.losses = losses
        self.strategy = tf.distribute.get_strategy()
        self._names: list[str] = []
        self._loss_names: list[str] = []
        self._step = tf.function(self._batch, reduce_retracing=True)

    def __call__(self, dataset) -> dict[str, float]:
        """Evaluates a finite data set.

        Args:
            dataset: Batches; rows that only fill one up have `is_real_example` 0.

        Returns:
            Name → mean of every loss and metric; `loss` is the sum of the losses.

        Raises:
            ModelingError: The data set is empty.
        """
        dataset = distribute(dataset)
        sums = None
        for batch in dataset:
            values = self._step(batch).numpy().astype("float64")
            sums = values if sums is None else sums + values
        if sums is None:
            raise ModelingError("There is nothing to evaluate on: the data set has no examples.")
        results = {
            name: float(total / weight) if weight else 0.0
            for name, (total, weight) in zip(self._names, sums, strict=True)
        }
        results["loss"] = sum(results[name] for name in self._loss_names)
        return results

    def _batch(self, batch):
        values = self.strategy.run(self._replica_batch, args=(batch,))
        return self.strategy.experimental_local_results(values)[0]

    def _replica_batch(self, batch):
        losses, metrics = self.losses(self.model(batch), batch)
        self._loss_names = list(losses)
        self._names = list(losses | metrics)
        sums = tf.stack([tf.stack([m.total, m.weight]) for m in (losses | metrics).values()])
        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, sums)


def predict(model, dataset, output: str) -> np.ndarray:
    """One row per example, in the order of their `index`.

    Args:
        model: Called on each batch.
        dataset: Finite batches with `index` int64 [B] and `is_real_example` float32 [B].
        output: Which of the model's outputs to return, [B, ...].

    Returns:
        [examples, ...].
    """
    strategy = tf.distribute.get_strategy()
    alone = strategy.num_replicas_in_sync == 1
    dataset = distribute(dataset)

    @tf.function(reduce_retracing=True)
    def step(batch):
        def replica_step(batch):
            return batch["index"], batch["is_real_example"], model(batch)[output]

        values = strategy.run(replica_step, args=(batch,))
        # From all replicas of all workers.
        return values if alone else [strategy.gather(value, axis=0) for value in values]

    indices, rows = [], []
    for batch in dataset:
        index, real, values = (tensor.numpy() for tensor in step(batch))
        indices.append(index[real > 0])
        rows.append(values[real > 0])
    order = np.argsort(np.concatenate(indices), kind="stable")
    return np.concatenate(rows)[order]
