"""Encoder and heads put together: one model per task family.

model = BertPretrainer(BertConfig.from_json_file("bert_config.json"))
outputs = model({"input_ids": ids, "input_mask": mask, "segment_ids": segments,
                 "masked_lm_positions": positions})
"""

import keras
from keras import ops

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.bilstm import BiLSTM
from modeling.layers.dense import initializer
from modeling.layers.dropout import dropout
from modeling.layers.encoder import BertEncoder
from modeling.layers.execution import PLAIN, Execution
from modeling.layers.heads import (
    HEAD_STDDEV,
    LinearHead,
    MaskedLMHead,
    add_linear_weights,
    linear_logits,
)

# The original release drops out the classifier's input at this rate, whatever the configuration.
CLASSIFIER_DROPOUT = 0.1
ROW_POOLINGS = ("mean", "max")
_SECOND_SEED = 1 << 30
_OURS_OF_OTHERS = {
    **dict.fromkeys(("input_word_ids", "token_ids"), "input_ids"),
    **dict.fromkeys(("attention_mask", "padding_mask"), "input_mask"),
    **dict.fromkeys(("token_type_ids", "input_type_ids"), "segment_ids"),
}
ABSENT = -1e9
"""Logit of a choice that there isn't; its probability is 0."""


class BertModel(keras.Model):
    """The encoder with its configuration, which all other models share.

    All are called as model(inputs, dropout_key=None, execution=PLAIN):

        inputs: Dict of int32 tensors, see `BertEncoder.call` and each model's `call`.
        dropout_key: int32 [3] or [5], see `modeling.layers.dropout`; None means no dropout.
        execution: How, see `modeling.layers.execution`.

    Args:
        config: The encoder's configuration.
        remat: Trades time for memory in training, see `BertEncoder`.
        dropout_rate: Of the vectors that a task's own head reads.

    Attributes:
        unused: Beginnings of the names of weights that the answers don't depend on. Many
            checkpoints lack them, and may.
    """

    unused: tuple[str, ...] = ()

    def __init__(
        self,
        config: BertConfig,
        *,
        remat: bool = False,
        dropout_rate: float = CLASSIFIER_DROPOUT,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.dropout_rate = dropout_rate
        self.encoder = BertEncoder(config, dtype=self.dtype_policy, remat=remat)

    def build(self, input_shape=None):
        self.encoder.build()

    def __call__(self, *args, training: bool | None = None, **kwargs):
        """Refuses what would be ignored: Keras's way of asking for dropout, inputs' other names."""
        if training and kwargs.get("dropout_key") is None:
            self._refuse_without_dropout()
        inputs = args[0] if args else kwargs.get("inputs")
        foreign = _OURS_OF_OTHERS.keys() & set(inputs if isinstance(inputs, dict) else ())
        if foreign:
            names = "; ".join(f"{name} is {_OURS_OF_OTHERS[name]} here" for name in sorted(foreign))
            raise ModelingError(f"The inputs have names that other libraries give them: {names}.")
        return super().__call__(*args, **kwargs)

    def train_step(self, *args, **kwargs):
        """Keras's fit, which tells only a `call` with such an argument that it is training."""
        if type(self).call.__module__ == __name__:  # another one may bring a key of its own
            self._refuse_without_dropout()
        return super().train_step(*args, **kwargs)

    def _refuse_without_dropout(self) -> None:
        if any((self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob)):
            raise ModelingError(
                f"{type(self).__name__} was called with training=True, or by Keras's fit, but "
                f"without a dropout_key, and so without dropout. Train it with "
                f"modeling.training, pass a dropout_key, or set both dropout probabilities of "
                f"its configuration to 0."
            )

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Runs the encoder alone; see `BertEncoder.call`."""
        return self.encoder(inputs, dropout_key, execution=execution)

    def head_dropout(self, x, dropout_key, execution: Execution):
        """Dropout of what a head reads, at a site behind those of the encoder."""
        site = self.encoder.next_dropout_site
        return dropout(x, self.dropout_rate, dropout_key, site, execution.compile_chains)


class BertPretrainer(BertModel):
    """Masked LM and next sentence prediction (paper, section 3.1).

    Args:
        config: The encoder's configuration.
        next_sentence: False for the ablations "No NSP" and "LTR & No NSP" (paper, section 5.1):
            no such head. The pooler then gets no gradient and keeps its initial weights, which
            fine-tuning starts from.
    """

    def __init__(self, config: BertConfig, next_sentence: bool = True, **kwargs):
        super().__init__(config, **kwargs)
        self.unused = () if next_sentence else ("bert/pooler/",)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)
        self.next_sentence = None
        if next_sentence:
            self.next_sentence = LinearHead(
                config.hidden_size, 2, "seq_relationship", dtype=self.dtype_policy
            )

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.masked_lm.build()
            if self.next_sentence is not None:
                self.next_sentence.build()

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Runs the encoder and both heads.

        Args:
            inputs: Dict of int32 tensors: `input_ids`, `input_mask`, `segment_ids` [B, T] and
                `masked_lm_positions` [B, P]. Without the positions no word is predicted. In rows
                of several sequences also `position_ids` and `sequence_ids` [B, T], see
                `BertEncoder.call`; `masked_lm_positions` count from the start of the row.
            dropout_key, execution: See `BertModel`.

        Returns:
            The encoder's dict (see `BertEncoder.call`) with `masked_lm_logits` float32 [B, P, V]
            and, with that head, `next_sentence_logits` float32 [B, 2].

        Raises:
            ModelingError: Rows of several sequences, but a next sentence head.
        """
        if self.next_sentence is not None and inputs.get("sequence_ids") is not None:
            raise ModelingError(
                "The batch has sequence_ids, so its rows hold several sequences each, but next "
                "sentence prediction needs one pair of segments per row. Pre-train packed rows "
                "with masked words alone (next_sentence=False; --objective=mlm)."
            )
        outputs = self.encoder(inputs, dropout_key, execution=execution)
        positions = inputs.get("masked_lm_positions")
        if positions is not None:
            outputs["masked_lm_logits"] = self.masked_lm(
                outputs["sequence_output"],
                positions,
                self.encoder.embeddings.word_embeddings,
                execution=execution,
            )
        if self.next_sentence is not None:
            outputs["next_sentence_logits"] = self.next_sentence(outputs["pooled_output"])
        return outputs


class BertClassifier(BertModel):
    """One label per sentence or pair (paper, section 4.1).

    Args:
        config: The encoder's configuration.
        num_labels: Rows of `output_weights`.
        second: A second encoder's configuration, of the same vocabulary. Its pooled vector stands
            behind the first one's, as ELMo joins a left-to-right and a right-to-left model (paper,
            section 5.1); its weights' names begin with "second_".
        bilstm: Puts a bidirectional LSTM, `hidden_size` wide in each direction and randomly
            initialised, on the encoder (paper, section 5.1, "+ BiLSTM"). Classified is then not
            the pooled vector but the LSTM's two final states [B, 2·H], and the pooler gets no
            gradient.
        row_pooling: "mean" or "max": how the logits of an example's rows become one, where it
            has several (the windows over a long text).
        numbers: Predicts numbers: its logits are in the targets' own unit, of which two weights
            that aren't trained keep mean and scale; see `checkpoints.heads`.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        bilstm: bool = False,
        row_pooling: str = "mean",
        second: BertConfig | None = None,
        numbers: bool = False,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        self.numbers = numbers
        self.second_encoder = None
        if second is not None:
            _check_second(config, second, bilstm)
            options = {"remat": self.encoder.remat, "dtype": self.dtype_policy}
            self.second_encoder = BertEncoder(second, name="second_bert", **options)
        if row_pooling not in ROW_POOLINGS:
            raise ModelingError(
                f"row_pooling is {row_pooling!r}; it may be {' or '.join(ROW_POOLINGS)}."
            )
        self.row_pooling = row_pooling
        self.num_labels = num_labels
        self.bilstm = None
        if bilstm:
            self.bilstm = BiLSTM(config.hidden_size, config.hidden_size, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        width = self.config.hidden_size
        if self.second_encoder is not None:
            self.second_encoder.build()
            width += self.second_encoder.config.hidden_size
        if self.bilstm is not None:
            self.bilstm.build()
            width *= 2
        self.output_weights, self.output_bias = add_linear_weights(self, self.num_labels, width)
        if self.numbers:
            # Cast to half precision they would change what the numbers are.
            options = {"shape": (self.num_labels,), "trainable": False, "autocast": False}
            self.target_mean = self.add_weight(initializer="zeros", name="target_mean", **options)
            self.target_scale = self.add_weight(initializer="ones", name="target_scale", **options)

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Runs encoder and classifier.

        Args:
            inputs: Dict of int32 tensors `input_ids`, `input_mask`, `segment_ids`, [B, T], or
                [B, R, T] for examples of several rows; a row without pieces is none.
            dropout_key, execution: See `BertModel`.

        Returns:
            The (first) encoder's dict (of all rows, [B·R, …]) with float32 `logits` [B, labels];
            with `numbers` also `target_scale` [labels].
        """
        inputs, rows = _flat_rows(inputs)
        outputs = self.encoder(inputs, dropout_key, execution=execution)
        x = outputs["pooled_output"]
        if self.second_encoder is not None:
            # Masks of its own: another seed, far from those that anyone gives.
            key = dropout_key
            if key is not None:
                key = ops.concatenate([key[:1] + _SECOND_SEED, key[1:]])
            second = self.second_encoder(inputs, key, execution=execution)
            x = ops.concatenate([x, second["pooled_output"]], -1)
        if self.bilstm is not None:
            mask = inputs.get("input_mask")
            if mask is None:
                mask = ops.ones_like(inputs["input_ids"])
            _, x = self.bilstm(outputs["sequence_output"], mask)
        x = self.head_dropout(x, dropout_key, execution)
        logits = linear_logits(x, self.output_weights, self.output_bias)
        if rows is not None:
            logits = ops.reshape(logits, (-1, ops.shape(rows)[1], self.num_labels))
            logits = _pooled_rows(logits, rows, self.row_pooling)
        if self.numbers:
            outputs["target_scale"] = ops.convert_to_tensor(self.target_scale)
            logits = logits * outputs["target_scale"] + ops.convert_to_tensor(self.target_mean)
        outputs["logits"] = logits
        return outputs


class BertMultipleChoice(BertModel):
    """Which of several continuations follows a text (paper, section 4.4)?

    The only new weight is a vector, whose product with the pooled vector of each choice's row is
    its logit; a bias would be the same for all choices.
    """

    def build(self, input_shape=None):
        super().build()
        self.output_weights = self.add_weight(
            shape=(1, self.config.hidden_size),
            initializer=initializer(HEAD_STDDEV),
            name="output_weights",
        )

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Dict of int32 [B, C, T] tensors → the encoder's dict with float32 `logits` [B, C].

        A row without pieces is no choice; its logit is ABSENT.
        """
        inputs, rows = _flat_rows(inputs)
        if rows is None:
            raise ModelingError("Multiple choice needs inputs of shape [B, choices, length].")
        outputs = self.encoder(inputs, dropout_key, execution=execution)
        x = self.head_dropout(outputs["pooled_output"], dropout_key, execution)
        logits = linear_logits(x, self.output_weights, ops.zeros((1,)))
        logits = ops.reshape(logits, (-1, ops.shape(rows)[1]))
        outputs["logits"] = ops.where(rows, logits, ABSENT)
        return outputs


class BertQuestionAnswering(BertModel):
    """Where in the context an answer begins and ends (paper, section 4.2).

    The new weights are a start and an end vector, with a bias each as in the original.
    """

    unused = ("bert/pooler/",)

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.spans = LinearHead(config.hidden_size, 2, "squad", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.spans.build()

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Dict of int32 [B, T] tensors → the encoder's dict with `start_logits`, `end_logits`.

        Both are float32 [B, T]; places of padding have some as well.
        """
        outputs = self.encoder(inputs, dropout_key, execution=execution)
        logits = self.spans(outputs["sequence_output"])
        return outputs | {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


class BertTagger(BertModel):
    """A tag for each piece, from its last vector alone (paper, section 5.3, without a CRF).

    Which pieces count, the first of each word, is a matter of the labels.

    Args:
        config: The encoder's configuration.
        num_tags: Rows of `output_weights`.
    """

    head = "tags"  # A classifier has weights of the same names.
    unused = ("bert/pooler/",)

    def __init__(self, config: BertConfig, num_tags: int, **kwargs):
        super().__init__(config, **kwargs)
        self.num_tags = num_tags

    def build(self, input_shape=None):
        super().build()
        self.output_weights, self.output_bias = add_linear_weights(
            self, self.num_tags, self.config.hidden_size
        )

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Dict of int32 [B, T] tensors → the encoder's dict with float32 `logits` [B, T, tags]."""
        outputs = self.encoder(inputs, dropout_key, execution=execution)
        x = self.head_dropout(outputs["sequence_output"], dropout_key, execution)
        return outputs | {"logits": linear_logits(x, self.output_weights, self.output_bias)}


def _check_second(config: BertConfig, second: BertConfig, bilstm: bool) -> None:
    if second.vocab_size != config.vocab_size:
        raise ModelingError(
            f"The second encoder's vocab_size is {second.vocab_size}, the first one's "
            f"{config.vocab_size}. Both read the same pieces, so they need the same vocabulary."
        )
    if bilstm:
        raise ModelingError("A BiLSTM is put on one encoder; leave it or the second one out.")


def _flat_rows(inputs):
    """([B, R, T] as [B·R, T], bool [B, R]: which rows there are); [B, T] as it is, None."""
    ids = inputs["input_ids"]
    if len(ids.shape) == 2:
        return inputs, None
    rows = ops.any(ops.not_equal(inputs["input_mask"], 0), -1)
    length = ops.shape(ids)[2]
    flat = {
        name: ops.reshape(inputs[name], (-1, length))
        for name in ("input_ids", "input_mask", "segment_ids")
        if name in inputs
    }
    return flat, rows


def _pooled_rows(logits, rows, pooling: str):
    """[B, R, L] and bool [B, R] → [B, L], over the rows there are."""
    rows = ops.expand_dims(rows, -1)
    if pooling == "max":
        return ops.max(ops.where(rows, logits, ABSENT), 1)
    count = ops.maximum(ops.sum(ops.cast(rows, "float32"), 1), 1.0)
    return ops.sum(ops.where(rows, logits, 0.0), 1) / count
