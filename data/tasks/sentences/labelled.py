"""Rows of a table to examples, and what can be said of their labels.

Which columns are what (`SentenceLayout`), the order of labels, their counts and weights.
"""

import contextlib
import decimal
import json
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from absl import logging

from data.errors import DataError, did_you_mean, error_list, error_text
from data.files.bad_rows import MOST_BAD_ROWS_TOLD, BadRows
from data.files.encodings import UTF8
from data.files.tables import TableRow, read_table, table_value
from data.tasks.sentences.examples import Example, Label, SentenceKind

_DOMINANT = 0.95
_TRUTH = {"yes": "true", "1": "true", "no": "false", "0": "false"}
# Beyond so many labels, each rarer than every second example, they are hardly classes.
_MANY_LABELS = 50
_SEPARATORS = (",", ";", "|")


@dataclass(frozen=True)
class SentenceLayout:
    """Which columns hold what, and how files are to be read.

    The fields are `delimited.make_sentence_task`'s; without `label_column` no labels are read.
    """

    text_columns: tuple[str, ...]
    label_column: str | None = None
    id_column: str | None = None
    label_separator: str = ","
    has_header: bool = True
    format: str | None = None
    bad_rows: BadRows = field(default_factory=BadRows)
    delimiter: str | None = None
    encoding: str = UTF8

    def read(
        self, path: str, split: str, kind: SentenceKind | None, labels: Sequence[str] = ()
    ) -> list[Example]:
        """Reads a file.

        Class labels lose surrounding blanks, tabs and ends of lines. Numbers and true and false,
        as JSON and Parquet have them, become strings: 1 and 1.0 "1", true "true".

        Examples of the split "test" may have none: there is no such column, the cell is empty or,
        of several labels, all cells are. Where the kind is None it is multi-label if the first
        label is a list, otherwise classes. `labels` are those that may occur; empty for any.

        Raises:
            DataError: Names file and line of the rows that can't be used: a column that isn't
                there, a text, label or id of the wrong type, an empty class label or one that
                isn't among the labels, a number that isn't one, an id used twice.
        """
        if split != "test" and self.label_column is None:
            raise DataError(
                f"{path} is to be read for its labels and no column was named that holds them;"
                " name it with --label_column."
            )
        rows = self.bad_rows.of(path)
        examples: list[Example] = []
        ids: dict[str, str] = {}
        known = frozenset(labels)
        near: dict[str, str] = {}

        def example(row: TableRow) -> Example:
            nonlocal kind
            texts = [self._text(row, column) for column in self.text_columns]
            label: Label | None = None
            if split != "test" or self._has_label(row, kind):
                value = table_value(row, self.label_column)
                kind = kind or (
                    SentenceKind.MULTI_LABEL if isinstance(value, list) else SentenceKind.CLASSES
                )
                label = self._label(row, value, kind)
            # The row's number in the file, whichever rows are left out.
            guid = f"{split}-{len(examples) + rows.bad + 1}"
            if self.id_column is not None:
                guid = _id(row, self.id_column, table_value(row, self.id_column))
                if guid in ids:
                    raise DataError(
                        f"{row.source}: the id {error_text(guid)} in column {self.id_column!r} was"
                        f" used before, at {ids[guid]}. Ids have to differ within a file; correct"
                        " or remove one of the rows, or name no id column."
                    )
            made = Example(guid, texts[0], texts[1] if len(texts) == 2 else None, label, row.source)
            if known and label is not None:
                _check_label(made, known, labels, near)
            ids[guid] = row.source
            return made

        table = read_table(
            path,
            format=self.format,
            has_header=self.has_header,
            bad_rows=rows,
            delimiter=self.delimiter,
            encoding=self.encoding,
            columns={*self.text_columns, self.label_column, self.id_column},
        )
        for row in table:
            made = rows.attempt(example, row)
            if made is not None:
                examples.append(made)
        rows.finish(len(examples))
        if (
            split == "test"
            and kind == SentenceKind.MULTI_LABEL
            and not any(e.label for e in examples)
        ):
            return [replace(example, label=None) for example in examples]
        return examples

    def _has_label(self, row: TableRow, kind: SentenceKind | None) -> bool:
        """Whether a row to be predicted says what is right."""
        value = row.fields.get(self.label_column)
        empty = isinstance(value, str) and not value.strip() and kind != SentenceKind.MULTI_LABEL
        return value is not None and not empty

    def _text(self, row: TableRow, column: str) -> str:
        text = table_value(row, column)
        if not isinstance(text, str):
            raise DataError(
                f"{row.source}: the column {column!r} holds {_kind_of(text)}; a text was"
                " expected. Correct or remove the row, or name the column that holds the text."
            )
        return text

    def _label(self, row: TableRow, value: object, kind: SentenceKind) -> Label:
        if kind == SentenceKind.REGRESSION:
            return _number(row, self.label_column, value)
        if kind == SentenceKind.MULTI_LABEL:
            if isinstance(value, str):
                value = self._parts(row, value)
            items = value if isinstance(value, list) else [value]
            names = (_name(row, self.label_column, item) for item in items)
            return tuple(dict.fromkeys(names))
        return _name(row, self.label_column, value)

    def _parts(self, row: TableRow, value: str) -> list[object]:
        """The labels that a cell names, between separators or as a list in JSON."""
        parts = [part for part in value.split(self.label_separator) if part.strip()]
        if not _in_brackets(value):
            return parts
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            if all(map(_in_brackets, parts)):  # [PER],[LOC]
                return parts
            raise DataError(
                f"{row.source}: the column {self.label_column!r} holds {error_text(value)}, which"
                f" looks like a list and isn't one in JSON. Write the labels with"
                f" {error_text(self.label_separator)} between them (--label_separator), as a list"
                ' in JSON (["a", "b"]), or the file as JSON lines or Parquet.'
            ) from None


