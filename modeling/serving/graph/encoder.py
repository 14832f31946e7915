"""An encoder's layers as an export computes them: in branches, a product for each thread.

served = BranchedEncoder(encoder, "float32", branches=2)
execution = Execution(inference=True, encoders={id(encoder): served})
outputs = model(batch, execution=execution)

The threads of a processor gain little from sharing the small products of a short text, and nearly
everything from computing one each. So a layer is cut in two (or more): each branch has a part of
the heads, whose queries, keys and values are one product, and a part of the wide layer's columns.
What the branches give is added up after the attention's and after the feed-forward's output
(Shoeybi et al. 2019 divide a layer among devices in the same way). A server whose threads between
operations are as many as the branches computes them side by side.

Each layer is a function of the graph, called by all signatures and on each of their ways, so that a
server prepares it once. (Inlined, a layer would stand in the graph of each, three times.)

Vectors (biases, norms) are constants of the graph; matrices are variables, which all signatures
share. Those of int8 are multiplied in whole numbers if the server can do that, else as float32.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from keras import ops

from modeling.layers.attention import UNSEEN, limited_scores
from modeling.layers.dense import ACTIVATIONS
from modeling.layers.encoder import BertEncoder, TransformerLayer
from modeling.layers.tensors import swap_tensor_axes
from modeling.serving.graph.matrices import StoredMatrix
from modeling.serving.graph.unpadding import Unpadding, real_places
from modeling.serving.graph.whole_numbers import (
    LARGEST_OF_MATRIX,
    WholeNumbers,
    can_multiply,
    least_value,
    whole_numbers,
)

XLA_LENGTHS = (16, 32, 64, 128, 256, 384, 512)
"""Pieces to which a text is filled up that a program of XLA computes; see `filled_length`."""


@dataclasses.dataclass(frozen=True)
class _Product:
    """`x · matrix + bias`.

    Attributes:
        matrix: [in, out].
        bias: float32 [out]; None: none is added.
    """

    matrix: StoredMatrix
    bias: np.ndarray | None = None

    def __call__(self, x: tf.Tensor | WholeNumbers) -> tf.Tensor:
        """[N, in] → [N, out]."""
        if isinstance(x, WholeNumbers):
            y = x.times(self.matrix)
        else:
            y = tf.matmul(x, self.matrix.read(x.dtype.name))
        # BiasAdd, unlike a broadcasting Add, is what TensorFlow fuses with a product.
        return y if self.bias is None else tf.nn.bias_add(y, tf.cast(self.bias, y.dtype))


@dataclasses.dataclass(frozen=True)
class _Norm:
    """Layer normalisation of rows with float32 statistics, in as few operations as it takes."""

    gamma: np.ndarray
    beta: np.ndarray
    epsilon: float

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[N, H] → [N, H]."""
        wide = tf.cast(x, tf.float32)
        centred = wide - tf.reduce_mean(wide, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
        return tf.cast(
            centred * (tf.math.rsqrt(variance + self.epsilon) * self.gamma) + self.beta, x.dtype
        )


@dataclasses.dataclass(frozen=True)
class _Branch:
    """A part of a layer.

    Attributes:
        heads: How many of the layer's.
        query_key_value: [H, 3·heads·size].
        attention_output: [heads·size, H]; the first branch's has the layer's bias.
        wide: [H, columns].
        output: [columns, H]; the first branch's has the layer's bias.
    """

    heads: int
    query_key_value: _Product
    attention_output: _Product
    wide: _Product
    output: _Product


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A layer's branches, and what stands where they are joined."""

    branches: Sequence[_Branch]
    attention_norm: _Norm
    output_norm: _Norm


class _Function:
    """A function of tensors that is traced once for any batch, and never inlined."""

    def __init__(self, call):
        self._function = tf.function(
            call, autograph=False, experimental_attributes={"_noinline": True}
        )

    def __call__(self, *tensors: tf.Tensor) -> tf.Tensor:
        specs = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in tensors]
        return self._function.get_concrete_function(*specs)(*tensors)


