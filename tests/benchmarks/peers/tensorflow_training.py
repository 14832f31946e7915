"""What the workers on TensorFlow share: devices, batches, and steps in a loop inside the graph.

A step of Keras's `fit` and one of Model Garden's trainer both are a `tf.function` of forward,
backward and update, which calls itself in a loop where several steps are asked for at once
(`steps_per_execution`, `steps_per_loop`). That is what `Loop` is, without callbacks and metrics.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf


def on_gpu() -> bool:
    """Whether this process trains on one."""
    return bool(tf.config.list_physical_devices("GPU"))


def set_up(threads: int, dtype: str | None = None) -> None:
    """Sets the threads, and how matrix products are computed; before anything else.

    Args:
        threads: Within an operator, and operators at once.
        dtype: With bfloat16 TensorFlow's graph optimizer takes oneDNN's kernels for that on a CPU;
            they measure faster than Keras's mixed_bfloat16. None leaves that open.
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if dtype is not None and not on_gpu():
        tf.config.optimizer.set_experimental_options(
            {"auto_mixed_precision_onednn_bfloat16": dtype == "bfloat16"}
        )


def endless(batches: Sequence[dict[str, np.ndarray]]):
    """Iterator over the batches, again and again; int32 for int64, static shapes where possible."""

    def narrow(x):
        return x.astype(np.int32) if x.dtype.kind == "i" else x

    parts = [
        tf.data.Dataset.from_tensors({name: narrow(x) for name, x in batch.items()})
        for batch in batches
    ]
    whole = functools.reduce(lambda one, other: one.concatenate(other), parts)
    return iter(whole.repeat().prefetch(1))


class Loop:
    """Runs steps.

    Args:
        step: From a batch (dict of int32 tensors) to the loss, once it has trained on it.
    """

    def __init__(self, step: Callable):
        def loop(iterator, steps):
            loss = tf.zeros([])
            for _ in tf.range(steps):
                loss = step(next(iterator))
            return loss

        self._loop = tf.function(loop)

    def __call__(self, iterator, steps: int) -> float:
        return float(self._loop(iterator, tf.constant(steps)))


def cross_entropy(logits, labels):
    """Mean over all rows: float32 [..., C] and int32 [...]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)
