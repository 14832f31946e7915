"""Initial weights with which positions attend to their neighbours from the first step on.

start_locally(model.encoder, seed=12345)  # after build, before training

With weights that are all drawn alike, pre-training learns how frequent words are and then little
else for many hundreds of steps, until its heads have found out which positions are near. Here they
are told: position embeddings begin as sinusoids (Vaswani et al. 2017, section 3.5), near ones
being alike, and queries and keys of a head begin as nearly the same projection, so that what is
alike attends to each other (Trockman & Kolter 2023). The variables are those of every BERT, and
all of them are trained.
"""

import math

import numpy as np

from modeling.layers.encoder import BertEncoder

SELF_SCORE = 4.0
"""What a position's score with itself is at first, on average; of vectors at right angles 0."""
NOISE = 0.5
"""How much of the drawn queries and keys is left, which tells the two apart."""


def start_locally(encoder: BertEncoder, seed: int) -> None:
    """Gives a new encoder position embeddings, queries and keys to begin with.

    Args:
        encoder: Is built. Under a strategy, called in its scope.
        seed: Of the projections.
    """
    config = encoder.config
    width, heads = config.hidden_size, config.num_attention_heads
    rng = np.random.default_rng(seed)
    table = encoder.embeddings.position_embeddings
    table.assign(config.initializer_range * sinusoids(*table.shape))
    # A layer norm's rows have the squared norm `width`, of which a head's share are `width / heads`
    # dimensions; scores are divided by the root of these.
    scale = math.sqrt(SELF_SCORE / math.sqrt(width / heads))
    for layer in encoder.layers:
        drawn = [rng.standard_normal((width, width // heads)) for _ in range(heads)]
        shared = scale * np.concatenate([np.linalg.qr(head)[0] for head in drawn], axis=1)
        for part in (layer.attention.query, layer.attention.key):
            part.kernel.assign(shared + NOISE * np.array(part.kernel))


def sinusoids(count: int, width: int) -> np.ndarray:
    """A sine and a cosine of each wavelength, by position; near positions are alike.

    Args:
        count: Of positions.
        width: Of the vectors.

    Returns:
        float64 [count, width], with a root mean square of about 1. Wavelengths go from 2π
        positions to twice 2π times all, evenly by their logarithm.
    """
    half = -(-width // 2)
    rates = (2.0 * count) ** -(np.arange(half) / half)
    angles = np.arange(count)[:, None] * rates
    return math.sqrt(2) * np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width]