class BranchedEncoder:
    """What `Execution.encoders` has for an encoder.

    Args:
        encoder: Built.
        dtype: What its matrices are kept as, see `StoredMatrix`.
        branches: Of each layer, 1 or more; not more than it has heads.
        in_functions: Whether each layer is a function of its own, which LiteRT has no form of.
        xla: Whether one text by itself is computed by a program that XLA makes, for each of
            `XLA_LENGTHS` when it first comes.

    Attributes:
        variables: All that it has.
        replaced: `id`s of the encoder's variables that nothing reads any more.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        dtype: str,
        branches: int,
        in_functions: bool = True,
        xla: bool = False,
    ):
        self._encoder = encoder
        self._activation = ACTIVATIONS[encoder.config.hidden_act]
        self._least_activation = least_value(self._activation)
        self.variables: list[tf.Variable] = []
        self._dtype = dtype
        branches = min(branches, encoder.config.num_attention_heads)
        layers = [self._branched(layer, branches) for layer in encoder.layers]

        def calls(factor) -> list[Callable]:
            made = [functools.partial(self._layer, layer, factor) for layer in layers]
            return [_Function(call) for call in made] if in_functions else made

        self._layers = calls(factor=_as_it_is)
        self._program = self._compiled(layers) if xla else None
        self._whole_numbered = calls(factor=whole_numbers) if dtype == "int8" else None
        self.replaced = {id(w) for layer in encoder.layers for w in layer.weights}

    def _branched(self, layer: TransformerLayer, branches: int) -> _Layer:
        config, attention = self._encoder.config, layer.attention
        heads = np.array_split(np.arange(config.num_attention_heads), branches)
        size = config.hidden_size // config.num_attention_heads
        columns = np.array_split(np.arange(config.intermediate_size), branches)
        projections = (attention.query, attention.key, attention.value)
        made = []
        for part, (numbers, wide) in enumerate(zip(heads, columns, strict=True)):
            own = slice(numbers[0] * size, (numbers[-1] + 1) * size)
            wide = slice(wide[0], wide[-1] + 1)
            kernels = np.concatenate([_numbers(p.kernel)[:, own] for p in projections], 1)
            biases = np.concatenate([_numbers(p.bias)[own] for p in projections])

            def joined(dense, rows, first=part == 0):
                bias = _numbers(dense.bias) if first else None
                return self._product(_numbers(dense.kernel)[rows], bias)

            made.append(
                _Branch(
                    len(numbers),
                    self._product(kernels, biases),
                    joined(layer.attention_output, own),
                    self._product(
                        _numbers(layer.intermediate.kernel)[:, wide],
                        _numbers(layer.intermediate.bias)[wide],
                    ),
                    joined(layer.output_dense, wide),
                )
            )
        return _Layer(made, _norm(layer.attention_norm), _norm(layer.output_norm))

    def _product(self, kernel: np.ndarray, bias: np.ndarray | None) -> _Product:
        matrix = StoredMatrix(kernel, self._dtype, largest=LARGEST_OF_MATRIX)
        self.variables += matrix.variables
        return _Product(matrix, bias)

    def __call__(self, x, bias, input_mask, *_) -> list[tf.Tensor]:
        """See `BertEncoder.layer_outputs`; padding has zeros.

        One text is computed as it is. Several are, if none has padding; else padding is left out
        but for the attention.
        """
        if self._whole_numbered is None:
            return self._outputs(self._layers, x, bias, input_mask)
        return tf.cond(
            can_multiply(tf.size(input_mask)),
            lambda: self._outputs(self._whole_numbered, x, bias, input_mask),
            lambda: self._outputs(self._layers, x, bias, input_mask),
        )

    def _outputs(self, layers, x, bias, input_mask) -> list[tf.Tensor]:
        real = real_places(input_mask)

        def all_places() -> list[tf.Tensor]:
            return self._of_layers(layers, x, bias, real, None)

        def real_ones() -> list[tf.Tensor]:
            return self._of_layers(layers, x, bias, real, Unpadding.of(real))

        if input_mask.shape[0] == 1:
            return self._of_program(x, bias, real) if self._program else all_places()
        return tf.cond(tf.reduce_all(real), all_places, real_ones)

    def _compiled(self, layers: Sequence[_Layer]) -> Callable:
        """All layers as one program of XLA, which it makes for every shape that comes."""
        plain = [functools.partial(self._layer, layer, _as_it_is) for layer in layers]

        def outputs(x, bias, real):
            return self._of_layers(plain, x, bias, real, None)

        return tf.function(outputs, autograph=False, jit_compile=True)

    def _of_program(self, x, bias, real) -> list[tf.Tensor]:
        """Of one text, which is filled up, so that few programs are made."""
        length = tf.shape(x)[0]
        more = filled_length(length) - length
        queries = 0 if bias.shape[2] == 1 else more
        outputs = self._program(
            tf.pad(x, [[0, more], [0, 0]]),
            tf.pad(bias, [[0, 0], [0, 0], [0, queries], [0, more]], constant_values=UNSEEN),
            tf.pad(real, [[0, 0], [0, more]]),
        )
        return [rows[:length] for rows in outputs]

    def _of_layers(self, layers, x, bias, real, unpadding: Unpadding | None) -> list[tf.Tensor]:
        visible, nothing = tf.reshape(real, [-1, 1]), tf.zeros([], x.dtype)
        outputs = []
        x = unpadding.remove(x) if unpadding else x
        for layer in layers:
            x = layer(x, bias, *(unpadding or ()))
            outputs.append(tf.where(visible, unpadding.restore(x) if unpadding else x, nothing))
        return outputs

    def _layer(self, layer: _Layer, factor, x, bias, *unpadding: tf.Tensor) -> tf.Tensor:
        """What a layer gives.

        Args:
            layer: The layer.
            factor: What makes the first factor of a product of rows, see `whole_numbers`.
            x: [N, H].
            bias: Of the attention's scores.
            unpadding: The tensors of an `Unpadding`; nothing: without it.
        """
        unpadding = Unpadding(*unpadding) if unpadding else None
        shared = factor(x)  # by all branches

        def attention(branch: _Branch) -> tf.Tensor:
            rows = branch.query_key_value(shared)
            return branch.attention_output(factor(self._attention(branch, rows, bias, unpadding)))

        x = layer.attention_norm(_joined(map(attention, layer.branches), x))
        shared_wide = factor(x)

        def feed_forward(branch: _Branch) -> tf.Tensor:
            rows = self._activation(branch.wide(shared_wide))
            return branch.output(factor(rows, self._least_activation))

        return layer.output_norm(_joined(map(feed_forward, layer.branches), x))

    def _attention(self, branch: _Branch, rows, bias, unpadding: Unpadding | None) -> tf.Tensor:
        """Queries, keys and values [N, 3·heads·size] → [N, heads·size], what the heads see."""
        rows = unpadding.restore(rows) if unpadding else rows
        size = self._encoder.config.hidden_size // self._encoder.config.num_attention_heads
        shape = [-1, tf.shape(bias)[-1], 3 * branch.heads, size]
        together = swap_tensor_axes(tf.reshape(rows, shape), inference=True)
        query, key, value = tf.split(together, 3, 1)  # [B, heads, T, size]
        # In this order, and in one number format, TensorFlow computes the product, the scale and
        # the mask as one.
        scores = tf.matmul(query, key, transpose_b=True) * tf.constant(size**-0.5, rows.dtype)
        scores += tf.cast(bias, rows.dtype)
        probabilities = tf.nn.softmax(limited_scores(scores))
        context = tf.matmul(tf.cast(probabilities, rows.dtype), value)
        context = swap_tensor_axes(context, inference=True)
        # Of the rows' own number, so that TensorFlow sees that both are equally many.
        count = tf.shape(rows)[0]
        context = tf.reshape(context, [count, branch.heads * size])
        return unpadding.remove(context) if unpadding else context


def filled_length(length: tf.Tensor) -> tf.Tensor:
    """int32: the next of `XLA_LENGTHS`; beyond them the next multiple of the last."""
    lengths = tf.constant(XLA_LENGTHS)
    place = tf.minimum(tf.searchsorted(lengths, [length])[0], len(XLA_LENGTHS) - 1)
    return length + -length % lengths[place]


def _as_it_is(x: tf.Tensor, least=None) -> tf.Tensor:
    """The factor of a product that isn't in whole numbers."""
    return x


def _joined(parts, x: tf.Tensor) -> tf.Tensor:
    """The sum of what the branches give, and of `x`."""
    first, *others = parts
    total = first + x
    for other in others:
        total += other
    return total


def _norm(layer) -> _Norm:
    return _Norm(_numbers(layer.gamma), _numbers(layer.beta), layer.epsilon)


def _numbers(variable) -> np.ndarray:
    return ops.convert_to_numpy(variable)
