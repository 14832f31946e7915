"""Losses and accuracies as sums with their weights, so that they add up over batches and replicas.

Every function takes logits and labels and returns `Mean` pairs. A mean over several batches,
micro-batches or replicas is the sum of totals over the sum of weights, which is what makes one
large batch equal to its parts.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import tensorflow as tf

from modeling.errors import ModelingError


class Mean(NamedTuple):
    """A mean not yet divided: `total` / (`weight` + `epsilon`)."""

    total: tf.Tensor
    weight: tf.Tensor
    epsilon: float = 0.0

    def result(self) -> tf.Tensor:
        """The mean; 0 where the weight is 0."""
        return tf.math.divide_no_nan(self.total, self.weight + self.epsilon)


# Keeps a batch without a single masked word from dividing by zero, as in the original.
MASKED_LM_EPSILON = 1e-5


def cross_entropy(logits, labels, weights, epsilon: float = 0.0) -> Mean:
    """Negative log likelihood of `labels`.

    Args:
        logits: float32 [N, C].
        labels: int32 [N].
        weights: float32 [N]; 0 leaves an element out.
        epsilon: Added to the sum of weights.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return Mean(tf.reduce_sum(losses * weights), tf.reduce_sum(weights), epsilon)


def accuracy(logits, labels, weights) -> Mean:
    """Share of rows whose largest logit is the label's; shapes as in `cross_entropy`."""
    right = tf.cast(tf.equal(tf.argmax(logits, -1, output_type=labels.dtype), labels), tf.float32)
    return Mean(tf.reduce_sum(right * weights), tf.reduce_sum(weights))


Means = dict[str, Mean]


class Losses(Protocol):
    """What a model is trained with.

    `weights` has to be told apart from the rest because one large batch can only equal its parts
    if the losses of every part are divided by the weight of the whole.
    """

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        """(losses, metrics); the training loss is the sum of the losses' results."""
        ...

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        """The weight of each loss, float32 scalars, known before the model has run."""
        ...


class PretrainingLosses:
    """Losses and metrics of masked LM and next sentence prediction.

    Called with what `BertPretrainer` returns and the record's tensors, where `is_real_example`
    float32 [B] leaves padded rows out. The names are those of the original's eval_results.txt.

    Rows may hold several sequences (`sequence_ids` int32 [B, T]: 1, 2, … and 0 at padding). Every
    prediction counts alike, whichever row it is in, so the loss of packed rows is that of the same
    sequences in rows of their own. An example is a row, for that is what a step computes; the
    metric `sequences_per_row` tells how many sequences that is.

    Args:
        next_sentence: False for the ablations without next sentence prediction (paper, section
            5.1), whose models have no `next_sentence_logits`.
    """

    def __init__(self, next_sentence: bool = True):
        self.next_sentence = next_sentence

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        logits = outputs["masked_lm_logits"]
        logits = tf.reshape(logits, [-1, logits.shape[-1]])
        ids = tf.reshape(batch["masked_lm_ids"], [-1])
        weights = tf.reshape(batch["masked_lm_weights"], [-1])
        losses = {"masked_lm_loss": cross_entropy(logits, ids, weights, MASKED_LM_EPSILON)}
        metrics = {"masked_lm_accuracy": accuracy(logits, ids, weights)}
        if "sequence_ids" in batch:
            sequences = tf.cast(tf.reduce_max(batch["sequence_ids"], 1), tf.float32)
            rows = tf.reduce_sum(real_examples(batch, sequences))
            metrics["sequences_per_row"] = Mean(tf.reduce_sum(sequences), rows)
        if self.next_sentence:
            labels = tf.reshape(batch["next_sentence_labels"], [-1])
            real = real_examples(batch, labels)
            logits = outputs["next_sentence_logits"]
            losses["next_sentence_loss"] = cross_entropy(logits, labels, real)
            metrics["next_sentence_accuracy"] = accuracy(logits, labels, real)
        return losses, metrics

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        weights = {"masked_lm_loss": tf.reduce_sum(batch["masked_lm_weights"])}
        if self.next_sentence:
            labels = tf.reshape(batch["next_sentence_labels"], [-1])
            weights["next_sentence_loss"] = tf.reduce_sum(real_examples(batch, labels))
        return weights


class ClassifierLosses:
    """Cross-entropy and accuracy of logits [B, L] against `label_ids` int32 [B].

    For `BertClassifier` and, where L are the choices, for `BertMultipleChoice`.

    Args:
        class_weights: L numbers by which the examples of each class count in the loss, and in
            its divisor; None for 1. The accuracy counts all alike.
    """

    def __init__(self, class_weights=None):
        self.class_weights = None
        if class_weights is not None:
            self.class_weights = tf.constant(class_weights, tf.float32)

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        labels, logits = batch["label_ids"], outputs["logits"]
        return (
            {"loss": cross_entropy(logits, labels, self._weighted(batch))},
            {"accuracy": accuracy(logits, labels, real_examples(batch, labels))},
        )

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        return {"loss": tf.reduce_sum(self._weighted(batch))}

    def _weighted(self, batch: Mapping) -> tf.Tensor:
        labels = batch["label_ids"]
        real = real_examples(batch, labels)
        return real if self.class_weights is None else real * tf.gather(self.class_weights, labels)


