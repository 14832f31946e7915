"""Masks made and taken back in a tf.data pipeline, so that no two epochs have the same ones.

    batch = mask_batch(unmask(batch), settings, max_predictions, seed)

The random numbers are a function of `seed` alone (the Philox generator), whatever was drawn before.

Shapes: B rows, S pieces each, P slots for predictions; B may be unknown in the graph.
"""

import numpy as np
import tensorflow as tf

from data.pretraining.instances import masking
from data.pretraining.records.schema import MASKED


def unmask(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Puts the masked words back: masked_lm_ids at masked_lm_positions where the weight isn't 0.

    Args:
        batch: input_ids int32 [B, S] and the masked_lm_* [B, P] of the same records.

    Returns:
        The batch with other input_ids.
    """
    used = batch["masked_lm_weights"] > 0
    ids = _put(batch["input_ids"], batch["masked_lm_positions"], batch["masked_lm_ids"], used)
    return batch | {"input_ids": ids}


def mask_batch(
    batch: dict[str, tf.Tensor],
    settings: masking.MaskSettings,
    max_predictions: int,
    seed: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Masks a batch anew.

    Args:
        batch: input_ids (unmasked) and input_mask, both int32 [B, S]; ids below the size of the
            settings' vocabulary. Words are told by "##".
        settings: What is masked.
        max_predictions: P.
        seed: int64 [2]; the same one gives the same masks.

    Returns:
        The batch with other input_ids, and masked_lm_positions (ascending), masked_lm_ids int32
        and masked_lm_weights float32, all [B, P] and padded with 0, as `mask_instances` gives.
    """

    def mask(ids: np.ndarray, real: np.ndarray, key: np.ndarray) -> list[np.ndarray]:
        masked = masking.mask_instances(
            ids,
            real,
            settings.vocabulary,
            max_predictions,
            settings.masked_lm_prob,
            settings.do_whole_word_mask,
            np.random.Generator(np.random.Philox(key=key.view(np.uint64))),
            settings.mask_share,
            settings.random_share,
            settings.max_ngram,
        )
        return [masked[name] for name in types]

    types = {"input_ids": tf.int32, **dict.fromkeys(MASKED, tf.int32)}
    types["masked_lm_weights"] = tf.float32
    ids = batch["input_ids"]
    inputs = [ids, batch["input_mask"], seed]
    # A function of its arguments alone, so iterators with it can be saved.
    tensors = tf.numpy_function(mask, inputs, list(types.values()), stateful=False)
    for tensor, name in zip(tensors, types, strict=True):
        tensor.set_shape([ids.shape[0], max_predictions if name in MASKED else ids.shape[1]])
    return batch | dict(zip(types, tensors, strict=True))


def _put(ids: tf.Tensor, positions: tf.Tensor, values: tf.Tensor, used: tf.Tensor) -> tf.Tensor:
    """Writes values [B, P] to the used positions of ids [B, S]."""
    size, length = tf.unstack(tf.shape(ids))
    # Unused slots all write to a column of their own, which is cut off again.
    positions = tf.where(used, positions, length)
    rows = tf.broadcast_to(tf.range(size)[:, tf.newaxis], tf.shape(positions))
    wider = tf.pad(ids, [[0, 0], [0, 1]])
    wider = tf.tensor_scatter_nd_update(wider, tf.stack([rows, positions], axis=-1), values)
    return tf.ensure_shape(wider[:, :-1], ids.shape)
