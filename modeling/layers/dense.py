"""What every part of BERT is made of: linear maps, activations, layer norms."""

import math

import keras
from keras import ops

from modeling.layers.dropout import dropped
from modeling.layers.execution import PLAIN, Execution, compiled_chain
from modeling.layers.tensors import add_bias, is_float16_tensor


def initializer(stddev: float) -> keras.initializers.Initializer:
    """A fresh truncated normal initialiser; as in the original, not corrected for truncation.

    Fresh each time because a Keras initialiser draws the same numbers at every call.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


class Dense(keras.layers.Layer):
    """A linear map of rows [N, in] → [N, out] with BERT's initialiser."""

    def __init__(self, in_size: int, out_size: int, stddev: float, name: str = "dense", **kwargs):
        super().__init__(name=name, **kwargs)
        self.in_size = in_size
        self.out_size = out_size
        self.stddev = stddev

    def build(self, input_shape=None):
        self.kernel = self.add_weight(
            shape=(self.in_size, self.out_size), initializer=initializer(self.stddev), name="kernel"
        )
        # float32 whatever the policy, for chains add it in float32.
        self.bias = self.add_weight(
            shape=(self.out_size,), initializer="zeros", name="bias", autocast=False
        )

    def call(self, x, execution: Execution = PLAIN):
        return add_bias(self.product(x, execution), self.bias)

    def product(self, x, execution: Execution = PLAIN):
        """Without the bias; for layers of the same policy, in their call."""
        return ops.matmul(x, execution.read(self.kernel, self.compute_dtype))


class LayerNorm(keras.layers.Layer):
    """Layer normalisation of rows [N, H]; weights named and ordered as in the original."""

    def __init__(self, size: int, epsilon: float, name: str = "LayerNorm", **kwargs):
        # autocast=False keeps gamma and beta in float32 under a half precision policy.
        super().__init__(name=name, autocast=False, **kwargs)
        self.size = size
        self.epsilon = epsilon

    def build(self, input_shape=None):
        self.beta = self.add_weight(shape=(self.size,), initializer="zeros", name="beta")
        self.gamma = self.add_weight(shape=(self.size,), initializer="ones", name="gamma")

    def call(self, x, execution: Execution = PLAIN):
        compiled = execution.compile_chains
        return layer_norm(x, self.gamma, self.beta, epsilon=self.epsilon, compiled=compiled)


def gelu(x):
    """Gaussian error linear unit, tanh approximation, as in the original release."""
    # The cube of 41 is infinite in float16, and its gradient then NaN. At 10 the tanh is 1 in
    # every precision, so what is beyond can be cut off inside of it.
    z = ops.clip(x, -10.0, 10.0) if is_float16_tensor(x) else x
    inner = math.sqrt(2 / math.pi) * (z + 0.044715 * (z * z * z))
    return 0.5 * x * (1.0 + ops.tanh(inner))


def gelu_erf(x):
    """Gaussian error linear unit, exact: x times the normal distribution function of x."""
    return 0.5 * x * (1.0 + ops.erf(x * (1 / math.sqrt(2))))


def quick_gelu(x):
    """An approximation of gelu, x·sigmoid(1.702x)."""
    return x * ops.sigmoid(1.702 * x)


def mish(x):
    """x·tanh(log(1 + exp(x))), of Misra 2019."""
    return x * ops.tanh(ops.softplus(x))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "quick_gelu": quick_gelu,
    "relu": ops.relu,
    "silu": ops.silu,
    "mish": mish,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


@compiled_chain
def activate(x, bias, *, name):
    """The activation of that name of rows `x` [N, H] + `bias` [H]."""
    return ACTIVATIONS[name](add_bias(x, bias))


@compiled_chain
def layer_norm(x, gamma, beta, *, epsilon):
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


@compiled_chain
def dropout_add_norm(x, bias, residual, gamma, beta, key, site, *, rate, epsilon):
    """`layer_norm(dropout(x + bias) + residual)`, the end of both halves of a Transformer layer.

    Args:
        x, residual: Float tensors [N, H].
        bias: Float tensor [H].
        gamma, beta, epsilon: As in `layer_norm`.
        key, site, rate: As in `dropout`.
    """
    x = add_bias(x, bias)
    if key is not None and rate:
        x = dropped(x, key, site, rate=rate)
    return layer_norm(x + residual, gamma, beta, epsilon=epsilon)
