"""Word, position and segment embeddings (paper, section 3, figure 2)."""

import keras
from keras import ops

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.dense import LayerNorm, initializer
from modeling.layers.dropout import dropout
from modeling.layers.execution import PLAIN, Execution
from modeling.layers.tensors import check_tensor_range

EMBEDDINGS_SITE = 0
"""Of their dropout, see `modeling.layers.dropout`."""


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

    def call(
        self,
        input_ids,
        segment_ids,
        position_ids=None,
        dropout_key=None,
        execution: Execution = PLAIN,
    ):
        """int32 [B, T] each → rows [B·T, H]; without position_ids they count from 0."""
        config = self.config
        length = ops.shape(input_ids)[1]
        limit = config.max_position_embeddings
        if position_ids is None and isinstance(length, int) and length > limit:
            raise ModelingError(
                f"The sequences are {length} tokens long, but the model's "
                f"max_position_embeddings is {limit}. Lower max_seq_length or use a configuration "
                f"with more positions."
            )
        # [B, T, H]
        words = execution.read_rows(self.word_embeddings, input_ids, self.compute_dtype)
        types = ops.one_hot(
            ops.reshape(segment_ids, (-1,)), config.type_vocab_size, dtype=self.compute_dtype
        )
        types = ops.reshape(ops.matmul(types, self.token_type_embeddings), ops.shape(words))
        positions = ops.convert_to_tensor(self.position_embeddings)
        if position_ids is None:
            positions = positions[:length]  # [T, H]
        else:
            position_ids = check_tensor_range(position_ids, limit, "position_ids")
            positions = ops.take(positions, position_ids, axis=0)  # [B, T, H]
        x = ops.reshape(words + types + positions, (-1, config.hidden_size))
        x, rate = self.norm(x, execution=execution), config.hidden_dropout_prob
        return dropout(x, rate, dropout_key, EMBEDDINGS_SITE, execution.compile_chains)
