"""The BERT encoder: embeddings, Transformer layers, pooler.

Layers nest and are named so that a variable's path, without the model's own name, is the name
that the original release gave it: `bert/encoder/layer_0/attention/self/query/kernel`. Hidden
states travel as rows [B·T, H] and are given their [B, T, H] shape at the end.
"""

import keras
from keras import ops

from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.layers.attention import Dense, SelfAttention, attention_bias
from modeling.layers.embeddings import BertEmbeddings, LayerNorm
from modeling.layers.tensors import activate, gather_positions, leaves_padding_out, recompute


def last_real_position(input_mask):
    """int [B, T], 1 at real tokens → int32 [B, 1], where the last 1 stands (0 if there is none)."""
    places = ops.arange(1, ops.shape(input_mask)[1] + 1, dtype="int32")
    last = ops.max(ops.cast(input_mask, "int32") * places, axis=1, keepdims=True)
    return ops.maximum(last - 1, 0)


class ProjectAddNorm(keras.layers.Layer):
    """Dense → dropout → add the residual → layer norm; the end of both halves of a layer."""

    def __init__(self, config: BertConfig, in_size: int, site: int, name: str = "output", **kwargs):
        super().__init__(name=name, **kwargs)
        self.rate = config.hidden_dropout_prob
        self.site = site
        self.dense = Dense(
            in_size,
            config.hidden_size,
            config.initializer_range,
            name="dense",
            dtype=self.dtype_policy,
        )
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.dense.build()
        self.norm.build()

    def call(self, x, residual, dropout_key=None):
        return self.norm.after_dropout(
            self.dense.product(x), self.dense.bias, residual, self.rate, dropout_key, self.site
        )


class AttentionBlock(keras.layers.Layer):
    """Self-attention with its output projection and residual."""

    def __init__(self, config: BertConfig, site: int, name: str = "attention", **kwargs):
        super().__init__(name=name, **kwargs)
        self.self_attention = SelfAttention(config, site, dtype=self.dtype_policy)
        self.projection = ProjectAddNorm(
            config, config.hidden_size, site + 1, dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        self.self_attention.build()
        self.projection.build()

    def call(self, x, bias, dropout_key=None, unpadding=None):
        attended = self.self_attention(x, bias, dropout_key, unpadding)
        return self.projection(attended, x, dropout_key)


class Intermediate(keras.layers.Layer):
    """The wide half of the feed-forward network, with its activation."""

    def __init__(self, config: BertConfig, name: str = "intermediate", **kwargs):
        super().__init__(name=name, **kwargs)
        self.activation = config.hidden_act
        self.dense = Dense(
            config.hidden_size,
            config.intermediate_size,
            config.initializer_range,
            name="dense",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        self.dense.build()

    def call(self, x):
        return activate(self.dense.product(x), self.dense.bias, name=self.activation)


class TransformerLayer(keras.layers.Layer):
    """One post-norm Transformer layer; dropout sites `site` to `site` + 2."""

    SITES = 3

    def __init__(self, config: BertConfig, site: int, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.attention = AttentionBlock(config, site, dtype=self.dtype_policy)
        self.intermediate = Intermediate(config, dtype=self.dtype_policy)
        self.projection = ProjectAddNorm(
            config, config.intermediate_size, site + 2, dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        self.attention.build()
        self.intermediate.build()
        self.projection.build()

    def call(self, x, bias, dropout_key=None, unpadding=None):
        x = self.attention(x, bias, dropout_key, unpadding)
        return self.projection(self.intermediate(x), x, dropout_key)


class BertEncoder(keras.layers.Layer):
    """Token ids to contextual vectors (paper, section 3).

    Args:
        config: Sizes, activation and dropout rates.
        name: Must stay "bert" where checkpoints are to keep the original's variable names.
        remat: Keeps of each layer only its output and computes the rest again for the gradient:
            about a third more work for a fraction of the memory. The numbers stay the same.
    """

    def __init__(self, config: BertConfig, name: str = "bert", remat: bool = False, **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.remat = remat
        self.embeddings = BertEmbeddings(config, dtype=self.dtype_policy)
        self.layers = [
            TransformerLayer(
                config,
                site=1 + index * TransformerLayer.SITES,
                name=f"layer_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(config.num_hidden_layers)
        ]
        self.pooler = Dense(
            config.hidden_size,
            config.hidden_size,
            config.initializer_range,
            name="dense",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        self.embeddings.build()
        with keras.name_scope("encoder"):
            for layer in self.layers:
                layer.build()
        with keras.name_scope("pooler"):
            self.pooler.build()

    def call(self, inputs, dropout_key=None):
        """Encodes a batch.

        Args:
            inputs: Dict with int32 tensors [B, T]: `input_ids`; `input_mask` (1 at real tokens;
                absent: all ones); `segment_ids` (absent: all zeros). Rows of several sequences have
                two more, and then give the vectors that each sequence would give in a row of its
                own: `position_ids` (where a token stands in its sequence; absent: in the row) and
                `sequence_ids` (1, 2, … by sequence, 0 at padding; a token attends to those of its
                own number; absent: to all). Other keys are not read.
            dropout_key: int32 [3] (seed, step, stream) turns dropout on; see
                `modeling.layers.tensors.dropout`.

        Returns:
            Dict with `embedding_output` [B, T, H], `encoder_outputs` (list of [B, T, H], one per
            layer), `sequence_output` (the last of them) and `pooled_output` [B, H], which is made
            of the first token's vector, or in a left-to-right model of the last real token's: the
            only one there that has seen the whole text, while [CLS] has seen itself alone. It is
            one vector per row, however many sequences that has. In exports padding has
            zeros in the layers' outputs, see `modeling.layers.unpadding`.
        """
        input_ids = inputs["input_ids"]
        input_mask = inputs.get("input_mask")
        segment_ids = inputs.get("segment_ids")
        position_ids = inputs.get("position_ids")
        sequence_ids = inputs.get("sequence_ids")
        if input_mask is None and sequence_ids is not None:
            input_mask = ops.cast(ops.not_equal(sequence_ids, 0), "int32")
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        length = input_ids.shape[1] if input_ids.shape[1] is not None else ops.shape(input_ids)[1]

        def restore(rows):
            return ops.reshape(rows, (-1, length, self.config.hidden_size))

        direction = self.config.attention_direction
        bias = attention_bias(input_mask, self.compute_dtype, direction, sequence_ids)
        x = embedding_output = self.embeddings(input_ids, segment_ids, dropout_key, position_ids)
        unpadding = None
        if leaves_padding_out():
            from modeling.layers.unpadding import Unpadding

            unpadding = Unpadding.of(input_mask)
            x = unpadding.remove(x)
        encoder_outputs = []
        for layer in self.layers:
            x = (
                recompute(layer, x, bias, dropout_key)
                if self.remat and not unpadding
                else layer(x, bias, dropout_key, unpadding)
            )
            encoder_outputs.append(restore(unpadding.restore_cleared(x) if unpadding else x))
        sequence_output = encoder_outputs[-1]
        pooled_from = sequence_output[:, 0]
        if direction == LEFT_TO_RIGHT:
            pooled_from = gather_positions(sequence_output, last_real_position(input_mask))
        return {
            "embedding_output": restore(embedding_output),
            "encoder_outputs": encoder_outputs,
            "sequence_output": sequence_output,
            "pooled_output": ops.tanh(self.pooler(pooled_from)),
        }
