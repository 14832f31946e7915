"""A model over a whole data set: exact means, or one row of outputs per example."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.layers.execution import INFERENCE
from modeling.logs import activity
from modeling.losses import Losses
from modeling.models import ABSENT
from modeling.side_by_side import side_by_side
from modeling.training.engine.distribution import distribute_dataset


def shown_results(step: Callable, dataset: Iterable, what: str) -> Iterator:
    """What `step` gives for each batch of a data set; an activity tells how many are done."""
    # Of a distributed data set it isn't known.
    count = dataset.cardinality() if isinstance(dataset, tf.data.Dataset) else -1
    with activity(what, "batches", int(count) if count > 0 else None) as progress:
        for result in side_by_side(step, dataset):
            yield result
            progress.add(1)


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
        self._step = tf.function(self._batch, reduce_retracing=True, autograph=False)

    def __call__(self, dataset) -> dict[str, float]:
        """Evaluates a finite data set.

        Args:
            dataset: Batches; rows that only fill one up have `is_real_example` 0.

        Returns:
            Name → mean of every loss and metric; `loss` is the sum of the losses.

        Raises:
            ModelingError: The data set is empty.
        """
        sums = None
        for values in shown_results(self._step, distribute_dataset(dataset), "Evaluating"):
            values = values.numpy().astype("float64")
            sums = values if sums is None else sums + values
        if sums is None:
            raise ModelingError("There is nothing to evaluate on: the data set has no examples.")
        results = {
            name: float(total / weight) if weight else 0.0
            for name, (total, weight) in zip(self._names, sums, strict=True)
        }
        results["loss"] = sum(results[name] for name in self._loss_names)
        return results

    def names(self, dataset) -> list[str]:
        """Names of the results that evaluating such a data set gives; nothing is computed."""
        self._step.get_concrete_function(distribute_dataset(dataset).element_spec)
        return [*dict.fromkeys([*self._names, "loss"])]

    def _batch(self, batch):
        values = self.strategy.run(self._replica_batch, args=(batch,))
        return self.strategy.experimental_local_results(values)[0]

    def _replica_batch(self, batch):
        outputs = self.model(batch, execution=INFERENCE)
        losses, metrics = self.losses(outputs, batch)
        self._loss_names = list(losses)
        self._names = list(losses | metrics)
        sums = tf.stack([tf.stack([m.total, m.weight]) for m in (losses | metrics).values()])
        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, sums)


class ReplicaPredictor:
    """A model's output for every example of a data set, on all replicas.

    Made once and called as often as wanted: the model is compiled at the first call.

    Args:
        model: Called on each batch as model(batch, execution=INFERENCE).
        output: Which of its outputs to return, [B, ...].
    """

    def __init__(self, model, output: str = "logits"):
        self.model = model
        self.output = output
        self.strategy = tf.distribute.get_strategy()
        self._step = tf.function(self._batch, reduce_retracing=True, autograph=False)

    def __call__(self, dataset) -> np.ndarray:
        """One row per example, in the order of their `index`.

        Args:
            dataset: Finite batches with `index` int64 [B] and `is_real_example` float32 [B].

        Returns:
            [examples, ...]. Where batches have different numbers of choices, those that there
            aren't have the logit ABSENT.
        """
        parts = list(self.of_batches(dataset))
        if not parts:
            return np.zeros((0, 1), np.float32)
        indices, rows = zip(*parts, strict=True)
        order = np.argsort(np.concatenate(indices), kind="stable")
        return np.concatenate(_of_one_shape(rows))[order]

    def of_batches(self, dataset) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batch after batch `index` int64 [B] and the output's rows [B, ...], of real examples."""
        for result in shown_results(self._step, distribute_dataset(dataset), "Predicting"):
            index, real, values = (tensor.numpy() for tensor in result)
            yield index[real > 0], values[real > 0]

    def _batch(self, batch):
        def replica_batch(batch):
            output = self.model(batch, execution=INFERENCE)[self.output]
            return batch["index"], batch["is_real_example"], output

        values = self.strategy.run(replica_batch, args=(batch,))
        if self.strategy.num_replicas_in_sync == 1:
            return values
        # From all replicas of all workers.
        return [self.strategy.gather(value, axis=0) for value in values]


def _of_one_shape(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays filled up behind their axes but the first to the largest shape."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0, initial=0).astype(int)
    return [
        np.pad(
            array,
            [(0, 0), *((0, n - m) for n, m in zip(shape, array.shape[1:], strict=True))],
            constant_values=ABSENT,
        )
        for array in arrays
    ]
