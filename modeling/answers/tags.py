"""From a tagger's logits to tags and entities, in the graph."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class TagsFromLogits:
    """The likeliest tag at every place, how likely, and what it costs; for `ReplicaPredictor`.

    Args:
        model: Gives `logits` [B, T, tags], such as `BertTagger`.
    """

    def __init__(self, model):
        self.model = model

    def __call__(self, batch, **options) -> dict[str, tf.Tensor]:
        """A batch → `tagged` float32 [B, T, 3]: number of the tag; probability; loss or 0.

        One tensor, since that is what a `ReplicaPredictor` takes; whole numbers stay exact to 2²⁴.
        The loss is that of the label, 0 without one. `options`, such as `execution`, are the
        model's.
        """
        logits = self.model(batch, **options)["logits"]
        labels = batch.get("piece_labels")
        labels = tf.fill(tf.shape(logits)[:-1], -1) if labels is None else labels
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        losses = tf.where(labels >= 0, losses, 0.0)
        numbers = tf.cast(tf.argmax(logits, -1, tf.int32), tf.float32)
        scores = tf.reduce_max(tf.nn.softmax(logits), -1)
        return {"tagged": tf.stack([numbers, scores, losses], -1)}


class _Entities(NamedTuple):
    """Entities of texts of words, all [N, (entities)].

    Attributes:
        types: int32; places in `EntitiesFromTagLogits.types`.
        firsts, lasts: int64; first and last word, counting through all texts.
    """

    types: tf.RaggedTensor
    firsts: tf.RaggedTensor
    lasts: tf.RaggedTensor


class EntitiesFromTagLogits:
    """Entities from tags, as conlleval reads them: every sequence has a reading.

    An entity begins at a tag with B or S, and at any other that can't go on one of its type; it
    ends before whatever can't go on.

    Args:
        tags: Their names in the order of their numbers: "O", "B-PER" …, in IOB2 or IOBES.

    Attributes:
        types: Types of entities.
    """

    def __init__(self, tags: Sequence[str]):
        parts = [tag.partition("-") for tag in tags]
        self.types = sorted({kind for letter, _, kind in parts if letter != "O"})
        letters = np.array([letter for letter, _, _ in parts])
        place = {kind: index for index, kind in enumerate(self.types)}
        self._type = np.array([place.get(kind, -1) for _, _, kind in parts], np.int32)
        self._type[letters == "O"] = -1
        self._begins = np.isin(letters, ("B", "S"))
        self._closes = np.isin(letters, ("E", "S"))

    def __call__(self, numbers: tf.RaggedTensor) -> _Entities:
        """Numbers of tags, int32 [N, (words)] → the entities."""
        flat, text = numbers.values, numbers.value_rowids()
        kind = tf.gather(self._type, flat)
        same_text = text[1:] == text[:-1]
        closed = tf.gather(self._closes, flat)
        goes_on = same_text & (kind[1:] == kind[:-1]) & (kind[1:] >= 0)
        goes_on &= ~tf.gather(self._begins, flat[1:]) & ~closed[:-1]
        # [:words], since without a single word there is no first one either.
        goes_on = tf.concat([[False], goes_on, [False]], 0)
        inside, size = kind >= 0, tf.size(flat)
        firsts = tf.where(inside & ~goes_on[:size])[:, 0]
        lasts = tf.where(inside & ~goes_on[1 : size + 1])[:, 0]

        def of_texts(values):
            return tf.RaggedTensor.from_value_rowids(
                values, tf.gather(text, firsts), nrows=numbers.nrows(), validate=False
            )

        return _Entities(of_texts(tf.gather(kind, firsts)), of_texts(firsts), of_texts(lasts))
