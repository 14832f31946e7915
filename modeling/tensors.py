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


def gather_positions(sequence_output, positions):
    """Vectors at given positions: [B, T, H] and int32 [B, P] → rows [B·P, H]."""
    shape = ops.shape(sequence_output)
    length = shape[1]
    offsets = ops.arange(shape[0], dtype="int32")[:, None] * length
    rows = ops.reshape(sequence_output, (-1, sequence_output.shape[-1]))
    return ops.take(rows, ops.reshape(positions + offsets, (-1,)), axis=0)


def check_range(values, limit: int, name: str):
    """The int tensor `values` as it is, if all of them are from 0 to `limit` − 1.

    Raises:
        tf.errors.InvalidArgumentError: When run, if they aren't. Programs that XLA compiles, and
            JAX's, can't raise errors and go on with undefined numbers.
    """
    if not _TENSORFLOW:
        return values
    values = tf.convert_to_tensor(values)
    lowest, highest = tf.reduce_min(values), tf.reduce_max(values)
    expected = f"{name} must be from 0 to {limit - 1}, but these are from"
    check = tf.debugging.Assert(
        (lowest >= 0) & (highest < limit), [expected, lowest, "to", highest], summarize=1
    )
    with tf.control_dependencies([check]):
        return tf.identity(values)


def is_float16(x) -> bool:
    """Whether numbers above 65504 are infinite in `x` (they aren't in bfloat16)."""
    return keras.backend.standardize_dtype(x.dtype) == "float16"


def gelu(x):
    """Gaussian error linear unit, tanh approximation, as in the original release."""
    # The cube of 41 is infinite in float16, and its gradient then NaN. At 10 the tanh is 1 in
    # every precision, so what is beyond can be cut off inside of it.
    z = ops.clip(x, -10.0, 10.0) if is_float16(x) else x
    inner = math.sqrt(2 / math.pi) * (z + 0.044715 * (z * z * z))
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


def scan(step, state, inputs, reverse: bool = False):
    """Calls `step` along the first axis, as `jax.lax.scan` does.

    Args:
        step: (state, slice of the inputs) → (state, output tensor).
        state: Nested tensors; what `step` returns has the same shapes.
        inputs: Nested tensors [T, ...].
        reverse: From the last slice to the first. Outputs stand where their inputs stand.

    Returns:
        (the last state, outputs [T, ...]).
    """
    if not _TENSORFLOW:
        return ops.scan(step, state, inputs, reverse=reverse)
    # keras.ops.scan gives the loop no limit, without which XLA can't compile its gradient.
    flat = tf.nest.flatten(inputs)
    length = flat[0].shape[0] if flat[0].shape[0] is not None else tf.shape(flat[0])[0]
    # Read from arrays: the gradient of indexing a tensor is as large as the tensor, each time.
    arrays = [tf.TensorArray(t.dtype, length, element_shape=t.shape[1:]).unstack(t) for t in flat]
    outputs = tf.TensorArray(tf.float32, size=length)

    def body(count, state, outputs):
        place = length - 1 - count if reverse else count
        now = tf.nest.pack_sequence_as(inputs, [array.read(place) for array in arrays])
        state, output = step(state, now)
        return count + 1, state, outputs.write(place, output)

    _, state, outputs = tf.while_loop(
        lambda count, *_: count < length,
        body,
        (tf.constant(0), state, outputs),
        maximum_iterations=length,
    )
    return state, outputs.stack()


def recompute(function, x, *constants):
    """`function(x, *constants)` without keeping what its gradient needs: it runs twice.

    The second run waits for the gradient of the result. It depends on it by data, because XLA
    doesn't respect control dependencies and would find that both runs are one; the number added
    is 0 unless the gradient is NaN.

    Args:
        function: Of tensors alone; may use trainable variables.
        x: Float tensor; gets a gradient.
        constants: Tensors or None without a gradient, such as a mask or a dropout key.

    Returns:
        The tensor that the function returns.
    """
    if not _TENSORFLOW:
        return keras.remat(function)(x, *constants)
    given = [c for c in constants if c is not None]

    def run(x, given):
        rest = iter(given)
        return function(x, *(None if c is None else next(rest) for c in constants))

    @tf.custom_gradient
    def recomputed(x, *given):
        def gradient(upstream, variables=()):
            # One element tells; which one doesn't matter.
            unordered = tf.math.is_nan(tf.reshape(upstream, [-1])[0])
            inputs, *again = (t + tf.cast(unordered, t.dtype) for t in (x, *given))
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                y = run(inputs, again)
            dx, dv = tape.gradient(y, (inputs, list(variables)), output_gradients=upstream)
            return (dx, *(None for _ in given)), dv

        return run(x, given), gradient

    return recomputed(x, *given)


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
