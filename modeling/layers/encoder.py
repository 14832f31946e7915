"""The BERT encoder: embeddings, Transformer layers, pooler.

Layers nest and are named so that a variable's path, without the model's own name, is the name
that the original release gave it: `bert/encoder/layer_0/attention/self/query/kernel`. Hidden
states travel as rows [B·T, H] and are given their [B, T, H] shape at the end.
"""

import functools

import keras
from keras import ops

from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.layers.attention import SelfAttention, attention_bias
from modeling.layers.dense import Dense, LayerNorm, activate, dropout_add_norm
from modeling.layers.embeddings import EMBEDDINGS_SITE, BertEmbeddings
from modeling.layers.execution import PLAIN, Execution
from modeling.layers.tensors import gather_positions, recompute


def last_real_position(input_mask):
    """int [B, T], 1 at real tokens → int32 [B, 1], where the last 1 stands (0 if there is none)."""
    places = ops.arange(1, ops.shape(input_mask)[1] + 1, dtype="int32")
    last = ops.max(ops.cast(input_mask, "int32") * places, axis=1, keepdims=True)
    return ops.maximum(last - 1, 0)


class TransformerLayer(keras.layers.Layer):
    """One post-norm Transformer layer (Vaswani et al. 2017, section 3.1).

    attention → dropout → add and norm → wide layer with activation → narrow layer → dropout →
    add and norm. Its dropout sites are `site` to `site` + 2.
    """

    SITES = 3

    def __init__(self, config: BertConfig, site: int, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.site = site
        hidden, wide = config.hidden_size, config.intermediate_size
        stddev = config.initializer_range
        policy = {"dtype": self.dtype_policy}
        self.attention = SelfAttention(config, site, **policy)
        self.attention_output = Dense(hidden, hidden, stddev, **policy)
        self.attention_norm = LayerNorm(hidden, config.layer_norm_eps, **policy)
        self.intermediate = Dense(hidden, wide, stddev, **policy)
        self.output_dense = Dense(wide, hidden, stddev, **policy)
        self.output_norm = LayerNorm(hidden, config.layer_norm_eps, **policy)

    def build(self, input_shape=None):
        with keras.name_scope("attention"):
            self.attention.build()
            with keras.name_scope("output"):
                self.attention_output.build()
                self.attention_norm.build()
        with keras.name_scope("intermediate"):
            self.intermediate.build()
        with keras.name_scope("output"):
            self.output_dense.build()
            self.output_norm.build()

    def call(self, x, bias, dropout_key=None, execution: Execution = PLAIN):
        """Rows [B·T, H] and bias [B, 1, 1 or T, T] → rows like x."""

        def add_norm(rows, dense, residual, norm, site):
            return dropout_add_norm(
                dense.product(rows, execution),
                dense.bias,
                residual,
                norm.gamma,
                norm.beta,
                dropout_key,
                site,
                rate=self.config.hidden_dropout_prob,
                epsilon=norm.epsilon,
                compiled=execution.compile_chains,
            )

        context = self.attention(x, bias, dropout_key, execution=execution)
        x = add_norm(context, self.attention_output, x, self.attention_norm, self.site + 1)
        wide = activate(
            self.intermediate.product(x, execution),
            self.intermediate.bias,
            name=self.config.hidden_act,
            compiled=execution.compile_chains,
        )
        return add_norm(wide, self.output_dense, x, self.output_norm, self.site + 2)


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
        first = EMBEDDINGS_SITE + 1
        self.layers = [
            TransformerLayer(
                config,
                site=first + index * TransformerLayer.SITES,
                name=f"layer_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(config.num_hidden_layers)
        ]
        hidden = config.hidden_size
        self.pooler = Dense(hidden, hidden, config.initializer_range, dtype=self.dtype_policy)
        self.next_dropout_site = first + config.num_hidden_layers * TransformerLayer.SITES

    def build(self, input_shape=None):
        self.embeddings.build()
        with keras.name_scope("encoder"):
            for layer in self.layers:
                layer.build()
        with keras.name_scope("pooler"):
            self.pooler.build()

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Encodes a batch.

        Args:
            inputs: Dict with int32 tensors [B, T]: `input_ids`; `input_mask` (1 at real tokens;
                absent: all ones); `segment_ids` (absent: all zeros). Rows of several sequences have
                two more, and then give the vectors that each sequence would give in a row of its
                own: `position_ids` (where a token stands in its sequence; absent: in the row) and
                `sequence_ids` (1, 2, … by sequence, 0 at padding; a token attends to those of its
                own number; absent: to all). Other keys are not read.
            dropout_key: int32 [3] (seed, step, stream) or [5] turns dropout on; see
                `modeling.layers.dropout`.
            execution: How, see `modeling.layers.execution`.

        Returns:
            Dict with `embedding_output` [B, T, H], `encoder_outputs` (list of [B, T, H], one per
            layer), `sequence_output` (the last of them) and `pooled_output` [B, H], which is made
            of the first token's vector, or in a left-to-right model of the last real token's: the
            only one there that has seen the whole text, while [CLS] has seen itself alone. It is
            one vector per row, however many sequences that has.
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
        direction = self.config.attention_direction
        bias = attention_bias(input_mask, self.compute_dtype, direction, sequence_ids)
        x = self.embeddings(input_ids, segment_ids, position_ids, dropout_key, execution=execution)
        layer_outputs = execution.encoders.get(id(self), self.layer_outputs)
        rows = [x, *layer_outputs(x, bias, input_mask, dropout_key, execution)]
        shape = (-1, ops.shape(input_ids)[1], self.config.hidden_size)
        embedding_output, *encoder_outputs = (ops.reshape(x, shape) for x in rows)
        sequence_output = encoder_outputs[-1]
        pooled_from = sequence_output[:, 0]
        if direction == LEFT_TO_RIGHT:
            pooled_from = gather_positions(sequence_output, last_real_position(input_mask))
        return {
            "embedding_output": embedding_output,
            "encoder_outputs": encoder_outputs,
            "sequence_output": sequence_output,
            "pooled_output": ops.tanh(self.pooler(pooled_from, execution=execution)),
        }

    def layer_outputs(self, x, bias, input_mask, dropout_key, execution: Execution) -> list:
        """Rows [B·T, H] of each layer.

        Args:
            x: The embeddings, rows [B·T, H].
            bias: See `attention_bias`.
            input_mask: int [B, T], which the bias has already.
            dropout_key, execution: As in `call`.
        """
        outputs = []
        for layer in self.layers:
            if self.remat and not execution.inference:
                x = recompute(functools.partial(layer, execution=execution), x, bias, dropout_key)
            else:
                x = layer(x, bias, dropout_key, execution=execution)
            outputs.append(x)
        return outputs
