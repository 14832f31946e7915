"""How much of a machine's arithmetic a training run uses: model FLOPs over the peak.

The model's operations are counted as `engine.flops` counts them (Chowdhery et al. 2022,
appendix B, "MFU"). The peak is the data sheet's for TPUs and GPUs, 16-bit or TF32/float32 as the
run computes; a CPU's is measured by multiplying matrices for a moment.
"""

import functools
import os
import time

import keras
import tensorflow as tf
from absl import logging

from modeling.costs.peaks import gpu_peak, tpu_peak
from modeling.side_by_side import batches_at_once
from modeling.training.engine.distribution import strategy_on_tpu


def peak_flops() -> float | None:
    """Operations a second that all replicas of the present strategy could do at most.

    In what the present dtype policy computes in; call it in the strategy's scope.

    Returns:
        None where the device isn't known.
    """
    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    half = keras.config.dtype_policy().compute_dtype != "float32"
    if strategy_on_tpu():
        return _times(tpu_peak(os.environ.get("TPU_ACCELERATOR_TYPE", "")), replicas)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "")
        return _times(gpu_peak(name, half), replicas)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        replicas = 1  # which share the processors of this machine
    return _times(_cpu_speed(tf.bfloat16 if half else tf.float32), replicas)


def _times(peak: float | None, replicas: int) -> float | None:
    return peak * replicas if peak else None


@functools.cache  # of the runs of a search each asks
def _cpu_speed(dtype: tf.DType, seconds: float = 0.3) -> float:
    """Operations a second of products of matrices; the best of some for so long.

    As many side by side as batches are, so that all threads have something to do.
    """
    size, parts = 1024, batches_at_once()
    rows = 2 * size // parts
    x = tf.cast(tf.random.stateless_normal([parts, rows, size], [1, 2]), dtype)
    w = tf.cast(tf.random.stateless_normal([size, size], [3, 4]) / size**0.5, dtype)

    @tf.function(autograph=False)
    def chains(x):
        ends = tf.unstack(x)
        for _ in range(4):
            ends = [tf.matmul(end, w) for end in ends]
        return tf.add_n([end[0, 0] for end in ends])

    chains(x)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        begun = time.perf_counter()
        chains(x).numpy()
        best = min(best, time.perf_counter() - begun)
    speed = 4 * 2 * parts * rows * size**2 / best
    logging.info("This machine multiplies %s matrices at %.0f GFLOP/s.", dtype.name, speed / 1e9)
    return speed
