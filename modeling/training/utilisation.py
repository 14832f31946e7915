"""How much of a machine's arithmetic a training run uses: model FLOPs over the peak.

The model's operations are counted as `modeling.training.flops` counts them (Chowdhery et al. 2022,
appendix B, "MFU"). The peak is the data sheet's for TPUs and GPUs, 16-bit or TF32/float32 as the
run computes; a CPU's is measured by multiplying matrices for a moment.
"""

import os
import re
import time
from collections.abc import Mapping

import keras
import tensorflow as tf
from absl import logging

from modeling.config import BertConfig
from modeling.training.distribution import on_tpu
from modeling.training.flops import train_step_flops

# Operations a second of one device with 16-bit numbers, dense, by the makers' data sheets; the
# second number is for float32 (on NVIDIA GPUs without TF32, which TensorFlow uses by default
# from Ampere on, so there it is TF32's). TPUs multiply in bfloat16 by default.
GPU_PEAKS = {
    "H200": (989e12, 495e12),
    "H100 PCIe": (756e12, 378e12),
    "H100": (989e12, 495e12),
    "A100": (312e12, 156e12),
    "A10G": (70e12, 35e12),
    "A10": (125e12, 62.5e12),
    "L40S": (362e12, 183e12),
    "L4": (121e12, 60e12),
    "RTX 4090": (165e12, 82.6e12),
    "RTX 3090": (71e12, 35.6e12),
    "V100": (125e12, 15.7e12),
    "T4": (65e12, 8.1e12),
}
TPU_PEAKS = {"v2": 45e12, "v3": 123e12, "v4": 275e12, "v5litepod": 197e12, "v5e": 197e12}
TPU_PEAKS |= {"v5p": 459e12, "v6e": 918e12}
# Cores of a chip that TensorFlow counts as replicas of their own.
_TWO_CORES = ("v2", "v3")


def batch_flops(config: BertConfig, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """float32 scalar: operations of a training step on `batch`, padding included."""
    shape = tf.cast(tf.shape(batch["input_ids"]), tf.float32)
    rows, length = tf.reduce_prod(shape[:-1]), shape[-1]
    predictions = 0.0
    if "masked_lm_positions" in batch:
        predictions = tf.cast(tf.shape(batch["masked_lm_positions"])[-1], tf.float32)
    labels = 2 if {"next_sentence_labels", "label_ids"} & set(batch) else 0
    return train_step_flops(config, rows, length, predictions, labels)


def peak_flops() -> float | None:
    """Operations a second that all replicas of the present strategy could do at most.

    In what the present dtype policy computes in; call it in the strategy's scope.

    Returns:
        None where the device isn't known.
    """
    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    half = keras.config.dtype_policy().compute_dtype != "float32"
    if on_tpu():
        return _times(tpu_peak(os.environ.get("TPU_ACCELERATOR_TYPE", "")), replicas)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "")
        return _times(gpu_peak(name, half), replicas)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        replicas = 1  # which share the processors of this machine
    return _times(_cpu_speed(tf.bfloat16 if half else tf.float32), replicas)


def gpu_peak(name: str, half: bool) -> float | None:
    """Of the GPU that TensorFlow calls so, e.g. "NVIDIA A100-SXM4-80GB"."""
    words = f" {re.sub('[^A-Za-z0-9]+', ' ', name)} "
    for known, (short, full) in GPU_PEAKS.items():
        if f" {known} " in words:
            return short if half else full
    return None


def tpu_peak(accelerator_type: str) -> float | None:
    """Of one replica of a TPU by its type, e.g. "v4-8" or "v5litepod-16"."""
    version = accelerator_type.split("-")[0]
    peak = TPU_PEAKS.get(version)
    return peak / 2 if peak and version in _TWO_CORES else peak


def _times(peak: float | None, replicas: int) -> float | None:
    return peak * replicas if peak else None


def _cpu_speed(dtype: tf.DType, seconds: float = 1.0) -> float:
    """Operations a second of products of matrices; the best of some for so long."""
    size = 1024
    x = tf.cast(tf.random.stateless_normal([2 * size, size], [1, 2]), dtype)
    w = tf.cast(tf.random.stateless_normal([size, size], [3, 4]) / size**0.5, dtype)

    @tf.function
    def chain(x):
        for _ in range(4):
            x = tf.matmul(x, w)
        return x

    chain(x)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        begun = time.perf_counter()
        chain(x)[0, 0].numpy()
        best = min(best, time.perf_counter() - begun)
    speed = 4 * 2 * 2 * size**3 / best
    logging.info("This machine multiplies %s matrices at %.0f GFLOP/s.", dtype.name, speed / 1e9)
    return speed
