"""The few tensor functions that are worth writing per backend; layers use only these and keras.ops.

Each has a plain `keras.ops` form, so the encoder also runs on Keras's JAX backend, and a
TensorFlow form where that is measurably faster or the only way to be deterministic.
"""

import keras
from keras import ops

_TENSORFLOW = keras.backend.backend() == "tensorflow"
if _TENSORFLOW:
    import tensorflow as tf


def add_bias(x, bias):
    """Rows `x` [N, H] + `bias` [H]; next to a product TensorFlow computes both as one."""
    bias = ops.cast(bias, x.dtype)
    if not _TENSORFLOW:
        return x + bias
    # BiasAdd, unlike a broadcasting Add, is what is fused.
    return tf.nn.bias_add(x, bias)


def swap_tensor_axes(x, inference: bool = False):
    """[A, B, C, D] → [A, C, B, D]; for inference on CPUs faster, without a gradient."""
    if not (inference and _TENSORFLOW) or has_accelerator():
        return ops.transpose(x, (0, 2, 1, 3))
    # oneDNN's transpose of floats takes 0.1 ms to begin;
    # numbers that aren't floats go to TensorFlow's own, which is never slower.
    same_size = {2: tf.uint16, 4: tf.int32}[x.dtype.size]
    swapped = tf.transpose(tf.bitcast(x, same_size), (0, 2, 1, 3))
    return tf.bitcast(swapped, x.dtype)


def has_accelerator() -> bool:
    """Whether TensorFlow computes on a GPU or a TPU here."""
    return bool(tf.config.list_physical_devices("GPU") or tf.config.list_logical_devices("TPU"))


def gather_positions(sequence_output, positions):
    """Vectors at given positions: [B, T, H] and int32 [B, P] → rows [B·P, H]."""
    shape = ops.shape(sequence_output)
    length = shape[1]
    offsets = ops.arange(shape[0], dtype="int32")[:, None] * length
    rows = ops.reshape(sequence_output, (-1, sequence_output.shape[-1]))
    return ops.take(rows, ops.reshape(positions + offsets, (-1,)), axis=0)


def check_tensor_range(values, limit: int, name: str):
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


def is_float16_tensor(x) -> bool:
    """Whether numbers above 65504 are infinite in `x` (they aren't in bfloat16)."""
    return keras.backend.standardize_dtype(x.dtype) == "float16"


def scan_tensors(step, state, inputs, reverse: bool = False):
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

    def run(x, tensors):
        rest = iter(tensors)
        return function(x, *(None if c is None else next(rest) for c in constants))

    @tf.custom_gradient
    def recomputed(x, *tensors):
        def gradient(upstream, variables=()):
            # One element tells; which one doesn't matter.
            unordered = tf.math.is_nan(tf.reshape(upstream, [-1])[0])
            inputs, *again = (t + tf.cast(unordered, t.dtype) for t in (x, *tensors))
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                y = run(inputs, again)
            dx, dv = tape.gradient(y, (inputs, list(variables)), output_gradients=upstream)
            return (dx, *(None for _ in tensors)), dv

        return run(x, tensors), gradient

    return recomputed(x, *(c for c in constants if c is not None))
