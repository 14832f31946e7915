"""Peak memory of training steps of a 12-layer, 768-wide BERT, 8 records of 128 tokens.

    python -m tests.benchmarks.training_memory

Every setting in a process of its own: pre-training steps with Adam, on random records.
"""

from modeling import quiet  # noqa: F401  isort: skip

import subprocess
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.engine.precision import set_precision
from modeling.training.engine.setup import EngineSettings, make_train_step
from tests.benchmarks.peers.training_worker import peak_bytes

FLAGS = flags.FLAGS
VOCAB_SIZE = 30522
SETTINGS = (
    ("float32", False, 1),
    ("float32", True, 1),
    ("float32", False, 4),
    ("float32", True, 4),
    ("bfloat16", False, 1),
    ("bfloat16", True, 1),
    ("bfloat16", True, 4),
)


def records(batch_size: int, length: int, predictions: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (batch_size, length)
    return {
        "input_ids": rng.integers(0, VOCAB_SIZE, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "masked_lm_positions": rng.integers(0, length, (batch_size, predictions), np.int32),
        "masked_lm_ids": rng.integers(0, VOCAB_SIZE, (batch_size, predictions), np.int32),
        "masked_lm_weights": np.ones((batch_size, predictions), np.float32),
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1), np.int32),
    }


def measure(dtype: str, remat: bool, accumulation_steps: int) -> None:
    """Prints the peak and the seconds of the fastest of a few steps."""
    set_precision(dtype)
    keras.utils.set_random_seed(0)
    model = BertPretrainer(BertConfig.named("base", VOCAB_SIZE), remat=remat)
    model.build()
    settings = EngineSettings(1e-4, 100, 10, seed=0, accumulation_steps=accumulation_steps)
    step = make_train_step(model, PretrainingLosses(), settings)
    batch = records(FLAGS.batch_size, FLAGS.length, round(0.15 * FLAGS.length))
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    seconds = []
    for _ in range(FLAGS.steps):
        start = time.perf_counter()
        step.run(iterator, 1)
        seconds.append(time.perf_counter() - start)
    print(
        f"| {dtype} | {'yes' if remat else 'no'} | {accumulation_steps} "
        f"| {peak_bytes() / 2**30:.2f} | {min(seconds):.1f} |",
        flush=True,
    )


def main(_) -> None:
    if FLAGS.setting >= 0:
        measure(*SETTINGS[FLAGS.setting])
        return
    print(
        "| dtype | remat | accumulation | peak GiB | s/step |\n|---|---|---:|---:|---:|", flush=True
    )
    for number in range(len(SETTINGS)):
        command = [sys.executable, "-m", "tests.benchmarks.training_memory", *sys.argv[1:]]
        subprocess.run([*command, f"--setting={number}"], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    flags.DEFINE_integer("batch_size", 8, "Records per step.")
    flags.DEFINE_integer("length", 128, "Tokens per record.")
    flags.DEFINE_integer("steps", 3, "Steps of each setting.")
    flags.DEFINE_integer("setting", -1, "One row of the table; set by the command itself.")
    app.run(main)
