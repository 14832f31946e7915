"""A small run, made to be killed; `test_killed.py` starts it again and again.

    python -m tests.modeling.training.killable FOLDER REPLICAS [FATAL_OPERATION [RECIPE]]

Trains with dropout, saving often, and leaves the weights in FOLDER/weights.npz when it is done.
With a recipe other than "paper" the last half of the steps is averaged besides.
With FATAL_OPERATION = N the process kills itself, as SIGKILL would, at the N-th file operation of
saving checkpoints.
"""

import dataclasses
import itertools
import os
import signal
import sys

import numpy as np
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.layers.local_start import start_locally
from modeling.losses import PretrainingLosses
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.recipes import RECIPES
from modeling.training.runs.fit import LoopOptions, RunStage, fit_run
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import prepare_run_folder
from tests.modeling.training.test_training import batches, tiny_model

STEPS = 240


def die_at(number: int) -> None:
    """Kills this process before the `number`-th write, rename or removal from now on."""
    count = itertools.count(1)

    def fatal(function):
        def wrapped(*args, **kwargs):
            if next(count) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return wrapped

    for module, name in (
        (tf1, "write_bundle"),
        (tf.io.gfile, "rename"),
        (tf.io.gfile, "remove"),
        (tf.io.gfile, "rmtree"),
    ):
        setattr(module, name, fatal(getattr(module, name)))


def main(folder: str, replicas: int, fatal_operation: int, recipe: str) -> None:
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpus[0], [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    prepare_run_folder(folder)
    if fatal_operation:
        die_at(fatal_operation)
    with strategy.scope():
        model = tiny_model(dropout_prob=0.2)
        settings = EngineSettings(1e-3, STEPS, 20, seed=7)
        if recipe != "paper":
            flags = dict(RECIPES[recipe])
            assert flags.pop("initialization") == "local"
            start_locally(model.encoder, settings.seed)
            settings = dataclasses.replace(settings, average_last=0.5, **flags)
        train_step = make_train_step(model, PretrainingLosses(), settings)
        fit_run(
            train_step,
            [RunStage(150, batches, "first data", 8), RunStage(STEPS, batches, "second data", 8)],
            folder,
            None,
            Reporter(folder, STEPS, 8),
            LoopOptions(save_checkpoints_steps=8, keep_checkpoint_max=2, iterations_per_loop=4),
        )
    weights = checkpoints.weights_by_name(model)
    np.savez(
        os.path.join(folder, "weights.npz"), **{n: w.value.numpy() for n, w in weights.items()}
    )


if __name__ == "__main__":
    folder, replicas, fatal, recipe = [*sys.argv[1:], *("0", "paper")[len(sys.argv) - 3 :]]
    main(folder, int(replicas), int(fatal), recipe)
