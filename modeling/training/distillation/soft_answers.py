"""How far a student's answers are from its teacher's (Hinton et al. 2015), for every kind of head.

losses = TaughtLosses(ClassifierLosses(), SOFT_LOSSES["classes"](temperature=2.0), label_share=0.5)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from modeling.losses import Losses, Mean, Means, real_examples
from modeling.models import ABSENT

TEACHER = "teacher_logits"
"""Of a batch: what the teachers answered, the mean of several; 0 at padding."""
LABELLED = "is_labelled"
"""Of a batch, float32 [B]: 0 for an example whose label isn't known. Without it all have one.
Labels of pieces say so themselves, see `SoftTags`."""

_PADDING = -1e9


def divergence(teacher_logits, student_logits, temperature: float):
    """T² · KL(softmax(teacher / T) ‖ softmax(student / T)) over the last axis.

    T² keeps the gradient's size whatever the temperature is (Hinton et al. 2015, section 2).

    Args:
        teacher_logits, student_logits: float32 [..., C].
        temperature: T, above 0; from 1 on, what is unlikely counts the more the higher it is.

    Returns:
        float32 [...]; 0 where both say the same.
    """
    teacher = tf.nn.log_softmax(teacher_logits / temperature)
    student = tf.nn.log_softmax(student_logits / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), -1)


def binary_divergence(teacher_logits, student_logits, temperature: float):
    """The same of yes and no, element by element: float32 [...] and [...] → [...]."""
    teacher, student = teacher_logits / temperature, student_logits / temperature
    probability = tf.sigmoid(teacher)
    yes = tf.math.log_sigmoid(teacher) - tf.math.log_sigmoid(student)
    no = tf.math.log_sigmoid(-teacher) - tf.math.log_sigmoid(-student)
    return temperature**2 * (probability * yes + (1 - probability) * no)


class SoftLoss(Protocol):
    """What a kind of head learns from its teacher's answers."""

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        """The loss of each example or place; the batch has the teacher's answers."""
        ...

    def weights(self, batch: Mapping) -> tf.Tensor:
        """How much each of them counts, of the same shape, known before the model has run."""
        ...


class SoftClasses:
    """Of classes: logits [B, L] → the `divergence` of each example, [B].

    Args:
        temperature: See `divergence`.
    """

    def __init__(self, temperature: float):
        self.temperature = temperature

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        return divergence(batch[TEACHER], outputs["logits"], self.temperature)

    def weights(self, batch: Mapping) -> tf.Tensor:
        return real_examples(batch, batch[TEACHER][..., 0])


class SoftChoices(SoftClasses):
    """Of choices: logits [B, C]; those that an example doesn't have take no part."""

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        there = tf.reduce_any(batch["input_mask"] > 0, -1)
        teacher = tf.where(there, batch[TEACHER][..., 0], ABSENT)
        return divergence(teacher, outputs["logits"], self.temperature)

    def weights(self, batch: Mapping) -> tf.Tensor:
        return real_examples(batch, batch[TEACHER][:, 0, 0])


class SoftLabels(SoftClasses):
    """Of several labels: logits [B, L] → the mean of the labels' `binary_divergence`, [B]."""

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        return tf.reduce_mean(
            binary_divergence(batch[TEACHER], outputs["logits"], self.temperature), -1
        )


class SoftNumbers(SoftClasses):
    """Of numbers: the squared difference, in the unit of the student's errors, [B]."""

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        difference = outputs["logits"][:, 0] - batch[TEACHER][:, 0]
        return tf.square(difference / outputs.get("target_scale", 1.0))


class SoftSpans(SoftClasses):
    """Of spans: the mean of the divergences of start and end over a row's real places, [B]."""

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        padding = tf.cast(1 - batch["input_mask"], tf.float32) * _PADDING
        total = 0.0
        for place, name in enumerate(("start_logits", "end_logits")):
            teacher = batch[TEACHER][..., place] + padding
            total += 0.5 * divergence(teacher, outputs[name] + padding, self.temperature)
        return total

    def weights(self, batch: Mapping) -> tf.Tensor:
        return real_examples(batch, batch[TEACHER][:, 0, 0])


class SoftTags(SoftClasses):
    """Of tags: the divergence at each piece, [B, T]; words' first ones count, as for labels.

    Where no word is tagged `piece_labels` is −1; −2 where one is, but not known how. Words that a
    teacher with another vocabulary doesn't see have the answer NaN, and don't count.
    """

    def __call__(self, outputs: Mapping, batch: Mapping) -> tf.Tensor:
        teacher = batch[TEACHER]
        known = tf.where(tf.math.is_nan(teacher), 0.0, teacher)
        return divergence(known, outputs["logits"], self.temperature)

    def weights(self, batch: Mapping) -> tf.Tensor:
        seen = ~tf.math.is_nan(batch[TEACHER][..., 0])
        return tf.cast((batch["piece_labels"] != -1) & seen, tf.float32)


SOFT_LOSSES: Mapping[str, Callable[[float], SoftLoss]] = {
    "classes": SoftClasses,
    "multi_label": SoftLabels,
    "regression": SoftNumbers,
    "choices": SoftChoices,
    "spans": SoftSpans,
    "tags": SoftTags,
}
"""By head, see `config.HEADS`: made with a temperature."""
BY_PLACE = ("choices", "spans", "tags")
"""Heads that answer along the second axis of `input_ids`, not once per example."""


class TaughtLosses:
    """What a student is trained with: a share of the labels' loss, the rest of the teacher's.

    Args:
        losses: Of the labels.
        soft: Of the teacher's answers; None for none, and the labels' loss counts whole.
        label_share: How much the labels' loss counts, 0 to 1; the teacher's counts the rest.
        layers: Further losses, of the layers, that count whole.
    """

    def __init__(
        self,
        losses: Losses,
        soft: SoftLoss | None,
        label_share: float,
        layers: Sequence[Losses] = (),
    ):
        self.losses = losses
        self.soft = soft
        self.label_share = label_share if soft else 1.0
        self.layers = layers

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        labelled = _labelled(batch)
        losses, metrics = self.losses(outputs, labelled)
        losses = {_name(name): _times(mean, self.label_share) for name, mean in losses.items()}
        if self.soft:
            weights = self.soft.weights(batch)
            total = tf.reduce_sum(self.soft(outputs, batch) * weights)
            loss = Mean(total, tf.reduce_sum(weights))
            losses["teacher_loss"] = _times(loss, 1 - self.label_share)
        for layer in self.layers:
            more, more_metrics = layer(outputs, batch)
            losses |= more
            metrics |= more_metrics
        return losses, metrics

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        of_labels = self.losses.weights(_labelled(batch))
        weights = {_name(name): weight for name, weight in of_labels.items()}
        if self.soft:
            weights["teacher_loss"] = tf.reduce_sum(self.soft.weights(batch))
        for layer in self.layers:
            weights |= layer.weights(batch)
        return weights


def _name(name: str) -> str:
    return "label_loss" if name == "loss" else name


def _times(mean: Mean, factor: float) -> Mean:
    return mean._replace(total=mean.total * factor)


def _labelled(batch: Mapping) -> Mapping:
    """The batch as the labels' loss is to see it: without the examples that have no label."""
    labelled = batch.get(LABELLED)
    if labelled is None:
        return batch
    return {**batch, "is_real_example": real_examples(batch, labelled) * labelled}
