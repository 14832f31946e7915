"""What stands on the encoder: masked LM, next sentence, linear classes, spans."""

import keras
from keras import ops

from modeling.config import BertConfig
from modeling.layers.attention import Dense
from modeling.layers.embeddings import LayerNorm, initializer
from modeling.layers.tensors import activate, gather_positions
from modeling.layers.weights import read

# The original release draws its head weights with this, whatever initializer_range says.
HEAD_STDDEV = 0.02


class MaskedLMHead(keras.layers.Layer):
    """Scores of every vocabulary entry at the masked positions (paper, section 3.1, task 1).

    Transform, activation and layer norm, then the product with the word embeddings (tied) plus a
    bias of its own per vocabulary entry.
    """

    def __init__(self, config: BertConfig, name: str = "predictions", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.dense = Dense(
            config.hidden_size,
            config.hidden_size,
            config.initializer_range,
            name="dense",
            dtype=self.dtype_policy,
        )
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.output_bias = self.add_weight(
            shape=(self.config.vocab_size,), initializer="zeros", name="output_bias"
        )
        with keras.name_scope("transform"):
            self.dense.build()
            self.norm.build()

    def call(self, sequence_output, masked_lm_positions, word_embeddings):
        """[B, T, H], int32 [B, P], [V, H] → float32 logits [B, P, V]."""
        x = gather_positions(sequence_output, masked_lm_positions)
        x = activate(self.dense.product(x), self.dense.bias, name=self.config.hidden_act)
        x = self.norm(x)
        logits = ops.matmul(x, ops.transpose(read(word_embeddings, self.compute_dtype)))
        logits = ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")
        predictions = masked_lm_positions.shape[1]
        if predictions is None:
            predictions = ops.shape(masked_lm_positions)[1]
        return ops.reshape(logits, (-1, predictions, self.config.vocab_size))


def linear_logits(x, output_weights, output_bias):
    """[..., H] with weights [outputs, H] and bias [outputs] → float32 logits [..., outputs]."""
    logits = ops.matmul(x, ops.transpose(ops.convert_to_tensor(output_weights)))
    return ops.cast(logits, "float32") + ops.cast(output_bias, "float32")


def add_linear_weights(layer: keras.layers.Layer, outputs: int, hidden_size: int):
    """Gives `layer` the pair `output_weights` [outputs, H], `output_bias` [outputs].

    A function and not a layer, because the original's classifier has these two names in no scope
    at all: there the model itself owns them.
    """
    weights = layer.add_weight(
        shape=(outputs, hidden_size), initializer=initializer(HEAD_STDDEV), name="output_weights"
    )
    bias = layer.add_weight(shape=(outputs,), initializer="zeros", name="output_bias")
    return weights, bias


class NextSentenceHead(keras.layers.Layer):
    """Is B the sentence after A? Class 0: yes; class 1: random (paper, section 3.1, task 2)."""

    def __init__(self, config: BertConfig, name: str = "seq_relationship", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config

    def build(self, input_shape=None):
        self.output_weights, self.output_bias = add_linear_weights(self, 2, self.config.hidden_size)

    def call(self, pooled_output):
        """[B, H] → float32 logits [B, 2]."""
        return linear_logits(pooled_output, self.output_weights, self.output_bias)


class SpanHead(keras.layers.Layer):
    """Logits of being an answer's first and last piece (paper, section 4.2)."""

    def __init__(self, config: BertConfig, name: str = "squad", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config

    def build(self, input_shape=None):
        self.output_weights, self.output_bias = add_linear_weights(self, 2, self.config.hidden_size)

    def call(self, sequence_output):
        """[B, T, H] → float32 logits [B, T, 2]: start, end."""
        return linear_logits(sequence_output, self.output_weights, self.output_bias)
