"""A student that is pre-trained with a teacher (Sanh et al. 2019; Wang et al. 2021).

losses, identity = taught_pretraining(
    losses, student, settings, from_pretrained, MASKED, vocabulary, folding, 128
)

The teacher runs in every step, since words are masked anew and rows packed as they come.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from modeling.checkpoints.vocabularies import (
    TextFolding,
    text_folding,
)
from modeling.errors import ModelingError
from modeling.layers.execution import INFERENCE, PLAIN
from modeling.losses import MASKED_LM_EPSILON, Losses, Mean, Means, PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.distillation.matching import LayerLosses
from modeling.training.distillation.soft_answers import divergence
from modeling.training.distillation.teaching import (
    TeacherModel,
    TeachingSettings,
    check_teacher_lengths,
    matched_layers,
    teacher_vocabulary,
)
from modeling.training.runs.identity import weights_identity

MASKED, ALL = "masked", "all"
"""Where words are learned from the teacher: at the masked places, or at all real ones."""


class TaughtPretrainingLosses:
    """Losses of pre-training, of a teacher's words, and of layers, as `losses.Losses` wants them.

    `label_loss` is the share of the masked-LM loss that counts; that loss itself is reported as a
    metric, under its own name. `teacher_loss` is the mean `divergence` of the words' logits.

    Args:
        losses: Of the records.
        student, teacher: Built models that read the same pieces.
        settings: How it is taught.
        places: `MASKED` or `ALL`; None learns no words from the teacher.
        layers: Losses of layers; None for none.
    """

    def __init__(
        self,
        losses: PretrainingLosses,
        student: BertPretrainer,
        teacher: keras.Model,
        settings: TeachingSettings,
        places: str | None,
        layers: LayerLosses | None,
    ):
        self.losses = losses
        self.student = student
        self.teacher = teacher
        self.temperature = settings.teacher_temperature
        self.label_share = settings.label_share if places else 1.0
        self.places = places
        self.layers = layers

    def __call__(self, outputs: Mapping, batch: Mapping) -> tuple[Means, Means]:
        losses, metrics = self.losses(outputs, batch)
        masked_lm = losses.pop("masked_lm_loss")
        share = masked_lm._replace(total=masked_lm.total * self.label_share)
        losses = {"label_loss": share, **losses}
        metrics["masked_lm_loss"] = masked_lm
        taught = self.teacher.encoder(batch, execution=INFERENCE)
        if self.places:
            weights = self._word_weights(batch)
            positions = self._positions(batch)
            ours = _words(self.student, outputs, positions, PLAIN)
            theirs = tf.stop_gradient(_words(self.teacher, taught, positions, INFERENCE))
            total = tf.reduce_sum(divergence(theirs, ours, self.temperature) * weights)
            total *= 1 - self.label_share
            losses["teacher_loss"] = Mean(total, tf.reduce_sum(weights), MASKED_LM_EPSILON)
        if self.layers:
            losses |= self.layers(outputs, batch, taught)[0]
        return losses, metrics

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        weights = self.losses.weights(batch)
        weights = {"label_loss": weights.pop("masked_lm_loss"), **weights}
        if self.places:
            weights["teacher_loss"] = tf.reduce_sum(self._word_weights(batch))
        return weights | (self.layers.weights(batch) if self.layers else {})

    def _positions(self, batch: Mapping) -> tf.Tensor:
        """Int32 [B, P]: where words are learned."""
        if self.places == MASKED:
            return batch["masked_lm_positions"]
        shape = tf.shape(batch["input_ids"])
        return tf.broadcast_to(tf.range(shape[1]), shape)

    def _word_weights(self, batch: Mapping) -> tf.Tensor:
        """Float32 [B, P]: which of the places count."""
        if self.places == MASKED:
            return tf.cast(batch["masked_lm_weights"], tf.float32)
        return tf.cast(batch["input_mask"], tf.float32)


def _words(model, outputs: Mapping, positions, execution) -> tf.Tensor:
    """Logits of words, float32 [B, P, V]."""
    table = model.encoder.embeddings.word_embeddings
    return model.masked_lm(outputs["sequence_output"], positions, table, execution=execution)


def taught_pretraining(
    losses: PretrainingLosses,
    student: BertPretrainer,
    settings: TeachingSettings,
    open_teacher: Callable[[str], TeacherModel],
    places: str,
    vocabulary: Mapping[str, Any] | None,
    folding: TextFolding,
    max_seq_length: int,
) -> tuple[Losses, dict[str, Any]]:
    """What a student is trained with, and what makes it another run; unchanged without a teacher.

    Args:
        losses: Of the records.
        student: The model that is trained.
        settings: Who teaches, and how.
        open_teacher: From a path to the model there.
        places: Where words are learned, of a teacher that predicts words.
        vocabulary: Of the records, as `describe_vocabulary` gives it; None if nobody knows.
        folding: How the records' texts were folded, as far as that is known.
        max_seq_length: Of the longest records.

    Raises:
        ModelingError: There are several teachers, one reads other pieces or in another direction,
            or has nothing to teach.
    """
    if not settings.teacher:
        return losses, {"teacher": None}
    path = settings.teacher[0]
    if len(settings.teacher) > 1:
        raise ModelingError(
            f"--teacher names {len(settings.teacher)} models. One teaches pre-training, since it "
            f"runs in every step; several can teach fine-tuning."
        )
    teacher = open_teacher(path)
    check_teacher_lengths(settings, [teacher], max_seq_length)
    _check_teacher(path, teacher, student, vocabulary, folding)
    layers = matched_layers(settings, student, teacher.model)
    learned = None
    if not hasattr(teacher.model, "masked_lm"):
        if layers is None:
            raise ModelingError(
                f"--teacher={path} has no masked-LM head, so that it has no words to teach. Give "
                f"--match_relations (or --match_hidden_states) to learn from its layers."
            )
        default = TeachingSettings()
        said = (settings.label_share, settings.teacher_temperature, places)
        if said != (default.label_share, default.teacher_temperature, MASKED):
            raise ModelingError(
                f"--teacher={path} has no masked-LM head, so that it has no words to teach: leave "
                f"--label_share, --teacher_temperature and --teacher_places out. Its layers teach "
                f"alone."
            )
        logging.info("The teacher has no masked-LM head: its layers teach alone.")
    elif settings.label_share < 1:
        learned = places
    identity = dataclasses.asdict(settings)
    identity |= {"teacher": weights_identity(path), "teacher_places": learned}
    taught = TaughtPretrainingLosses(losses, student, teacher.model, settings, learned, layers)
    return taught, identity


def _check_teacher(
    path: str,
    teacher: TeacherModel,
    student: BertPretrainer,
    vocabulary: Mapping | None,
    folding: TextFolding,
) -> None:
    """Refuses one that reads something else than the student."""
    known = teacher_vocabulary(path, teacher.tokenizer)
    if known != (vocabulary or {}).get("checksum"):
        raise ModelingError(
            f"--teacher={path} reads the pieces of {teacher.tokenizer.vocab_file}, and the records "
            f"are of {'another' if vocabulary else 'an unknown'} vocabulary. Give the teacher's as "
            f"--vocab_file, and records or text for it."
        )
    both = [(text.do_lower_case, text.drops_accents) for text in (text_folding(path), folding)]
    if both[0] != both[1] and all(lower is not None for lower, _ in both):
        raise ModelingError(
            f"--teacher={path} reads texts with do_lower_case {both[0][0]} and strip_accents "
            f"{both[0][1]}, and the records' have {both[1][0]} and {both[1][1]}: it would be asked "
            f"with pieces that it was never trained on. Make records that are folded as it is."
        )
    directions = teacher.config.attention_direction, student.config.attention_direction
    if directions[0] != directions[1]:
        raise ModelingError(
            f"--teacher={path} reads {directions[0]}, and --objective trains a model that reads "
            f"{directions[1]}."
        )
    sizes = teacher.config.vocab_size, student.config.vocab_size
    if hasattr(teacher.model, "masked_lm") and sizes[0] != sizes[1]:
        raise ModelingError(
            f"--teacher={path} predicts {sizes[0]} words, and the student's vocab_size is "
            f"{sizes[1]}. Make them equal in --bert_config_file."
        )
