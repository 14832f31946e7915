"""Attention's arithmetic for TensorFlow on CPU and GPU: four products and compiled chains between.

Same numbers as `modeling.layers.attention`'s plain form, but the gradient is written out: of the
scores' size it keeps the scores alone, computes probabilities and masks of dropout again, and needs
no sum over them, since Σₖ Pᵢₖ·dPᵢₖ = dOᵢ·Oᵢ (Dao et al. 2022, FlashAttention, section 3.1).
"""

import tensorflow as tf

from modeling.layers.dropout import dropped
from modeling.layers.execution import xla_execution_program


def attention(products, biases, mask_bias, heads, length, rate, dropout_key, site):
    """Rows that the products with the three kernels gave → the context's rows.

    Args:
        products: Queries, keys and values without their biases, float tensors [B·T, H].
        biases: Three float32 tensors [H].
        mask_bias: Float tensor [B, 1, 1 or T, T]; has no gradient.
        heads: Python int.
        length: T, an int or int32 scalar.
        rate, dropout_key, site: As in `modeling.layers.dropout`; a key of None means no dropout.

    Returns:
        [B·T, H], of the rows' dtype.
    """
    scale = (products[0].shape[-1] // heads) ** -0.5
    rate = rate if dropout_key is not None else 0.0
    random = (dropout_key, tf.convert_to_tensor(site)) if rate else ()
    length = tf.convert_to_tensor(length)

    split = xla_execution_program(_split, heads=heads)
    softmax = xla_execution_program(_softmax, scale=scale, rate=rate)

    @tf.custom_gradient
    def context_rows(query, key, value, *biases):
        q, k, v = split((query, key, value), biases, length)
        scores = tf.matmul(q, k, transpose_b=True)  # [B, heads, T, T], not scaled yet
        dropped_probabilities, top, total = softmax(scores, mask_bias, *random)
        rows = _merge(tf.matmul(dropped_probabilities, v))

        def gradient(upstream):
            d_context, inner = xla_execution_program(_split_gradient, heads=heads)(
                upstream, rows, length
            )
            d_dropped = tf.matmul(d_context, v, transpose_b=True)
            d_scores, dropped_again = xla_execution_program(
                _softmax_gradient, scale=scale, rate=rate
            )(scores, mask_bias, top, total, d_dropped, inner, *random)
            dq = tf.matmul(d_scores, k)
            dk = tf.matmul(d_scores, q, transpose_a=True)
            dv = tf.matmul(dropped_again, d_context, transpose_a=True)
            return xla_execution_program(_merge_gradients)((dq, dk, dv))

        return rows, gradient

    return context_rows(*products, *biases)


def _split(rows, biases, length, *, heads):
    """Adds the biases and divides rows among the heads."""
    return [
        tf.cast(_heads_of(_wide(x) + _wide(b), heads, length), x.dtype)
        for x, b in zip(rows, biases, strict=True)
    ]


def _softmax(scores, mask_bias, *random, scale, rate):
    """(probabilities after dropout, the largest score of each query, Σ exp(score − that))."""
    wide = _wide(scores) * scale + _wide(mask_bias)
    top = tf.reduce_max(wide, -1, keepdims=True)
    powers = tf.exp(wide - top)
    total = tf.reduce_sum(powers, -1, keepdims=True)
    probabilities = powers / total
    if rate:
        probabilities = dropped(probabilities, *random, rate=rate)
    return tf.cast(probabilities, scores.dtype), top, total


def _split_gradient(upstream, rows, length, *, heads):
    """The context's gradient by heads, and for each query its product with the context."""
    products = _heads_of(_wide(upstream) * _wide(rows), heads, length)
    inner = tf.reduce_sum(products, -1, keepdims=True)
    return _heads_of(upstream, heads, length), inner


def _softmax_gradient(scores, mask_bias, top, total, d_dropped, inner, *random, scale, rate):
    """(the scores' gradient, the probabilities after dropout once more)."""
    probabilities = tf.exp(_wide(scores) * scale + _wide(mask_bias) - top) / total
    mask = tf.ones_like(probabilities)
    if rate:
        mask = dropped(mask, *random, rate=rate)
    change = probabilities * (_wide(d_dropped) * mask - inner) * scale
    return tf.cast(change, scores.dtype), tf.cast(probabilities * mask, scores.dtype)


def _merge_gradients(parts):
    """Gradients by heads → those of the three rows and of the three biases."""
    rows = [_merge(part) for part in parts]
    return [*rows, *(tf.reduce_sum(_wide(x), 0) for x in rows)]


def _merge(x):
    """[B, heads, T, D] → [B·T, heads·D]."""
    _, heads, _, size = x.shape
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, heads * size])


def _heads_of(rows, heads, length):
    """[B·T, H] → [B, heads, T, D]."""
    parts = tf.reshape(rows, [-1, length, heads, rows.shape[-1] // heads])
    return tf.transpose(parts, [0, 2, 1, 3])


def _wide(x):
    return tf.cast(x, tf.float32)
