"""What a run's teachers add to it: their answers to the training data, and further losses.

teaching = Teaching(teachers, settings.teaching, config, vocab_file, output_dir)
losses, batches = teaching.losses(task.losses, model), teaching.taught(split, batches)
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join
from modeling.checkpoints.vocabularies import describe_vocabulary
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.execution import PLAIN, Execution
from modeling.losses import Losses
from modeling.training.distillation.matching import LayerLosses, Pairs
from modeling.training.distillation.soft_answers import BY_PLACE, SOFT_LOSSES, TaughtLosses
from modeling.training.distillation.stored_answers import (
    Answers,
    StoredAnswers,
    stored_answers,
    with_answers,
)
from modeling.training.engine.distribution import num_workers, share_of_worker
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.runs.identity import weights_identity
from modeling.training.task import TrainingTaskSplit

FOLDER = "teacher"
"""Of a run's output folder, for the answers."""
EVEN = "even"
"""In place of pairs of layers: each of the student's, spread over the teacher's."""
_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class TeachingSettings:
    """How a student is taught.

    Attributes:
        teacher: Folders or files of the teachers' checkpoints; none: no teaching.
        teacher_temperature: See `soft_answers.divergence`.
        label_share: See `TaughtLosses`.
        match_hidden_states, match_relations: Pairs of layers as `layer_pairs` reads them.
        match_weight: How much the losses of layers count.
    """

    teacher: Sequence[str] = ()
    teacher_temperature: float = 2.0
    label_share: float = 0.5
    match_hidden_states: Sequence[str] = ()
    match_relations: Sequence[str] = ()
    match_weight: float = 1.0


class TeacherModel(Protocol):
    """What `modeling.from_pretrained` gives."""

    model: keras.Model
    tokenizer: Any
    config: BertConfig


