"""A model over a whole data set: exact means, or one row of outputs per example."""

import numpy as np
import tensorflow as tf

from modeling.training.step import Losses


def evaluate(model, losses: Losses, dataset) -> dict[str, float]:
    """Exact means over a whole data set, each example counted once.

    Args:
        model, losses: As for `TrainStep`.
        dataset: Finite; rows that only fill up a batch have `is_real_example` 0.

    Returns:
        Name → mean of every loss and metric; `loss` is the sum of the losses.
    """
    strategy = tf.distribute.get_strategy()
    names: list[str] = []
    loss_names: list[str] = []

    def replica_eval(batch):
        found, metrics = losses(model(batch), batch)
        loss_names[:] = list(found)
        names[:] = list(found | metrics)
        sums = tf.stack([tf.stack([m.total, m.weight]) for m in (found | metrics).values()])
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, sums)

    @tf.function(reduce_retracing=True)
    def step(batch):
        return strategy.experimental_local_results(strategy.run(replica_eval, args=(batch,)))[0]

    if strategy.num_replicas_in_sync > 1:
        dataset = strategy.experimental_distribute_dataset(dataset)
    sums = 0.0
    for batch in dataset:
        sums = sums + step(batch).numpy().astype("float64")
    results = {
        name: float(total / weight) if weight else 0.0
        for name, (total, weight) in zip(names, sums, strict=True)
    }
    results["loss"] = sum(results[name] for name in loss_names)
    return results


def predict(model, dataset, output: str) -> np.ndarray:
    """One row per example, in the order of their `index`.

    Args:
        model: Called on each batch.
        dataset: Finite batches with `index` int64 [B] and `is_real_example` float32 [B].
        output: Which of the model's outputs to return, [B, ...].

    Returns:
        [examples, ...].
    """

    @tf.function(reduce_retracing=True)
    def step(batch):
        return model(batch)[output]

    indices, rows = [], []
    for batch in dataset:
        real = batch["is_real_example"].numpy() > 0
        indices.append(batch["index"].numpy()[real])
        rows.append(step(batch).numpy()[real])
    order = np.argsort(np.concatenate(indices), kind="stable")
    return np.concatenate(rows)[order]
