"""Word, position and segment embeddings (paper, section 3, figure 2)."""

import keras
from keras import ops

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.dropout import dropout
from modeling.layers.tensors import check_range, dropout_add_norm, layer_norm
from modeling.layers.weights import read_rows


def initializer(stddev: float) -> keras.initializers.Initializer:
    """A fresh truncated normal initialiser; as in the original, not corrected for truncation.

    Fresh each time because a Keras initialiser draws the same numbers at every call.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


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

    def call(self, x):
        return layer_norm(x, self.gamma, self.beta, epsilon=self.epsilon)

    def after_dropout(self, x, bias, residual, rate, dropout_key, site):
        """Of dropout(x + bias) + residual; rows [N, H] and bias [H]."""
        return dropout_add_norm(
            x, bias, residual, self.gamma, self.beta, self.epsilon, rate, dropout_key, site
        )


class BertEmbeddings(keras.layers.Layer):
    """Sum of the three embeddings, layer-normalised, with dropout.

    A segment id outside the table gives a zero vector, as in the original. A word id outside
    its table is an error on CPU and undefined elsewhere: the data pipelines check the range.
    A position id outside of its table is an error too, but undefined where XLA compiles.
    """

    def __init__(self, config: BertConfig, name: str = "embeddings", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        config = self.config

        def table(rows: int, name: str):
            return self.add_weight(
                shape=(rows, config.hidden_size),
                initializer=initializer(config.initializer_range),
                name=name,
            )

        self.word_embeddings = table(config.vocab_size, "word_embeddings")
        self.token_type_embeddings = table(config.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(config.max_position_embeddings, "position_embeddings")
        self.norm.build()

    def call(self, input_ids, segment_ids, dropout_key=None, position_ids=None):
        """int32 [B, T] each → rows [B·T, H]; without position_ids they count from 0."""
        config = self.config
        length = input_ids.shape[1]
        limit = config.max_position_embeddings
        if position_ids is None and length is not None and length > limit:
            raise ModelingError(
                f"The sequences are {length} tokens long, but the model's "
                f"max_position_embeddings is {limit}. Lower max_seq_length or use a configuration "
                f"with more positions."
            )
        if length is None:
            length = ops.shape(input_ids)[1]
        words = read_rows(self.word_embeddings, input_ids, self.compute_dtype)  # [B, T, H]
        types = ops.one_hot(
            ops.reshape(segment_ids, (-1,)), config.type_vocab_size, dtype=self.compute_dtype
        )
        types = ops.reshape(ops.matmul(types, self.token_type_embeddings), ops.shape(words))
        positions = ops.convert_to_tensor(self.position_embeddings)
        if position_ids is None:
            positions = positions[:length]  # [T, H]
        else:
            position_ids = check_range(position_ids, limit, "position_ids")
            positions = ops.take(positions, position_ids, axis=0)  # [B, T, H]
        x = ops.reshape(words + types + positions, (-1, config.hidden_size))
        return dropout(self.norm(x), config.hidden_dropout_prob, dropout_key, site=0)
