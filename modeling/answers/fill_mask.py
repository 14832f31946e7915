"""The likeliest tokens at masked positions."""

import numpy as np
import tensorflow as tf


def fill_masks(model, inputs, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Predicts the tokens at `masked_lm_positions`.

    Args:
        model: A `BertPretrainer`.
        inputs: Its inputs: int32 `input_ids`, `input_mask`, `segment_ids` [B, T],
            `masked_lm_positions` [B, P].
        k: How many candidates.

    Returns:
        (ids int32 [B, P, k], probabilities float32 [B, P, k]), the likeliest first.
    """
    probabilities = tf.nn.softmax(model(inputs)["masked_lm_logits"])
    values, ids = tf.math.top_k(probabilities, k)
    return ids.numpy(), values.numpy()
