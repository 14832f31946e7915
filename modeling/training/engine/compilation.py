"""Where chains of small operations are compiled, see `modeling.layers.chains`.

In training alone: evaluations have too many shapes of batches for too few batches.
"""

import keras

from modeling.layers.chains import available
from modeling.training.engine.distribution import on_tpu

CHAINS_FROM = 256
"""Least hidden_size whose chains are compiled: that takes 1.7 seconds for each shape of a batch,
however many layers there are, which narrower models hardly win back."""


def compiles_chains(model: keras.Model) -> bool:
    """Whether it pays for a model here; on a TPU XLA compiles everything anyway."""
    wide = model.config.hidden_size >= CHAINS_FROM
    return wide and not on_tpu() and available()
