"""How forward passes are run in training, see `modeling.layers.execution`.

Chains are compiled in training alone: evaluations have too many shapes of batches for too few
batches.
"""

import keras

from modeling.layers.execution import PLAIN, Execution, xla_is_available
from modeling.training.engine.distribution import on_tpu

CHAINS_FROM = 256
"""Least hidden_size whose chains are compiled: that takes 1.7 seconds for each shape of a batch,
however many layers there are, which narrower models hardly win back."""


def training_execution(model: keras.Model, jit_compile: bool) -> Execution:
    """What pays for a model here. With `jit_compile` and on TPUs XLA compiles it all anyway."""
    wide = model.config.hidden_size >= CHAINS_FROM
    if wide and not jit_compile and not on_tpu() and xla_is_available():
        return Execution(compile_chains=True)
    return PLAIN
