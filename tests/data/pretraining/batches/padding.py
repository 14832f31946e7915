"""How much of packed rows is padding."""

from collections.abc import Iterable, Mapping

import numpy as np


def padding_share(dataset: Iterable[Mapping], batches: int) -> float:
    """Share of padding among the places of the first batches of a dataset.

    Args:
        dataset: Of dicts with input_mask [B, S].
        batches: How many to look at; fewer if there are no more.
    """
    real = places = 0
    for _, batch in zip(range(batches), dataset, strict=False):
        mask = np.asarray(batch["input_mask"])
        real, places = real + int(mask.sum()), places + mask.size
    return 1 - real / places if places else 0.0
