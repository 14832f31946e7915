"""What stands on the encoder: masked LM, and linear maps to logits."""

import keras
import numpy as np
from keras import ops

from modeling.config import BertConfig
from modeling.layers.dense import Dense, LayerNorm, activate, initializer
from modeling.layers.execution import PLAIN, Execution
from modeling.layers.tensors import gather_positions

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
        hidden = config.hidden_size
        self.dense = Dense(hidden, hidden, config.initializer_range, dtype=self.dtype_policy)
        self.act, eps = config.masked_lm_form
        self.norm = LayerNorm(hidden, eps, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.output_bias = self.add_weight(
            shape=(self.config.vocab_size,), initializer="zeros", name="output_bias"
        )
        with keras.name_scope("transform"):
            self.dense.build()
            self.norm.build()

    def call(
        self,
        sequence_output,
        masked_lm_positions,
        word_embeddings,
        execution: Execution = PLAIN,
    ):
        """[B, T, H], int32 [B, P], [V, H] → float32 logits [B, P, V]."""
        x = gather_positions(sequence_output, masked_lm_positions)
        x = activate(
            self.dense.product(x, execution),
            self.dense.bias,
            name=self.act,
            compiled=execution.compile_chains,
        )
        x = self.norm(x, execution=execution)
        table = execution.read(word_embeddings, self.compute_dtype)
        logits = ops.matmul(x, ops.transpose(table))
        logits = ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")
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


def class_log_priors(counts: np.ndarray) -> np.ndarray:
    """The bias, float32 [classes], whose softmax is the classes' shares.

    A class that never occurs counts as half an example.

    Args:
        counts: How often each class occurs, weighted or not.
    """
    shares = np.maximum(counts, 0.5) / np.maximum(counts, 0.5).sum()
    return np.log(shares).astype(np.float32)


def label_log_odds(counts: np.ndarray, examples: int) -> np.ndarray:
    """The bias, float32 [labels], whose sigmoid is each label's share of the examples.

    One that never occurs, or always, counts as half an example away from that.

    Args:
        counts: Examples that have each label.
        examples: All of them.
    """
    counts = np.clip(counts, 0.5, examples - 0.5)
    return np.log(counts / (examples - counts)).astype(np.float32)


class LinearHead(keras.layers.Layer):
    """A linear map to logits, with weights in a scope of its own.

    "seq_relationship" [2]: is B the sentence after A (class 0) or a random one (class 1; paper,
    section 3.1, task 2)? "squad" [2]: is a piece an answer's first, its last (section 4.2)?
    """

    def __init__(self, hidden_size: int, outputs: int, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.hidden_size = hidden_size
        self.outputs = outputs

    def build(self, input_shape=None):
        self.output_weights, self.output_bias = add_linear_weights(
            self, self.outputs, self.hidden_size
        )

    def call(self, x):
        """[..., H] → float32 logits [..., outputs]."""
        return linear_logits(x, self.output_weights, self.output_bias)
