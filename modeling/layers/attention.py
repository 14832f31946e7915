"""Multi-head self-attention (Vaswani et al. 2017, section 3.2; the original's mask and scaling)."""

import math

import keras
from keras import ops

from modeling.config import BIDIRECTIONAL, LEFT_TO_RIGHT, BertConfig
from modeling.layers.dense import Dense
from modeling.layers.dropout import dropout
from modeling.layers.execution import PLAIN, Execution
from modeling.layers.tensors import is_float16_tensor, swap_tensor_axes

UNSEEN = -10000.0
"""The bias of a score where a position may not look."""

_FLOAT16_MAX = 65504.0


def attention_bias(input_mask, dtype, direction: str = BIDIRECTIONAL, sequence_ids=None):
    """What is added to the scores: 0 where a position may look, −10000 where it may not.

    The original adds after scaling, and a finite number: a row of nothing but padding attends
    as if unmasked instead of giving NaN.

    Args:
        input_mask: int [B, T], 1 at real tokens.
        dtype: Float dtype of the result.
        direction: In one direction only, positions see themselves, padding or not, and the real
            tokens before them (after them, if it is right to left).
        sequence_ids: int [B, T]: positions see those of their own number only. None: all.

    Returns:
        [B, 1, 1, T]; in one direction, or with sequence_ids, [B, 1, T, T], query before key.
    """
    mask = ops.cast(input_mask, dtype)[:, None, None, :]
    if sequence_ids is not None:
        same = ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :])
        mask = mask * ops.cast(same, dtype)
    if direction != BIDIRECTIONAL:
        places = ops.arange(ops.shape(input_mask)[1])
        seen = ops.less if direction == LEFT_TO_RIGHT else ops.greater
        past = ops.cast(seen(places[None, :], places[:, None]), dtype)
        itself = ops.cast(places[None, :] == places[:, None], dtype)
        mask = mask * past + itself
    return (1.0 - mask) * UNSEEN


def limited_scores(scores):
    """Scores in float32, in which the mask is added; of float16 none is infinite."""
    if is_float16_tensor(scores):
        scores = ops.clip(scores, -_FLOAT16_MAX, _FLOAT16_MAX)  # softmax(∞) is NaN
    return ops.cast(scores, "float32")


class SelfAttention(keras.layers.Layer):
    """Attention of every position over the positions of its sequence that the bias lets it see."""

    def __init__(self, config: BertConfig, site: int, name: str = "self", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.site = site
        size = config.hidden_size
        self.query, self.key, self.value = (
            Dense(size, size, config.initializer_range, name=part, dtype=self.dtype_policy)
            for part in ("query", "key", "value")
        )

    def build(self, input_shape=None):
        self.query.build()
        self.key.build()
        self.value.build()

    def call(self, x, bias, dropout_key=None, execution: Execution = PLAIN):
        """Rows [B·T, H] and bias [B, 1, 1 or T, T] → rows like x."""
        heads = self.config.num_attention_heads
        head_size = self.config.hidden_size // heads
        length = ops.shape(bias)[-1]
        rate = self.config.attention_probs_dropout_prob
        if execution.compile_chains and not is_float16_tensor(x):
            from modeling.layers.compiled_attention import attention

            parts = (self.query, self.key, self.value)
            products = [part.product(x, execution) for part in parts]
            biases = [part.bias for part in parts]
            return attention(products, biases, bias, heads, length, rate, dropout_key, self.site)

        def split(rows):
            rows = ops.reshape(rows, (-1, length, heads, head_size))
            return swap_tensor_axes(rows, execution.inference)  # [B, heads, T, head_size]

        # Scaling the queries is T/head_size times cheaper than scaling the scores.
        query = split(self.query(x, execution=execution)) * (1.0 / math.sqrt(head_size))
        key = split(self.key(x, execution=execution))
        value = split(self.value(x, execution=execution))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, heads, T, T]
        scores = limited_scores(scores) + ops.cast(bias, "float32")
        probabilities = ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype)
        probabilities = dropout(
            probabilities, rate, dropout_key, self.site, execution.compile_chains
        )
        context = swap_tensor_axes(ops.matmul(probabilities, value), execution.inference)
        return ops.reshape(context, (-1, self.config.hidden_size))
