"""Chains of small operations that TensorFlow runs as one program each, compiled by XLA.

A layer's activation, or dropout → residual → LayerNorm, is a dozen elementwise operations, each of
which reads and writes the whole tensor. Compiled, the chain reads and writes it once. The matrix
products between them stay TensorFlow's own, which on CPU are faster than XLA's.

    @chain
    def gelu(x): ...

    with compiled_chains(True):
        y = model(batch)
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import keras
from keras import ops

_COMPILED: contextvars.ContextVar[bool] = contextvars.ContextVar("compiled_chains", default=False)


@contextlib.contextmanager
def compiled_chains(on: bool) -> Iterator[None]:
    """Within it chains are compiled, or not. Not where XLA compiles the whole program anyway."""
    token = _COMPILED.set(on)
    try:
        yield
    finally:
        _COMPILED.reset(token)


def chains_are_compiled() -> bool:
    """Whether this is within `compiled_chains(True)`, and TensorFlow is what Keras runs on."""
    return _COMPILED.get() and keras.backend.backend() == "tensorflow"


def chain(function: Callable) -> Callable:
    """Makes a function of tensors a chain.

    Its positional arguments are tensors (or None), its keyword-only ones Python values; it
    returns one tensor of the first argument's dtype. Compiled, it computes in float32 whatever its
    arguments' dtype is, and keeps nothing but the arguments for its gradient, which computes the
    chain again: memory traffic is what costs time here, not arithmetic. Integer arguments
    have no gradient.
    """
    if keras.backend.backend() != "tensorflow":
        return function

    @functools.wraps(function)
    def call(*arguments, **options):
        if not _COMPILED.get():
            return function(*arguments, **options)
        return _program(function, tuple(sorted(options.items())))(*arguments)

    return call


@functools.cache
def available() -> bool:
    """Whether this TensorFlow can compile programs for this device.

    Builds without XLA exist, and CUDA installations without what XLA needs for functions such as
    the exponential (`libdevice`, `ptxas`).
    """
    import tensorflow as tf

    try:
        return float(compiled(tf.exp)(tf.zeros([]))) == 1
    except (tf.errors.OpError, NotImplementedError):
        return False


@functools.cache
def compiled(function: Callable) -> Callable:
    """A function of tensors as a program that XLA compiles, once for each set of shapes."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


@functools.cache
def _program(function: Callable, options: tuple):
    """The compiled chain, differentiable; one for all places that call it alike.

    XLA compiles it once for each set of shapes.
    """
    import tensorflow as tf

    def in_float32(*tensors):
        wide = [
            ops.cast(t, "float32") if t is not None and t.dtype.is_floating else t for t in tensors
        ]
        with compiled_chains(False):  # chains within are a part of this one
            return ops.cast(function(*wide, **dict(options)), tensors[0].dtype)

    forward = compiled(in_float32)

    @compiled
    def backward(tensors, upstream):
        inputs = [t for t in tensors if t is not None and t.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = in_float32(*tensors)
        return tape.gradient(y, inputs, output_gradients=upstream)

    def run(*arguments):
        # custom_gradient takes neither None nor variables.
        given = [tf.convert_to_tensor(a) for a in arguments if a is not None]

        @tf.custom_gradient
        def differentiable(*given):
            rest = iter(given)
            tensors = [None if a is None else next(rest) for a in arguments]

            def gradient(upstream):
                found = iter(backward(tensors, upstream))
                return [next(found) if t.dtype.is_floating else None for t in given]

            return forward(*tensors), gradient

        return differentiable(*given)

    return run