class MultiLabelLosses:
    """Sigmoid cross-entropy of logits [B, L] against `label_ids` float32 [B, L] of 0 and 1.

    The loss is the mean over labels and examples, the accuracy the share of examples where no
    label is wrong.

    Args:
        class_weights: L numbers by which each label's part of the loss counts; None for 1.
    """

    def __init__(self, class_weights=None):
        self.class_weights = None
        if class_weights is not None:
            self.class_weights = tf.constant(class_weights, tf.float32)

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        labels, logits = batch["label_ids"], outputs["logits"]
        real = real_examples(batch, labels[:, 0])
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        if self.class_weights is not None:
            losses *= self.class_weights
        losses = tf.reduce_mean(losses, 1)
        right = tf.reduce_all(tf.equal(logits >= 0, labels > 0.5), 1)
        count = tf.reduce_sum(real)
        return (
            {"loss": Mean(tf.reduce_sum(losses * real), count)},
            {"accuracy": Mean(tf.reduce_sum(tf.cast(right, tf.float32) * real), count)},
        )

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        return {"loss": tf.reduce_sum(real_examples(batch, batch["label_ids"][:, 0]))}


class RegressionLosses:
    """Mean squared error of logits [B, 1] against `label_ids` float32 [B].

    Errors count in units of the model's `target_scale`, if it has one: 1 is then the loss of
    always predicting the training labels' mean.
    """

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        labels, logits = batch["label_ids"], outputs["logits"]
        if len(labels.shape) != 1 or logits.shape[-1] != 1:
            raise ModelingError(
                f"The error of numbers is of logits [B, 1] against label_ids [B], but received "
                f"{list(logits.shape)} and {list(labels.shape)}."
            )
        real = real_examples(batch, labels)
        squares = tf.square((logits[:, 0] - labels) / outputs.get("target_scale", 1.0))
        return {"loss": Mean(tf.reduce_sum(squares * real), tf.reduce_sum(real))}, {}

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        return {"loss": tf.reduce_sum(real_examples(batch, batch["label_ids"]))}


class SpanLosses:
    """Mean of the cross-entropies of start and end, of `BertQuestionAnswering`.

    `label_ids` int32 [B, 2] are the places of the answer's first and last piece, 0 and 0 ([CLS])
    where the row holds no answer. Places of padding don't take part, so that the loss doesn't
    depend on how much there is of it (in the original they did). The accuracy is the share of
    rows where both places are right.
    """

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        labels = batch["label_ids"]
        real = real_examples(batch, labels[:, 0])
        padding = tf.cast(1 - batch["input_mask"], tf.float32) * 1e9
        total, right = 0.0, real
        for place, name in enumerate(("start_logits", "end_logits")):
            logits, label = outputs[name] - padding, labels[:, place]
            total += 0.5 * cross_entropy(logits, label, real).total
            hit = tf.equal(tf.argmax(logits, -1, output_type=label.dtype), label)
            right *= tf.cast(hit, tf.float32)
        count = tf.reduce_sum(real)
        return {"loss": Mean(total, count)}, {"accuracy": Mean(tf.reduce_sum(right), count)}

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        return {"loss": tf.reduce_sum(real_examples(batch, batch["label_ids"][:, 0]))}


class TaggingLosses:
    """Cross-entropy and accuracy of logits [B, T, tags] against `piece_labels` int32 [B, T].

    Pieces with a label below 0 (all but the first of each word) take no part. Every other one
    counts alike, whichever row it is in.
    """

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        logits, labels = outputs["logits"], tf.reshape(batch["piece_labels"], [-1])
        logits = tf.reshape(logits, [-1, logits.shape[-1]])
        weights, labels = tf.cast(labels >= 0, tf.float32), tf.maximum(labels, 0)
        return (
            {"loss": cross_entropy(logits, labels, weights)},
            {"accuracy": accuracy(logits, labels, weights)},
        )

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        return {"loss": tf.reduce_sum(tf.cast(batch["piece_labels"] >= 0, tf.float32))}


def real_examples(batch: Mapping, labels: tf.Tensor) -> tf.Tensor:
    """Float32 [B]: 0 for rows that only fill up a batch."""
    real = batch.get("is_real_example")
    return tf.ones_like(labels, tf.float32) if real is None else real
