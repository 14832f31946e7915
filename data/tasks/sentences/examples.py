"""What every sentence-level task is made of: examples, kinds of labels, and the task itself.

A task reads files and knows its labels; what becomes of texts is the matter of `rows`. Here is
also how a part of the examples is held out.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from data.errors import DataError
from data.files.bad_rows import BadRows

_SALT = 12345  # the default seed, by which earlier versions split


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
        choices: With SentenceKind.CHOICES the texts that may follow text_a, else empty.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: Label | None
    source: str
    choices: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Its classes: one, or as many as a multi-label example has."""
        return self.label if isinstance(self.label, tuple) else (self.label,)


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


def split_sentence_examples(
    examples: Sequence[Example], fraction: float
) -> tuple[list[Example], list[Example]]:
    """Splits a training set into a part to train on and a held-out one, by a hash of the texts.

    Each class is split by itself, its share being held out as exactly as whole examples allow
    and at least one staying in training; of several labels the rarest counts, and numbers are
    all of one class. Within a class those with the least hash of the texts are held out. So
    the same file gives the same parts on every machine, in every run and in whatever order the
    rows are, and rows of the same texts stay together: none is both trained on and evaluated. (Of
    another fraction the held-out part isn't always a part of this one's, or the other way round:
    shares are rounded class by class.)

    Args:
        examples: With labels.
        fraction: Share to hold out, above 0 and below 1.

    Returns:
        (to train on, held out), in their order; at least one example each.

    Raises:
        DataError: Nothing can be held out, since no class has two different texts.
    """
    counts = Counter(label for example in examples for label in example.classes)
    groups: dict[bytes, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(_hash(example), []).append(index)
    strata: dict[str, list[bytes]] = {}
    for key in sorted(groups):
        # A text that comes with several labels: any of them, as long as order doesn't matter.
        name = min(_stratum(examples[index], counts) for index in groups[key])
        strata.setdefault(name, []).append(key)
    held: set[int] = set()
    for name, quota in _quotas(strata, groups, fraction).items():
        taken = 0
        for key in strata[name][:-1]:
            if taken >= quota:
                break
            held.update(groups[key])
            taken += len(groups[key])
    if not held:
        raise DataError(
            f"None of the {len(examples)} training examples from {examples[0].source} on can be"
            f" held out for evaluation (fraction {fraction}): every class has a single text, which"
            " stays in training. Give a dev file, or more training examples."
        )
    return (
        [example for index, example in enumerate(examples) if index not in held],
        [example for index, example in enumerate(examples) if index in held],
    )


def _quotas(
    strata: dict[str, list[bytes]], groups: dict[bytes, list[int]], fraction: float
) -> dict[str, int]:
    """How many examples to hold out of each class that can spare some, by largest remainders."""
    sizes = {
        name: sum(len(groups[key]) for key in keys)
        for name, keys in sorted(strata.items())
        if len(keys) > 1
    }
    quotas = {name: int(size * fraction) for name, size in sizes.items()}
    rest = max(1, round(sum(sizes.values()) * fraction)) - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda name: quotas[name] - sizes[name] * fraction)
    for name in by_remainder[: max(rest, 0)]:
        quotas[name] += 1
    return quotas


def _stratum(example: Example, counts: Counter) -> str:
    if isinstance(example.label, tuple):
        return min(example.label, key=lambda label: (counts[label], label), default="")
    return example.label if isinstance(example.label, str) else ""


def _hash(example: Example) -> bytes:
    texts = repr((_SALT, example.text_a, example.text_b)).encode("utf-8", "surrogatepass")
    return blake2b(texts, digest_size=16).digest()
