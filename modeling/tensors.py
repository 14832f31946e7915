"""The few tensor functions that are worth writing per backend; layers use only these and keras.ops.

Each has a plain `keras.ops` form, so the encoder also runs on Keras's JAX backend, and a
TensorFlow form where that is measurably faster or the only way to be deterministic.
"""

import math

import keras
from keras import ops

_TENSORFLOW = keras.backend.backend() == "tensorflow"
if _TENSORFLOW:
    import tensorflow as tf


def dense(x, kernel, bias):
    """`x @ kernel + bias` for rows `x` [N, in], `kernel` [in, out], `bias` [out] → [N, out]."""
    if _TENSORFLOW:
        # BiasAdd, unlike a broadcasting Add, is what TensorFlow fuses into the product.
        return tf.nn.bias_add(tf.matmul(x, kernel), bias)
    return ops.matmul(x, kernel) + bias


def gelu(x):
    """Gaussian error linear unit, tanh approximation, as in the original release."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1.0 + ops.tanh(inner))


def gelu_erf(x):
    """Gaussian error linear unit, exact: x times the normal distribution function of x."""
    return 0.5 * x * (1.0 + ops.erf(x * (1 / math.sqrt(2))))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def layer_norm(x, gamma, beta, epsilon):
    """Normalises the last axis with float32 statistics (biased variance), whatever x's dtype.

    The products are grouped as in the original release, `x·inv + (beta − mean·inv)`, so that
    float32 results agree with it to the last digits.
    """
    dtype = x.dtype
    x = ops.cast(x, "float32")
    mean = ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(x - mean), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * gamma
    return ops.cast(x * scale + (beta - mean * scale), dtype)


def dropout(x, rate, key, site):
    """Zeroes elements of `x` with probability `rate` and scales up the others.

    Stateless: the same (key, site) draws the same mask on every device, in graph mode, eagerly
    and under XLA. Sixteen random bits decide an element: half the cost of the usual 32, and the
    rate is right to 1.5e-5 (the scale uses the rate as rounded, so the expectation is exact).

    Args:
        x: Float tensor of any shape.
        rate: Python float from 0 to below 1.
        key: int32 [3]: seed, step, and stream (the replica, or the micro-batch of a replica).
            None means no dropout.
        site: Python int that tells this place in the model from all others.
    """
    if key is None or rate == 0.0:
        return x
    threshold = round(rate * 65536)
    scale = 65536 / (65536 - threshold)
    if not _TENSORFLOW:
        return x * ops.cast(_jax_bits(x, key, site) >= threshold, x.dtype) * scale

    @tf.custom_gradient
    def masked(x):
        keep = tf.cast(_tensorflow_bits(tf.shape(x), key, site) >= threshold, x.dtype)
        mask = tf.reshape(keep * tf.cast(scale, x.dtype), tf.shape(x))
        mask.set_shape(x.shape)
        return x * mask, lambda upstream: upstream * mask

    return masked(x)


def _tensorflow_bits(shape, key, site):
    """Random uint16 [elements of shape] from Philox, which is the same on CPU, GPU and TPU."""
    seed, step, stream = tf.unstack(tf.cast(key, tf.uint64), num=3)
    word = tf.constant(32, tf.uint64)
    # Philox has a key of 64 bits and a counter of 128. The counter's low word runs along the
    # numbers drawn, so its high word is free to tell streams and sites apart.
    philox_key = tf.bitwise.bitwise_or(tf.bitwise.left_shift(seed, word), step)
    place = tf.bitwise.bitwise_or(tf.bitwise.left_shift(stream, word), tf.constant(site, tf.uint64))
    count = tf.reduce_prod(shape)
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(count + 1) // 2],
        key=philox_key[tf.newaxis],
        counter=tf.stack([tf.constant(0, tf.uint64), place]),
        alg=1,  # Philox
        dtype=tf.uint32,
    )
    return tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]


def _jax_bits(x, key, site):
    """Random uint16 of `x`'s shape from JAX's own stateless generator."""
    import jax

    seed = jax.random.PRNGKey(key[0])
    for part in (key[1], key[2], site):
        seed = jax.random.fold_in(seed, part)
    return jax.random.bits(seed, x.shape, "uint16")
