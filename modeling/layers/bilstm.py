"""A bidirectional LSTM over the encoder's vectors ("+ BiLSTM", paper, sections 5.1 and 5.3).

Our own loop and not `keras.layers.LSTM`: that one chooses among implementations by device, and
which of them compiles under XLA or respects a mask differs. Gates are ordered and weights shaped
as in `keras.layers.LSTM`, so weights can be exchanged with it.
"""

import keras
from keras import ops

from modeling.layers.tensors import scan_tensors


class LSTMDirection(keras.layers.Layer):
    """One LSTM layer in one direction (Hochreiter and Schmidhuber 1997; forget gate biased to 1).

    At padding the state stays as it is. Gates and cell state are float32 under any policy.

    Args:
        in_size, units: Widths of the input and of the state.
        reverse: From the last position to the first.
        name: "forward" or "backward".
    """

    def __init__(self, in_size: int, units: int, reverse: bool, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.in_size = in_size
        self.units = units
        self.reverse = reverse

    def build(self, input_shape=None):
        units = self.units
        self.kernel = self.add_weight(
            shape=(self.in_size, 4 * units), initializer="glorot_uniform", name="kernel"
        )
        self.recurrent_kernel = self.add_weight(
            shape=(units, 4 * units), initializer="orthogonal", name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(4 * units,), initializer=_forget_bias, name="bias")

    def call(self, x, input_mask):
        """[B, T, in], int [B, T] → outputs [B, T, units] (0 at padding), last state [B, units]."""
        dtype = x.dtype
        recurrent = ops.convert_to_tensor(self.recurrent_kernel)
        # The inputs' share of all steps is one product; time goes first for the loop.
        inputs = ops.matmul(ops.transpose(x, (1, 0, 2)), ops.convert_to_tensor(self.kernel))
        inputs = ops.cast(inputs, "float32") + ops.cast(self.bias, "float32")
        mask = ops.transpose(ops.cast(input_mask, "bool"))[:, :, None]  # [T, B, 1]
        zero = ops.zeros((ops.shape(x)[0], self.units), "float32")

        def step(state, now):
            h, c = state
            gates, real = now
            gates = gates + ops.cast(ops.matmul(ops.cast(h, dtype), recurrent), "float32")
            i, f, g, o = ops.split(gates, 4, axis=-1)
            new_c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
            new_h = ops.sigmoid(o) * ops.tanh(new_c)
            # Chosen, not mixed by a factor: that uses each state three times, whose gradients
            # TensorFlow then adds in a temporary variable, and in a loop of large tensors within
            # a loop of steps that fails as "AlreadyExists".
            h, c = ops.where(real, new_h, h), ops.where(real, new_c, c)
            return (h, c), h

        (last, _), outputs = scan_tensors(step, (zero, zero), (inputs, mask), self.reverse)
        outputs = ops.where(mask, outputs, 0.0)
        return ops.cast(ops.transpose(outputs, (1, 0, 2)), dtype), ops.cast(last, dtype)


class BiLSTM(keras.layers.Layer):
    """Layers of a forward and a backward LSTM each.

    Its weights are named `bilstm/layer_0/forward/kernel`, `…/recurrent_kernel`, `…/bias`.

    Args:
        in_size: Width of the input.
        units: Width of each direction.
        num_layers: Each layer but the first reads both directions of the one below.
    """

    def __init__(
        self, in_size: int, units: int, num_layers: int = 1, name: str = "bilstm", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.directions = [
            [
                LSTMDirection(
                    in_size if index == 0 else 2 * units,
                    units,
                    reverse,
                    name="backward" if reverse else "forward",
                    dtype=self.dtype_policy,
                )
                for reverse in (False, True)
            ]
            for index in range(num_layers)
        ]

    def build(self, input_shape=None):
        for index, pair in enumerate(self.directions):
            with keras.name_scope(f"layer_{index}"):
                for direction in pair:
                    direction.build()

    def call(self, x, input_mask):
        """Reads a batch in both directions.

        Args:
            x: [B, T, in].
            input_mask: int [B, T], 1 at real tokens. What stands at the others has no effect.

        Returns:
            (outputs [B, T, 2·units], 0 at padding; final states [B, 2·units] of the top layer,
            the forward one after the last real token, the backward one after the first.)
        """
        last = []
        for pair in self.directions:
            outputs, last = zip(*(direction(x, input_mask) for direction in pair), strict=True)
            x = ops.concatenate(outputs, axis=-1)
        return x, ops.concatenate(last, axis=-1)


def _forget_bias(shape, dtype=None):
    units = shape[0] // 4
    ones = ops.ones((units,), dtype)
    return ops.concatenate([0 * ones, ones, 0 * ones, 0 * ones])
