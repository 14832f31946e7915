"""What a run's teachers add to it: their answers to the training data, and further losses.

teaching = Teaching(teachers, settings, task, train_splits, vocab_file, folding, output_dir)
losses, batches = teaching.losses(task.losses, model), teaching.taught(split, batches)

A teacher reads the rows of the student's splits, or, if its vocabulary is another one, rows of its
own of the same texts.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join
from modeling.checkpoints.model_folder import labels_of_checkpoint
from modeling.checkpoints.vocabularies import (
    TextFolding,
    describe_vocabulary,
    text_folding,
)
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
from modeling.training.task import Task, TrainingTaskSplit

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
    """What `pretrained.from_pretrained` gives."""

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
        if ours > theirs:
            raise ModelingError(
                f"--{flag}={EVEN} spreads the student's layers over the teacher's, but the student "
                f"has {ours} and the teacher {theirs}. Name pairs, STUDENT:TEACHER, from 0."
            )
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


def matched_layers(
    settings: TeachingSettings, student: keras.Model, teacher: keras.Model
) -> LayerLosses | None:
    """The losses of the layers that are to be matched; None without any.

    Raises:
        ModelingError: There are no such layers, or their widths don't allow it.
    """
    if not (settings.match_hidden_states or settings.match_relations):
        return None
    if not hasattr(student, "encoder"):
        raise ModelingError(
            "--match_hidden_states and --match_relations make layers like the teacher's, and what "
            "is trained here, on the vectors of a frozen encoder, has none. Leave them out."
        )
    counts = student.config.num_hidden_layers, teacher.config.num_hidden_layers
    hidden = layer_pairs(settings.match_hidden_states, "match_hidden_states", *counts)
    relations = layer_pairs(settings.match_relations, "match_relations", *counts)
    return LayerLosses(student, teacher, hidden, relations, weight=settings.match_weight)


def check_teacher_lengths(
    settings: TeachingSettings, teachers: Sequence[TeacherModel], max_seq_length: int
) -> None:
    """Refuses teachers that have no embeddings for the last places of a row; ModelingError."""
    for path, teacher in zip(settings.teacher, teachers, strict=True):
        positions = teacher.config.max_position_embeddings
        if positions < max_seq_length:
            raise ModelingError(
                f"--max_seq_length is {max_seq_length}, but --teacher={path} was made for "
                f"max_position_embeddings {positions}. Give --max_seq_length={positions} or less."
            )


class Teaching:
    """What the teachers of a command add to its runs; made in the strategy's scope.

    Args:
        teachers: As they were opened, with one head and the student's labels.
        settings: How they teach.
        task: The student's.
        train: What it is trained on.
        vocab_file: The student's vocabulary.
        folding: How its texts are folded.
        output_dir: The run's folder.

    Raises:
        ModelingError: A teacher answers something else, or reads other pieces.
    """

    def __init__(
        self,
        teachers: Sequence[TeacherModel],
        settings: TeachingSettings,
        task: Task,
        train: Sequence[TrainingTaskSplit],
        vocab_file: str,
        folding: TextFolding,
        output_dir: str,
    ):
        self.settings = settings
        self.train = list(train)
        self.folder = join(output_dir, FOLDER)
        self.head = task.config.head
        self.by_place = self.head in BY_PLACE
        self.teachers = [
            _Teacher(path, teacher, task, vocab_file, folding)
            for path, teacher in zip(settings.teacher, teachers, strict=True)
        ]
        matches = bool(settings.match_hidden_states or settings.match_relations)
        if matches and len(self.teachers) > 1:
            raise ModelingError(
                f"--match_hidden_states and --match_relations take the layers of one teacher, but "
                f"--teacher names {len(self.teachers)}."
            )
        if matches and self.teachers[0].own_splits:
            raise ModelingError(
                f"--match_hidden_states and --match_relations need a teacher that reads the same "
                f"pieces, and the vocabulary of --teacher={settings.teacher[0]} is another one."
            )

    @property
    def identity(self) -> dict[str, Any]:
        """What makes another run of it."""
        settings = dataclasses.asdict(self.settings)
        return settings | {"teacher": [teacher.identity for teacher in self.teachers]}

    def losses(self, losses: Losses, model: keras.Model) -> Losses:
        """What a student is trained with, in place of the labels' losses alone."""
        settings = self.settings
        layers = matched_layers(settings, model, self.teachers[0].model)
        soft = None
        if self.settings.label_share < 1:
            soft = SOFT_LOSSES[self.head](settings.teacher_temperature)
        return TaughtLosses(losses, soft, settings.label_share, [layers] if layers else [])

    def taught(self, split: TrainingTaskSplit, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Batches of a split with the teachers' answers, which are computed if they aren't yet."""
        if self.settings.label_share == 1:
            return dataset
        return with_answers(dataset, [self._answers(t, split) for t in self.teachers])

    def _answers(self, teacher: "_Teacher", split: TrainingTaskSplit) -> StoredAnswers:
        if split.fingerprint not in teacher.answers:
            teacher.answers[split.fingerprint] = self._answers_in_pieces(teacher, split)
        return teacher.answers[split.fingerprint]

    def _answers_in_pieces(self, teacher: "_Teacher", split: TrainingTaskSplit) -> StoredAnswers:
        """What a teacher answers to a split, in whichever pieces it reads the texts."""
        if not teacher.own_splits:
            return self._stored(teacher, split, "", functools.partial(teacher.compute, split))
        number = next(n for n, own in enumerate(self.train) if own is split)
        theirs = teacher.own_splits[number]
        answers = self._stored(teacher, theirs, "", functools.partial(teacher.compute, theirs))
        if self.head == "tags":
            places = functools.partial(split.places_in, theirs)
            relaid = functools.partial(_relaid, answers, places)
            return self._stored(teacher, split, theirs.fingerprint, relaid)
        if len(theirs) != len(split):
            raise ModelingError(
                f"--teacher={teacher.path} reads {len(theirs)} examples where the student reads "
                f"{len(split)}: what it answers can't be told to which."
            )
        return answers

    def _stored(self, teacher: "_Teacher", split, of: str, compute) -> StoredAnswers:
        identity = f"{split.fingerprint} {of} {teacher.identity} {teacher.order}"
        count, width = len(split), teacher.width
        return stored_answers(self.folder, "train", identity, count, width, self.by_place, compute)


def _relaid(answers: StoredAnswers, places: Callable[[], Sequence[np.ndarray]]) -> Answers:
    """Answers to texts in other pieces, at the places of these; NaN where there is none."""
    for number, of_example in enumerate(places()):
        found = np.full((len(of_example), answers.width), np.nan, np.float32)
        for example in np.unique(of_example[:, 0]):
            if example >= 0:
                here = of_example[:, 0] == example
                found[here] = answers.of_example(example)[of_example[here, 1]]
        yield np.array([number]), [found]


class _Teacher:
    """One of them, and what it has answered."""

    def __init__(
        self, path: str, opened: TeacherModel, task: Task, vocab_file: str, folding: TextFolding
    ):
        self.path = path
        self.model = opened.model
        self.answers: dict[str, StoredAnswers] = {}
        config, student = opened.config, task.config
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
        self.own_splits = _splits_in_pieces(path, opened.tokenizer, vocab_file, folding, task)
        digest = hashlib.blake2b(digest_size=16)
        pooling = getattr(opened.model, "row_pooling", None)
        settings = (config.encoder_dict(), opened.model.compute_dtype, pooling)
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
    known = list(teacher.labels or labels_of_checkpoint(path, student.head))
    if sorted(known) != sorted(student.labels):
        lacking = [name for name in student.labels if name not in known]
        foreign = [name for name in known if name not in student.labels]
        raise ModelingError(
            f"--teacher={path} knows other labels: it lacks {_listed(lacking)}, and has "
            f"{_listed(foreign)} besides. Teacher and student have to be trained on the same "
            f"labels; id2label in its configuration, or labels.json beside its weights, says what "
            f"they are called."
        )
    return [known.index(name) for name in student.labels]


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(names[:most])
    return f"{shown}{', …' if len(names) > most else ''}" if names else "none"


def teacher_vocabulary(path: str, tokenizer) -> str:
    """The checksum of a teacher's vocabulary; raises ModelingError where none lies beside it."""
    if tokenizer is None:
        raise ModelingError(
            f"No vocabulary lies beside --teacher={path}, so that nobody can tell whether it reads "
            f"the same pieces as the student. Put its vocab.txt there."
        )
    return describe_vocabulary(tokenizer.vocab_file)["checksum"]


def _splits_in_pieces(
    path: str, tokenizer, vocab_file: str, folding: TextFolding, task: Task
) -> list:
    """Those of a teacher that has another vocabulary, or folds otherwise; else []."""
    known = teacher_vocabulary(path, tokenizer)
    told = text_folding(path)
    folded = (told.do_lower_case, told.drops_accents)
    ours = (folding.do_lower_case, folding.drops_accents)
    if known == describe_vocabulary(vocab_file)["checksum"] and folded in (ours, (None, None)):
        return []
    splits = task.read_with(tokenizer)
    if splits is None:
        raise ModelingError(
            f"--teacher={path} reads the pieces of {tokenizer.vocab_file}, or folds texts "
            f"otherwise: they aren't those of --vocab_file={vocab_file}, and what it says of its "
            f"pieces says nothing of others. Take a teacher and a student with the same "
            f"vocabulary for this task."
        )
    logging.info("The teacher %s reads the texts in pieces of its own vocabulary.", path)
    return splits
