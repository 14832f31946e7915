"""Words whose meaning training has changed: whose nearest words are others than before.

before, after = (word_vectors(encoder, ids, cls_id, sep_id) for encoder in (old, new))
changes = changed_neighbours(words, before, after)
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from modeling.training.engine.evaluation import ReplicaPredictor

NEIGHBOURS = 10
_BATCH = 256


class NeighbourChange(NamedTuple):
    """A word and its nearest words, the nearest first.

    Attributes:
        word: Whose they are.
        kept: How many of its `NEIGHBOURS` nearest are the same.
        before, after: Which they were, and are.
    """

    word: str
    kept: int
    before: list[str]
    after: list[str]


def word_vectors(encoder, ids: Sequence[int], cls_id: int, sep_id: int) -> np.ndarray:
    """What an encoder makes of single words: its last layer's vector at "[CLS] word [SEP]".

    Args:
        encoder: A `BertEncoder`.
        ids: Of words that are one piece each.
        cls_id, sep_id: Of the special pieces.

    Returns:
        float32 [words, hidden_size].
    """
    if not len(ids):
        return np.zeros((0, 0), np.float32)
    # All batches of one shape, as accelerators want them.
    filled = -len(ids) % _BATCH
    rows = np.array([[cls_id, i, sep_id] for i in [*ids, *[sep_id] * filled]], np.int32)
    examples = {
        "input_ids": rows,
        "input_mask": np.ones_like(rows),
        "segment_ids": np.zeros_like(rows),
        "index": np.arange(len(rows)),
        "is_real_example": (np.arange(len(rows)) < len(ids)).astype(np.float32),
    }
    batches = tf.data.Dataset.from_tensor_slices(examples).batch(_BATCH, drop_remainder=True)
    return ReplicaPredictor(_WordVectors(encoder), "vectors")(batches).astype(np.float32)


class _WordVectors:
    """An encoder as a model whose output is the vector of each row's second piece."""

    def __init__(self, encoder):
        self._encoder = encoder

    def __call__(self, batch, execution):
        sequence = self._encoder(batch, None, execution=execution)["sequence_output"]
        return {"vectors": sequence[:, 1]}


def changed_neighbours(
    words: Sequence[str], before: np.ndarray, after: np.ndarray, most: int = 50
) -> list[NeighbourChange]:
    """The words that have kept the fewest of their neighbours among all of them.

    Near is what has a large cosine, after the mean of all vectors is taken off: encoders put all
    words into one narrow cone (Ethayarajh 2019).

    Args:
        words: What the vectors are of.
        before, after: float32 [words, width].
        most: So many words at most, the most changed first; of equally changed ones the first.
    """
    count = min(NEIGHBOURS, len(words) - 1)
    if count < 1:
        return []
    old, new = (_nearest(vectors, count) for vectors in (before, after))
    kept = [len(set(a) & set(b)) for a, b in zip(old.tolist(), new.tolist(), strict=True)]
    order = np.argsort(kept, kind="stable")[:most]
    return [
        NeighbourChange(words[i], kept[i], [words[n] for n in old[i]], [words[n] for n in new[i]])
        for i in order.tolist()
        if kept[i] < count
    ]


def _nearest(vectors: np.ndarray, count: int) -> np.ndarray:
    """int64 [words, count]: places of the nearest others, the nearest first."""
    centred = vectors - vectors.mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True) + 1e-12
    cosines = centred @ centred.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :count]
