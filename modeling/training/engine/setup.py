"""From settings to a training step: the one place that puts optimizer and step together.

with strategy.scope():
    train_step = make_train_step(model, ClassifierLosses(), EngineSettings(2e-5, 1000, 100, seed=1))
"""

import dataclasses
import math

import keras
import tensorflow as tf
from absl import logging

from modeling.checkpoints import weights_by_name
from modeling.errors import ModelingError
from modeling.layers.execution import PLAIN, Execution, xla_execution_is_available
from modeling.losses import Losses
from modeling.side_by_side import batches_at_once
from modeling.training.engine import schedules
from modeling.training.engine.distribution import strategy_on_tpu
from modeling.training.engine.optimizers import make_optimizer
from modeling.training.engine.precision import make_loss_scale
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.step import TrainStep

CHAINS_FROM = 256
"""Least hidden_size whose chains are compiled: that takes 1.7 seconds for each shape of a batch,
however many layers there are, which narrower models hardly win back."""

OPTIMIZATION = (
    *("optimizer", "lr_schedule", "lr_decay_power", "weight_decay_rate", "layerwise_lr_decay"),
    *("freeze_layers", "average_last", "dropout"),
)
"""Settings, and flags, that are part of what a run is; beside those that its schedule is of."""
MOST_AVERAGED = 1000
"""Updates whose weights are averaged, or up to twice as many."""


@dataclasses.dataclass(frozen=True)
class EngineSettings:
    """How a model is trained.

    Attributes:
        learning_rate: Peak of the schedule.
        num_train_steps: Updates in all.
        num_warmup_steps: Updates of linear warm-up.
        seed: Of dropout.
        optimizer, lr_schedule: Names, see `optimizers` and `schedules`.
        lr_decay_power: Of the schedule "polynomial".
        weight_decay_rate: Decoupled decay, as a share of the learning rate.
        layerwise_lr_decay: Factor of the learning rate from each layer to the one below it.
        freeze_layers: First layers of the encoder that aren't trained, see
            `schedules.layerwise_trained_weights`.
        average_last: Share of the updates, the last ones, whose weights' mean is the result.
        dropout: Whether the configuration's dropout is applied.
        accumulation_steps: Micro-batches of a step, one after the other.
        jit_compile: Compile with XLA. TPUs do anyway, and there it is left out.
    """

    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int
    seed: int
    optimizer: str = "adam"
    lr_schedule: str = "linear"
    lr_decay_power: float = 0.5
    weight_decay_rate: float = 0.01
    layerwise_lr_decay: float = 1.0
    freeze_layers: int = 0
    average_last: float = 0.0
    dropout: bool = True
    accumulation_steps: int = 1
    jit_compile: bool = False


def averaged_updates(share: float, num_train_steps: int) -> range:
    """The numbers of the updates whose weights are averaged: a share of all, the last one included.

    Evenly spread ones where they would be more than a few thousand: the mean is then the same but
    for chance, while in a running one of 100,000 each would change less than float32 can tell.
    """
    count = math.ceil(share * num_train_steps)
    every = max(1, count // MOST_AVERAGED)
    first = num_train_steps - (max(count, 1) - 1) // every * every
    return range(first, num_train_steps + 1, every) if count else range(0)


def make_train_step(model, losses: Losses, settings: EngineSettings) -> TrainStep:
    """The training step of a built model; call it in the strategy's scope.

    Raises:
        ModelingError: More layers are to be frozen than there are, or an unknown name.
    """
    layers = model.config.num_hidden_layers
    if settings.freeze_layers > layers:
        raise ModelingError(
            f"--freeze_layers is {settings.freeze_layers}, but the model has {layers} layers."
        )
    weights = {name: weight.value for name, weight in weights_by_name(model).items()}
    trainable = [name for name, w in weights_by_name(model).items() if w.trainable]
    names = schedules.layerwise_trained_weights(trainable, settings.freeze_layers, layers)
    if len(names) < len(trainable):
        logging.info("%d of %d weights are trained; the others stay.", len(names), len(weights))
    parts = 1 if settings.jit_compile else batches_at_once()
    if settings.accumulation_steps > 1 or parts > 1:
        # Grappler turns sums of large gradients into temporary variables, of which TensorFlow
        # then finds two of one name in the loop over micro-batches ("AlreadyExists").
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    schedule = make_schedule(
        settings.lr_schedule,
        settings.learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
        settings.lr_decay_power,
    )
    last = settings.num_train_steps
    averaged = averaged_updates(settings.average_last, last)
    optimizer = make_optimizer(
        settings.optimizer,
        {name: weights[name] for name in names},
        schedule,
        weight_decay_rate=settings.weight_decay_rate,
        rate_factors=schedules.rate_factors(names, settings.layerwise_lr_decay, layers),
        averaged=averaged or None,
    )
    return TrainStep(
        model,
        losses,
        optimizer,
        settings.seed,
        dropout=settings.dropout,
        accumulation_steps=settings.accumulation_steps,
        parts=parts,
        loss_scale=make_loss_scale(model),
        jit_compile=settings.jit_compile and not strategy_on_tpu(),
        execution=engine_execution(model, settings.jit_compile),
        frozen_layers=settings.freeze_layers,
    )


def engine_execution(model: keras.Model, jit_compile: bool) -> Execution:
    """What pays for a model here. With `jit_compile` and on TPUs XLA compiles it all anyway.

    Chains are compiled in training alone: evaluations have too many shapes of batches for too few
    batches.
    """
    wide = model.config.hidden_size >= CHAINS_FROM
    if wide and not jit_compile and not strategy_on_tpu() and xla_execution_is_available():
        return Execution(compile_chains=True)
    return PLAIN
