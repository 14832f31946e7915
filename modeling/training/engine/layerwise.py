"""Which weights are trained, and how fast, by their depth in the model."""

import re
from collections.abc import Iterable

SECOND = "second_"
"""Begins the names of a second encoder's weights; it has as many layers as the first."""


def layer_depth(name: str, num_hidden_layers: int) -> int:
    """0 for the embeddings, 1 to L for the layers of the encoder, L + 1 for all above.

    Args:
        name: A weight's name, as in the original's checkpoints.
        num_hidden_layers: L.
    """
    name = name.removeprefix(SECOND)
    layer = re.match(r"bert/encoder/layer_(\d+)/", name)
    if layer:
        return int(layer[1]) + 1
    return 0 if name.startswith("bert/embeddings/") else num_hidden_layers + 1


def rate_factors(names: Iterable[str], decay: float, num_hidden_layers: int) -> dict[str, float]:
    """Factors of the learning rate that shrink with every layer down from the top.

    decay^(L + 1 − depth): the task's own weights (and the pooler) have 1, the last layer `decay`,
    the embeddings decay^(L + 1), as ELECTRA is fine-tuned (Clark et al. 2020, appendix B).
    """
    top = num_hidden_layers + 1
    return {name: decay ** (top - layer_depth(name, num_hidden_layers)) for name in names}


def layerwise_trained_weights(
    names: Iterable[str], frozen_layers: int, num_hidden_layers: int
) -> list[str]:
    """The names that are trained when the first layers are frozen.

    Args:
        names: All weights' names.
        frozen_layers: So many layers of the encoder, and the embeddings with them, stay as they
            are; 0 trains everything.
        num_hidden_layers: L.
    """
    if not frozen_layers:
        return list(names)
    return [name for name in names if layer_depth(name, num_hidden_layers) > frozen_layers]
