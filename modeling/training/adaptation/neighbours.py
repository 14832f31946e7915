"""Words whose meaning training has changed: whose nearest words are others than before.

before, after = (word_vectors(encoder, ids, cls_id, sep_id) for encoder in (old, new))
changes = changed_neighbours(words, before, after)
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from modeling.layers.execution import INFERENCE

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
    run = tf.function(
        lambda inputs: encoder(inputs, None, execution=INFERENCE)["sequence_output"][:, 1],
        reduce_retracing=True,
        autograph=False,
    )
    rows = np.array([[cls_id, i, sep_id] for i in ids], np.int32).reshape(-1, 3)
    vectors = []
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        inputs = {
            "input_ids": batch,
            "input_mask": np.ones_like(batch),
            "segment_ids": np.zeros_like(batch),
        }
        vectors.append(run({name: tf.constant(value) for name, value in inputs.items()}).numpy())
    return np.concatenate(vectors).astype(np.float32)


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
