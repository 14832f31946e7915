"""What every sentence-level task is made of: examples, kinds of labels, and the task itself.

A task reads files and knows its labels; what becomes of texts is the matter of `rows`.
"""

import dataclasses
import enum
from typing import Protocol

from data.files.bad_rows import BadRows


class SentenceKind(enum.Enum):
    """What a task predicts, and so what an example's label is."""

    CLASSES = "classes"  # one of the task's labels: str
    MULTI_LABEL = "multi_label"  # any number of them: tuple of str
    REGRESSION = "regression"  # a number: float
    CHOICES = "choices"  # which of the example's choices: int, from 0


Label = str | tuple[str, ...] | float | int


@dataclasses.dataclass(frozen=True)
class Example:
    """A sentence, a pair, or a context with choices.

    Attributes:
        guid: Name of it, unique in its file; for GLUE the original's, such as "train-1": split
            and line number, header = 0.
        text_a: First or only text.
        text_b: Second text, or None.
        label: As the task's kind says; None where it isn't known, as in most test sets.
        source: "file:line", lines counting from 1, for messages.
        choices: With Kind.CHOICES the texts that may follow text_a, else empty.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: Label | None
    source: str
    choices: tuple[str, ...] = ()


class SentenceTask(Protocol):
    """What the scripts ask of a task.

    Attributes:
        name: Lower case.
        kind: What is predicted.
        labels: Names of the classes in the order of their ids; empty for numbers and choices.
        pairs: Whether an example is two texts.
        metrics: Names that `modeling.metrics` knows, the one that models are chosen by first.
        bad_rows: What becomes of them, and how many were left out.
    """

    name: str
    kind: SentenceKind
    labels: list[str]
    metrics: tuple[str, ...]
    bad_rows: BadRows

    @property
    def pairs(self) -> bool: ...

    def splits(self, purpose: str) -> tuple[str, ...]:
        """Names of the splits for "train", "dev" or "test", the main one first.

        MNLI, say, has two to evaluate on: ("dev", "dev_mismatched").
        """
        ...

    def read(self, data_dir: str | None, split: str) -> list[Example]:
        """Reads one split; `data_dir` is the folder that file names start from.

        Raises:
            DataError: Says file and line of what can't be read.
        """
        ...
