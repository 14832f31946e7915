"""The feed-forward network's wide half for TensorFlow on CPU and GPU: an activation, a product.

Same numbers as `modeling.encoder`'s plain form, but the gradient is written out: of that width,
which is most of what a layer keeps, it keeps what stands before the activation alone. The program
that computes the activation's gradient gives its value once more, for the kernel's.
"""

import functools

import tensorflow as tf

from modeling.chains import compiled
from modeling.tensors import ACTIVATIONS


def activated_product(x, bias, kernel, activation):
    """activation(x + bias) · kernel.

    Args:
        x: Float tensor [N, inner].
        bias: float32 [inner].
        kernel: [inner, H], of x's dtype.
        activation: One of `modeling.tensors.ACTIVATIONS`.

    Returns:
        [N, H], of x's dtype.
    """
    value, gradients = _programs(activation)

    @tf.custom_gradient
    def product(x, bias, kernel):
        def gradient(upstream):
            d_activated = tf.matmul(upstream, kernel, transpose_b=True)
            activated, dx, d_bias = gradients(x, bias, d_activated)
            return dx, d_bias, tf.matmul(activated, upstream, transpose_a=True)

        return tf.matmul(value(x, bias), kernel), gradient

    return product(x, bias, kernel)


@functools.cache
def _programs(activation: str):
    """(x, bias) → activation; (x, bias, its gradient) → activation, gradients of x and bias."""

    def value(x, bias):
        wide = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
        return tf.cast(ACTIVATIONS[activation](wide), x.dtype)

    def gradients(x, bias, upstream):
        with tf.GradientTape() as tape:
            tape.watch((x, bias))
            activated = value(x, bias)
        return activated, *tape.gradient(activated, (x, bias), output_gradients=upstream)

    return compiled(value), compiled(gradients)