def layer_pairs(items: Sequence[str], flag: str, ours: int, theirs: int) -> Pairs:
    """Pairs of layers as a flag names them: STUDENT:TEACHER, from 0, or `even`.

    Args:
        items: "2:5", …; or `even` alone, which makes the student's layer i, of S, the teacher's
            (i + 1)·T/S − 1, the last one like the last (Jiao et al. 2020, section 3.1).
        flag: The flag's name.
        ours, theirs: How many layers student and teacher have.

    Raises:
        ModelingError: There is no such layer, or it isn't said in this way.
    """
    if list(items) == [EVEN]:
        return [(layer, (layer + 1) * theirs // ours - 1) for layer in range(ours)]
    pairs = []
    for item in items:
        student, _, teacher = item.partition(":")
        known = student.strip().isdecimal() and teacher.strip().isdecimal()
        if not known or int(student) >= ours or int(teacher) >= theirs:
            raise ModelingError(
                f"--{flag} has {item!r}; it takes STUDENT:TEACHER with layers counted from 0, of "
                f"which the student has {ours} and the teacher {theirs}, or {EVEN} alone."
            )
        pairs.append((int(student), int(teacher)))
    return pairs


class Teaching:
    """What the teachers of a command add to its runs; made in the strategy's scope.

    Args:
        teachers: As they were opened, with one head and the student's labels.
        settings: How they teach.
        config: The student's, with its head and the labels' names.
        vocab_file: The student's vocabulary.
        output_dir: The run's folder.

    Raises:
        ModelingError: A teacher answers something else, or reads other pieces.
    """

    def __init__(
        self,
        teachers: Sequence[TeacherModel],
        settings: TeachingSettings,
        config: BertConfig,
        vocab_file: str,
        output_dir: str,
    ):
        self.settings = settings
        self.head = config.head
        self.folder = join(output_dir, FOLDER)
        self.teachers = [
            _Teacher(path, teacher, config, vocab_file)
            for path, teacher in zip(settings.teacher, teachers, strict=True)
        ]
        self.matches = bool(settings.match_hidden_states or settings.match_relations)
        if self.matches and len(self.teachers) > 1:
            raise ModelingError(
                f"--match_hidden_states and --match_relations take the layers of one teacher, but "
                f"--teacher names {len(self.teachers)}."
            )

    @property
    def identity(self) -> dict[str, Any]:
        """What makes another run of it."""
        settings = dataclasses.asdict(self.settings)
        return settings | {"teacher": [teacher.identity for teacher in self.teachers]}

    @functools.cached_property
    def _learns_answers(self) -> bool:
        return self.settings.label_share < 1

    def losses(self, losses: Losses, model: keras.Model) -> Losses:
        """What a student is trained with, in place of the labels' losses alone."""
        settings, layers = self.settings, []
        if self.matches:
            teacher = self.teachers[0].model
            ours, theirs = (m.config.num_hidden_layers for m in (model, teacher))
            pairs = {
                "hidden": layer_pairs(
                    settings.match_hidden_states, "match_hidden_states", ours, theirs
                ),
                "relations": layer_pairs(settings.match_relations, "match_relations", ours, theirs),
            }
            layers.append(LayerLosses(model, teacher, **pairs, weight=settings.match_weight))
        soft = None
        if self._learns_answers:
            soft = SOFT_LOSSES[self.head](settings.teacher_temperature)
        return TaughtLosses(losses, soft, settings.label_share, layers)

    def taught(self, split: TrainingTaskSplit, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Batches of a split with the teachers' answers, which are computed if they aren't yet."""
        if not self._learns_answers:
            return dataset
        return with_answers(dataset, [self._answers(t, split) for t in self.teachers])

    def _answers(self, teacher: "_Teacher", split: TrainingTaskSplit) -> StoredAnswers:
        known = teacher.answers.get(split.fingerprint)
        if known is None:
            known = stored_answers(
                self.folder,
                "train",
                f"{split.fingerprint} {teacher.identity} {teacher.order}",
                len(split),
                teacher.width,
                self.head in BY_PLACE,
                functools.partial(teacher.compute, split),
            )
            teacher.answers[split.fingerprint] = known
        return known


class _Teacher:
    """One of them, and what it has answered."""

    def __init__(self, path: str, opened: TeacherModel, student: BertConfig, vocab_file: str):
        self.path = path
        self.model = opened.model
        self.answers: dict[str, StoredAnswers] = {}
        config = opened.config
        if config.head != student.head:
            raise ModelingError(
                f"--teacher={path} answers {config.head or 'nothing: it has no head'}, and what "
                f"is trained here answers {student.head}. A teacher has been fine-tuned on the "
                f"same task."
            )
        self.order = _order_of_labels(path, config, student)
        self.width = {"choices": 1, "regression": 1, "spans": 2}.get(student.head) or len(
            self.order
        )
        _check_pieces(path, opened.tokenizer, vocab_file)
        digest = hashlib.blake2b(digest_size=16)
        settings = (config.encoder_dict(), opened.model.compute_dtype)
        digest.update(repr((weights_identity(path), settings)).encode())
        self.identity = digest.hexdigest()
        logging.info(
            "Teacher: %s, %d layers of width %d",
            path,
            config.num_hidden_layers,
            config.hidden_size,
        )

    def compute(self, split: TrainingTaskSplit) -> Answers:
        """The answers, with the devices of all workers."""
        by_place = self.model.config.head in BY_PLACE
        predictor = ReplicaPredictor(_Answering(self.model, self.order), "answers")
        size = _BATCH_SIZE * tf.distribute.get_strategy().num_replicas_in_sync
        share = share_of_worker(size)
        # What several workers have computed of one batch has to be of one length.
        batches = split.batches(
            size,
            fixed_shapes=by_place and num_workers() > 1,
            multiple=1,
            num_parts=share.num_parts,
            parts=share.parts,
        )
        return _by_example(predictor.of_batches(batches), by_place)


def _by_example(batches: Iterator[tuple[np.ndarray, np.ndarray]], by_place: bool) -> Answers:
    for index, rows in batches:
        if by_place:  # the last number says which places there are
            yield index, [row[row[:, -1] > 0, :-1] for row in rows]
        else:
            yield index, rows[:, np.newaxis]


class _Answering:
    """A fine-tuned model as a function from batches to its answers, in the student's order."""

    def __init__(self, model: keras.Model, order: Sequence[int]):
        self.model = model
        self.order = list(order)

    def __call__(self, batch: Mapping, execution: Execution = PLAIN) -> dict[str, tf.Tensor]:
        """`answers` float32 [B, K], or [B, T, K + 1], where the last tells the real places."""
        outputs, head = self.model(batch, execution=execution), self.model.config.head
        mask = tf.cast(batch["input_mask"], tf.float32)
        if head == "spans":
            parts = [outputs["start_logits"], outputs["end_logits"], mask]
            return {"answers": tf.stack(parts, -1)}
        logits = outputs["logits"]
        if head == "choices":
            return {"answers": tf.stack([logits, tf.reduce_max(mask, -1)], -1)}
        if self.order != list(range(len(self.order))):
            logits = tf.gather(logits, self.order, axis=-1)
        if head == "tags":
            logits = tf.concat([logits, mask[..., tf.newaxis]], -1)
        return {"answers": logits}


def _order_of_labels(path: str, teacher: BertConfig, student: BertConfig) -> list[int]:
    """Where the student's labels are among the teacher's; [] for heads without names."""
    if not student.labels:
        return []
    known = list(teacher.labels or ())
    if sorted(known) != sorted(student.labels):
        lacking = [name for name in student.labels if name not in known]
        foreign = [name for name in known if name not in student.labels]
        raise ModelingError(
            f"--teacher={path} knows other labels: it lacks {_listed(lacking)}, and has "
            f"{_listed(foreign)} besides. Teacher and student have to be trained on the same "
            f"labels; id2label in the configuration beside its weights says what they are called."
        )
    return [known.index(name) for name in student.labels]


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(names[:most])
    return f"{shown}{', …' if len(names) > most else ''}" if names else "none"


def _check_pieces(path: str, tokenizer, vocab_file: str) -> None:
    if tokenizer is None:
        raise ModelingError(
            f"No vocabulary lies beside --teacher={path}, so that nobody can tell whether it reads "
            f"the same pieces as the student. Put its vocab.txt there."
        )
    known = describe_vocabulary(tokenizer.vocab_file)["checksum"]
    if known != describe_vocabulary(vocab_file)["checksum"]:
        raise ModelingError(
            f"--teacher={path} reads the pieces of {tokenizer.vocab_file}, which aren't those of "
            f"--vocab_file={vocab_file}: what one says of a piece says nothing of the other's."
        )
