"""How a forward pass is run; what it computes stays the same.

All that may differ between training, evaluation and an export is one `Execution`, which whoever
calls a model hands to it and the model to its layers:

    outputs = model(batch, dropout_key=key, execution=Execution(compile_chains=True))

Keras's other backends know the plain form alone.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Protocol

from keras import ops


class _StoredMatrix(Protocol):
    """A matrix that an export keeps in another form than the model's variable."""

    def read(self, dtype: str):
        """All of it as a tensor."""

    def rows(self, numbers, dtype: str):
        """Some of its rows: int32 [...] → [..., columns]."""


@dataclasses.dataclass(frozen=True, eq=False)
class Execution:
    """How a forward pass is run.

    Attributes:
        compile_chains: Chains of small operations are one program each, see `compiled_chain`. For
            training where XLA doesn't compile everything anyway.
        inference: Nobody asks for gradients, so forms may be taken that have none.
        stored: `id` of a variable → what is read instead of it.
        encoders: `id` of a `BertEncoder` → what is called instead of its `layer_outputs`.
    """

    compile_chains: bool = False
    inference: bool = False
    stored: Mapping[int, _StoredMatrix] = dataclasses.field(default_factory=dict)
    encoders: Mapping[int, Callable] = dataclasses.field(default_factory=dict)

    def read(self, weight, dtype: str):
        """A weight as a tensor; `dtype` is what the layer computes in."""
        stored = self.stored.get(id(weight))
        return ops.convert_to_tensor(weight) if stored is None else stored.read(dtype)

    def read_rows(self, table, numbers, dtype: str):
        """Rows of a table [rows, columns]: int32 [...] → [..., columns]."""
        stored = self.stored.get(id(table))
        return ops.take(table, numbers, axis=0) if stored is None else stored.rows(numbers, dtype)


PLAIN = Execution()
INFERENCE = Execution(inference=True)


def compiled_chain(function: Callable) -> Callable:
    """Makes a function of tensors a chain, which takes one argument more, `compiled`.

    A layer's activation, or dropout → residual → LayerNorm, is a dozen elementwise operations,
    each of which reads and writes the whole tensor. Compiled by XLA, the chain reads and writes it
    once. The matrix products between chains stay TensorFlow's own, which on CPU are faster than
    XLA's.

    Its positional arguments are tensors (or None), its keyword-only ones Python values; it
    returns one tensor of the first argument's dtype. Compiled, it computes in float32 whatever its
    arguments' dtype is, and keeps nothing but the arguments for its gradient, which computes the
    chain again: memory traffic is what costs time here, not arithmetic. Integer arguments
    have no gradient.
    """

    @functools.wraps(function)
    def call(*tensors, compiled: bool = False, **options):
        if not compiled:
            return function(*tensors, **options)
        return _program(function, **options)(*tensors)

    return call


@functools.cache
def xla_execution_is_available() -> bool:
    """Whether this TensorFlow can compile programs for this device.

    Builds without XLA exist, and CUDA installations without what XLA needs for functions such as
    the exponential (`libdevice`, `ptxas`).
    """
    import tensorflow as tf

    try:
        return float(xla_execution_program(tf.exp)(tf.zeros([]))) == 1
    except (tf.errors.OpError, NotImplementedError):
        return False


@functools.cache
def xla_execution_program(function: Callable, **options) -> Callable:
    """A function of tensors as a program that XLA compiles, once for each set of shapes.

    Args:
        function: Called with tensors and the options.
        options: Python values.
    """
    import tensorflow as tf

    function = functools.partial(function, **options)
    return tf.function(function, jit_compile=True, autograph=False)


@functools.cache
def _program(function: Callable, **options):
    """The compiled chain, differentiable; one for all places that call it alike."""
    import tensorflow as tf

    def in_float32(*tensors):
        wide = [
            ops.cast(t, "float32") if t is not None and t.dtype.is_floating else t for t in tensors
        ]
        return ops.cast(function(*wide, **options), tensors[0].dtype)

    forward = xla_execution_program(in_float32)

    @xla_execution_program
    def backward(tensors, upstream):
        inputs = [t for t in tensors if t is not None and t.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = in_float32(*tensors)
        return tape.gradient(y, inputs, output_gradients=upstream)

    def run(*arguments):
        @tf.custom_gradient
        def differentiable(*tensors):
            rest = iter(tensors)
            with_nones = [None if a is None else next(rest) for a in arguments]

            def gradient(upstream):
                gradients = iter(backward(with_nones, upstream))
                return [next(gradients) if t.dtype.is_floating else None for t in tensors]

            return forward(*with_nones), gradient

        # custom_gradient takes neither None nor variables.
        return differentiable(*(tf.convert_to_tensor(a) for a in arguments if a is not None))

    return run
