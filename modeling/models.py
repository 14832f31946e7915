"""Encoder and heads put together: one model per task family.

model = BertPretrainer(BertConfig.from_json_file("bert_config.json"))
outputs = model({"input_ids": ids, "input_mask": mask, "segment_ids": segments,
                 "masked_lm_positions": positions})
"""

import keras

from modeling.bilstm import BiLSTM
from modeling.config import BertConfig
from modeling.encoder import BertEncoder, TransformerLayer
from modeling.heads import MaskedLMHead, NextSentenceHead, add_linear_weights, linear_logits
from modeling.tensors import dropout

# The original release drops out the classifier's input at this rate, whatever the configuration.
CLASSIFIER_DROPOUT = 0.1


class BertModel(keras.Model):
    """What all models share: the configuration, the encoder and where dropout's key comes from.

    `remat` trades time for memory in training, see `BertEncoder`.

    Called with `dropout_key` (int32 [3], see `modeling.tensors.dropout`) the draw is a function
    of the key alone; this is how the project trains. Called with `training=True` and no key, as
    Keras's own `fit` does, the key comes from a Keras seed generator.
    """

    def __init__(self, config: BertConfig, name: str, remat: bool = False, **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.encoder = BertEncoder(config, dtype=self.dtype_policy, remat=remat)
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, input_shape=None):
        self.encoder.build()

    def next_dropout_key(self, training, dropout_key):
        """`dropout_key` if given, else a fresh one when training, else None (no dropout)."""
        if dropout_key is not None or not training:
            return dropout_key
        numbers = keras.ops.cast(self.seed_generator.next() % 2**31, "int32")
        seed, step = keras.ops.unstack(numbers, num=2)
        return keras.ops.stack([seed, step, keras.ops.zeros((), "int32")])


class BertPretrainer(BertModel):
    """Masked LM and next sentence prediction (paper, section 3.1).

    Args:
        config: The encoder's configuration.
        next_sentence: False for the ablations "No NSP" and "LTR & No NSP" (paper, section 5.1):
            no such head. The pooler then gets no gradient and keeps its initial weights, which
            fine-tuning starts from.
    """

    def __init__(
        self,
        config: BertConfig,
        next_sentence: bool = True,
        name: str = "bert_pretrainer",
        **kwargs,
    ):
        super().__init__(config, name=name, **kwargs)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)
        self.next_sentence = None
        if next_sentence:
            self.next_sentence = NextSentenceHead(config, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.masked_lm.build()
            if self.next_sentence is not None:
                self.next_sentence.build()

    def call(self, inputs, training=False, dropout_key=None):
        """Runs the encoder and both heads.

        Args:
            inputs: Dict of int32 tensors: `input_ids`, `input_mask`, `segment_ids` [B, T] and
                `masked_lm_positions` [B, P]. Without the positions no word is predicted.
            training: Draws a dropout key when none is given.
            dropout_key: int32 [3], turns dropout on.

        Returns:
            The encoder's dict (see `BertEncoder.call`) with `masked_lm_logits` float32 [B, P, V]
            and, with that head, `next_sentence_logits` float32 [B, 2].
        """
        outputs = self.encoder(inputs, self.next_dropout_key(training, dropout_key))
        positions = inputs.get("masked_lm_positions")
        if positions is not None:
            outputs["masked_lm_logits"] = self.masked_lm(
                outputs["sequence_output"], positions, self.encoder.embeddings.word_embeddings
            )
        if self.next_sentence is not None:
            outputs["next_sentence_logits"] = self.next_sentence(outputs["pooled_output"])
        return outputs


class BertClassifier(BertModel):
    """One label per sentence or pair (paper, section 4.1).

    Args:
        config: The encoder's configuration.
        num_labels: Rows of `output_weights`.
        dropout_rate: Of the vector that is classified.
        bilstm: Puts a bidirectional LSTM, `hidden_size` wide in each direction and randomly
            initialised, on the encoder (paper, section 5.1, "+ BiLSTM"). Classified is then not
            the pooled vector but the LSTM's two final states [B, 2·H], and the pooler gets no
            gradient.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        dropout_rate: float = CLASSIFIER_DROPOUT,
        bilstm: bool = False,
        name: str = "bert_classifier",
        **kwargs,
    ):
        super().__init__(config, name=name, **kwargs)
        self.dropout_rate = dropout_rate
        self.num_labels = num_labels
        self.bilstm = None
        if bilstm:
            self.bilstm = BiLSTM(config.hidden_size, config.hidden_size, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        width = self.config.hidden_size
        if self.bilstm is not None:
            self.bilstm.build()
            width *= 2
        self.output_weights, self.output_bias = add_linear_weights(self, self.num_labels, width)

    def call(self, inputs, training=False, dropout_key=None):
        """Dict of int32 [B, T] tensors → the encoder's dict with float32 `logits` [B, labels]."""
        dropout_key = self.next_dropout_key(training, dropout_key)
        outputs = self.encoder(inputs, dropout_key)
        site = 1 + self.config.num_hidden_layers * TransformerLayer.SITES
        x = outputs["pooled_output"]
        if self.bilstm is not None:
            mask = inputs.get("input_mask")
            if mask is None:
                mask = keras.ops.ones_like(inputs["input_ids"])
            _, x = self.bilstm(outputs["sequence_output"], mask)
        x = dropout(x, self.dropout_rate, dropout_key, site)
        outputs["logits"] = linear_logits(x, self.output_weights, self.output_bias)
        return outputs
