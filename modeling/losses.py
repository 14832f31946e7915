"""Losses and accuracies as sums with their weights, so that they add up over batches and replicas.

Every function takes logits and labels and returns `Mean` pairs. A mean over several batches,
micro-batches or replicas is the sum of totals over the sum of weights, which is what makes one
large batch equal to its parts.
"""

from typing import NamedTuple

import tensorflow as tf


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


def pretraining_losses(outputs, batch) -> tuple[dict[str, Mean], dict[str, Mean]]:
    """Losses and metrics of masked LM and next sentence prediction.

    Args:
        outputs: What `BertPretrainer` returns.
        batch: The record's tensors; `is_real_example` float32 [B] leaves padded rows out.

    Returns:
        (losses, metrics), named as in the original's eval_results.txt. The training loss is the
        sum of the losses' results.
    """
    logits = outputs["masked_lm_logits"]
    logits = tf.reshape(logits, [-1, logits.shape[-1]])
    ids = tf.reshape(batch["masked_lm_ids"], [-1])
    weights = tf.reshape(batch["masked_lm_weights"], [-1])
    labels = tf.reshape(batch["next_sentence_labels"], [-1])
    real = batch.get("is_real_example")
    if real is None:
        real = tf.ones_like(labels, tf.float32)
    next_logits = outputs["next_sentence_logits"]
    losses = {
        "masked_lm_loss": cross_entropy(logits, ids, weights, MASKED_LM_EPSILON),
        "next_sentence_loss": cross_entropy(next_logits, labels, real),
    }
    metrics = {
        "masked_lm_accuracy": accuracy(logits, ids, weights),
        "next_sentence_accuracy": accuracy(next_logits, labels, real),
    }
    return losses, metrics


def classifier_losses(outputs, batch) -> tuple[dict[str, Mean], dict[str, Mean]]:
    """Cross-entropy and accuracy of `BertClassifier` against `label_ids` int32 [B]."""
    labels = batch["label_ids"]
    real = batch.get("is_real_example")
    if real is None:
        real = tf.ones_like(labels, tf.float32)
    logits = outputs["logits"]
    return (
        {"loss": cross_entropy(logits, labels, real)},
        {"accuracy": accuracy(logits, labels, real)},
    )