def _in_brackets(text: str) -> bool:
    return text.lstrip().startswith("[") and text.rstrip().endswith("]")


def check_sentence_labels(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Raises DataError for an example without a class, or of one that isn't among the labels."""
    known, near = frozenset(labels), {}
    for example in examples:
        _check_label(example, known, labels, near)


def _check_label(
    example: Example, known: frozenset[str], labels: Sequence[str], near: dict[str, str]
) -> None:
    """Raises DataError, see `check_sentence_labels`; `near` is kept from one call to the next."""
    for label in example.classes:
        if label not in known:
            # Comparing takes milliseconds for each label, and every row of a file may be wrong.
            if isinstance(label, str) and label not in near and len(near) < MOST_BAD_ROWS_TOLD:
                near[label] = did_you_mean(label, labels)
            raise DataError(
                f"{example.source}: the label is {error_text(label)}; the labels are"
                f" {error_list(labels)}{near.get(label, '')}. They are the task's, those of the"
                " training file or of --labels, or the trained model's; correct or remove the row,"
                " or train with this label too. (A file to predict is read without its labels if"
                " --label_column isn't given.)"
            )


def labels_of_sentences(examples: Iterable[Example]) -> list[str]:
    """Labels that occur, sorted; by value if all are numbers."""
    labels = sorted({label for example in examples for label in example.classes})
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return labels
    # Words such as "nan" pass for numbers too, and have no order.
    if not all(map(math.isfinite, values)):
        return labels
    return sorted(labels, key=float)


def warn_of_sentence_labels(path: str, examples: Sequence[Example], labels: Sequence[str]) -> None:
    """Logs what is odd about the labels of a training set."""
    counts = _class_counts(examples, labels)
    absent = [label for label, count in zip(labels, counts, strict=True) if not count]
    if absent:
        logging.warning("%s: no example has the label %s.", path, error_list(absent))
    alike = _alike(labels, counts)
    if alike:
        logging.warning(
            f"{path}: labels that look alike are learned as different ones: {'; '.join(alike)}."
            " Where they mean the same, write them alike in the file."
        )
    if isinstance(examples[0].label, tuple):
        return
    share = counts.max() / len(examples)
    if share > _DOMINANT:
        logging.warning(
            f"{path}: {100 * share:.1f} % of the examples have the label"
            f" {error_text(labels[counts.argmax()])}. A model may learn to answer nothing else;"
            " consider class weights, and a metric that looks at the other classes."
        )
    if len(labels) > max(_MANY_LABELS, len(examples) / 2):
        logging.warning(
            f"{path}: {len(labels)} different labels in {len(examples)} examples. If they are"
            " numbers to predict, give --label_kind=regression; if texts, the label column is"
            " another."
        )
    for separator in _SEPARATORS:
        joined = [label for label in labels if separator in label]
        parts = [part.strip() for label in joined for part in label.split(separator)]
        # Some are met again, by themselves or beside others.
        if len({*parts, *labels}) < len(parts) + len(labels):
            logging.warning(
                f"{path}: {len(joined)} of {len(labels)} labels, such as {error_text(joined[0])},"
                f" are made of others with {separator!r} between them. If a text may have several"
                f" labels, give --label_kind=multi_label --label_separator={separator!r}."
            )


def _alike(labels: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Labels that differ in case, width, blanks, invisible characters, how a value is written."""
    groups: dict[str, list[str]] = {}
    for label, count in zip(labels, counts, strict=True):
        look = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
        look = "".join(c for c in look if unicodedata.category(c) not in ("Cc", "Cf"))
        with contextlib.suppress(decimal.DecimalException):
            # "1_0" and "nan0" are numbers to Python, but hardly to the file's author.
            number = decimal.Decimal(look.replace("_", "?"))
            look = str(number.normalize()) if number.is_finite() else look
        shown = f"{error_text(label)} ({count} {'row' if count == 1 else 'rows'})"
        groups.setdefault(_TRUTH.get(look, look), []).append(shown)
    return [" and ".join(group) for group in groups.values() if len(group) > 1]


def _class_counts(examples: Sequence[Example], labels: Sequence[str]) -> np.ndarray:
    """How many examples have each label, int64 [labels].

    Raises:
        DataError: See `check_sentence_labels`.
    """
    check_sentence_labels(examples, labels)
    counts = Counter(label for example in examples for label in example.classes)
    return np.array([counts[label] for label in labels], np.int64)


def balanced_sentence_weights(examples: Sequence[Example], labels: Sequence[str]) -> np.ndarray:
    """Weights that give every class the same sum, float32 [labels].

    n / (k · count): n labels altogether, k classes that occur. Their mean over the examples'
    labels is 1. A class that doesn't occur gets 1.

    Raises:
        DataError: See `_class_counts`.
    """
    counts = _class_counts(examples, labels)
    classes = max(np.count_nonzero(counts), 1)
    weights = counts.sum() / (classes * np.maximum(counts, 1))
    return np.where(counts > 0, weights, 1.0).astype(np.float32)


def _number(row: TableRow, column: str, value: object) -> float:
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        # Python, but hardly the file's author, takes "1_0" for 10.
        with contextlib.suppress(ValueError):
            number = float(str(value).replace("_", "?"))
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise DataError(
            f"{row.source}: the label in column {column!r} is {error_text(value)}; regression needs"
            " a finite number with a decimal point, such as 3.5, of at most 3.4e38. Correct or"
            " remove the row."
        )
    return number


def _name(row: TableRow, column: str, value: object) -> str:
    """A class name as a string."""
    # Other white space may be what tells two names apart, and has to come back as it was.
    return _id(row, column, value).strip(" \t\r\n")


def _id(row: TableRow, column: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    what = "an empty string" if isinstance(value, str) else _kind_of(value)
    raise DataError(
        f"{row.source}: the column {column!r} holds {what} where a name was expected, one for each"
        " example (lists of labels are multi-label). Correct or remove the row."
    )


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    names |= {list: "a list", dict: "an object", bytes: "bytes"}
    return names.get(type(value), f"a {type(value).__name__}")
