"""Writes a student's model folder, which every script takes as --init_checkpoint."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from modeling.checkpoints import names, tf1
from modeling.checkpoints.configurations import config_of_checkpoint
from modeling.checkpoints.contents import StoredWeight, Weight
from modeling.checkpoints.converting import check_one_encoder, convert
from modeling.checkpoints.files import TASK_FILES, join, staged, temporary_folder
from modeling.checkpoints.loading import open_contents
from modeling.checkpoints.model_folder import check_nobody_elses, task_files
from modeling.checkpoints.saving import write_checkpoint
from modeling.checkpoints.students.depth import (
    evenly_spaced_layers,
    student_layers,
    weights_of_layers,
)
from modeling.checkpoints.students.width import (
    BEST,
    PROJECTIONS,
    RANDOM,
    narrow_config,
    narrow_weights,
)
from modeling.checkpoints.vocabularies import text_folding, vocabulary_file
from modeling.config import BertConfig
from modeling.errors import ModelingError


class Student(NamedTuple):
    """How a student is cut out of its teacher.

    Attributes:
        layers: As `student_layers` gives them.
        hidden_size: Its width; None: the teacher's.
        projection: One of `PROJECTIONS`, for a narrower one.
        seed: Of random weights.
    """

    layers: list[int]
    hidden_size: int | None = None
    projection: str = BEST
    seed: int = 0

    @classmethod
    def from_flags(cls, values, config: BertConfig, seed: int = 0) -> "Student | None":
        """What the flags of `define_student_flags` say; None if they ask for no student.

        Args:
            values: The flags' values.
            config: Of the teacher.
            seed: Of random weights.

        Raises:
            ModelingError: A flag contradicts another, or isn't of this teacher.
        """
        items, count = values.student_layers, values.student_num_layers
        width, projection = values.student_hidden_size, values.student_projection
        if values["student_projection"].present and not width:
            raise ModelingError(
                f"--student_projection={projection} says how a student is made narrower than its "
                f"teacher: give --student_hidden_size, or leave it out."
            )
        if not (items or count or width):
            return None
        if items and count:
            raise ModelingError(
                f"--student_layers={','.join(items)} and --student_num_layers={count} exclude each "
                f"other: name the layers, or say how many there are to be."
            )
        depth = config.num_hidden_layers
        layers = evenly_spaced_layers(count or depth, depth)
        if items:
            layers = student_layers(items, depth)
        if width:
            narrow_config(config, width)
        return cls(layers, width, projection, seed if projection == RANDOM else 0)

    def config(self, teacher: BertConfig) -> BertConfig:
        """The student's sizes, from those of its teacher."""
        config = dataclasses.replace(teacher, num_hidden_layers=len(self.layers))
        return narrow_config(config, self.hidden_size) if self.hidden_size else config


def make_student(
    source: str | os.PathLike,
    folder: str | os.PathLike,
    layers: Sequence[int],
    hidden_size: int | None = None,
    projection: str = BEST,
    seed: int = 0,
    config_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
) -> tuple[BertConfig, list[str]]:
    """Cuts a student out of a checkpoint of any format and writes it as a release.

    Its embeddings, pooler and heads are the teacher's, its layers begin as those that are named;
    the labels' names, the vocabulary and how texts are folded and read come along. The same
    teacher and settings give the same bytes.

    Args:
        source: The teacher, as `checkpoints.load` takes it.
        folder: Made if absent. Files of the same names are replaced once all are complete.
        layers: As `student_layers` gives them.
        hidden_size: A smaller width, see `narrow_config`.
        projection: How to come to it, see `narrow_weights`.
        seed: Of random weights.
        config_file, vocab_file: The teacher's, where they don't lie beside its weights.

    Returns:
        The student's configuration, and lines that say what it was made of.

    Raises:
        ModelingError: As `convert`, `student_layers` and `narrow_weights`.
    """
    folder = os.fspath(folder)
    if projection not in PROJECTIONS:
        raise ModelingError(
            f"The projection is {projection!r}; expected one of {', '.join(PROJECTIONS)}."
        )
    held = open_contents(source)
    check_one_encoder(held.path, held.shapes)
    config = config_of_checkpoint(held, config_file)
    layers = student_layers([str(layer) for layer in layers], config.num_hidden_layers)
    if hidden_size is not None:
        narrow_config(config, hidden_size)
    vocab_file = vocab_file or vocabulary_file(held.format, held.path)
    folding = text_folding(source, by_name=True)
    check_nobody_elses(folder, held.path, TASK_FILES, vocab_file, folding)
    with temporary_folder(folder) as temporary:
        # All of the teacher in one format: heads by name, units folded in, half precision widened.
        whole = convert(source, join(temporary, "teacher"), names.TF1, config_file, vocab_file)
        bundle = tf1.Bundle(join(temporary, f"teacher/{tf1.RELEASE_NAME}"))
        teacher = {name: _stored(bundle, name) for name in bundle.shapes}
        weights: dict[str, Weight] = weights_of_layers(teacher, layers)
        config = dataclasses.replace(whole.config, num_hidden_layers=len(layers))
        if hidden_size is not None:
            wide, config = config, narrow_config(config, hidden_size)
            weights = narrow_weights(weights, wide, config, projection, seed)
        with staged(folder) as ready:
            beside = task_files(bundle.path, TASK_FILES)
            write_checkpoint(ready, weights, config, vocab_file, names.TF1, folding, beside)
    lines = [_described(whole.source, whole.config, layers, config, projection)]
    lines.append(f"Parameters: {_parameters(teacher):,} of the teacher, {_parameters(weights):,}.")
    return config, [*lines, *whole.notes]


def _stored(bundle: tf1.Bundle, name: str) -> StoredWeight:
    dtype = np.dtype(bundle.dtypes[name].as_numpy_dtype)
    return StoredWeight(bundle.shapes[name], dtype, lambda: bundle.read(name))


def _described(
    source: str, teacher: BertConfig, layers: Sequence[int], config: BertConfig, projection: str
) -> str:
    said = (
        f"Student of {source}: layers {', '.join(map(str, layers))} of its "
        f"{teacher.num_hidden_layers}"
    )
    if config.hidden_size == teacher.hidden_size:
        return f"{said}, {config.hidden_size} wide as there."
    if projection != BEST:
        return f"{said} by number only, {config.hidden_size} wide with random weights throughout."
    return (
        f"{said}; {config.hidden_size} of {teacher.hidden_size} dimensions, those with the largest "
        f"gamma² + beta² over its layer norms; in each layer {config.num_attention_heads} of "
        f"{teacher.num_attention_heads} heads and {config.intermediate_size:,} of "
        f"{teacher.intermediate_size:,} neurons, those that write most to them."
    )


def _parameters(weights: Mapping[str, Weight]) -> int:
    return sum(math.prod(weight.shape) for weight in weights.values())
