"""A task over the user's own files: TSV, CSV, JSON lines or Parquet, with columns named.

Labels are classes (found in the training file, or given), sets of classes, or numbers. What was
found is kept with the model (`saved_sentence_labels`), so that evaluation and prediction need no
training file.
"""

import dataclasses
import functools
from collections.abc import Sequence

from absl import logging

from data.errors import DataError, error_list
from data.files.bad_rows import BadRows
from data.files.encodings import UTF8
from data.files.tables import parse_delimiter
from data.files.text_files import placed_file, split_file_names
from data.tasks import labels as saved_files
from data.tasks.sentences.examples import (
    Example,
    SentenceKind,
    SentenceTask,
    split_sentence_examples,
)
from data.tasks.sentences.labelled import (
    SentenceLayout,
    balanced_sentence_weights,
    labels_of_sentences,
    warn_of_sentence_labels,
)

__all__ = [
    "OwnSentenceFiles",
    "SavedSentenceLabels",
    "balanced_sentence_weights",
    "load_sentence_labels",
    "make_sentence_task",
    "saved_sentence_labels",
]

_NONE_GIVEN = {
    "train": "Training needs a file of labelled examples and none was given; name it with"
    " --train_file.",
    "dev": "Evaluation needs a file of labelled examples and none was given; name it with"
    " --dev_file, or take a part of the training file with --dev_fraction=0.1.",
    "test": "Prediction needs a file of examples and none was given; name it with --test_file.",
}
_KINDS = (SentenceKind.CLASSES, SentenceKind.MULTI_LABEL, SentenceKind.REGRESSION)


@dataclasses.dataclass(frozen=True)
class SavedSentenceLabels:
    """What a trained model knows of its task."""

    kind: SentenceKind
    labels: list[str]
    text_columns: tuple[str, ...] = ()
    task_name: str | None = None
    dev_fraction: float | None = None


@dataclasses.dataclass(frozen=True)
class OwnSentenceFiles:
    """What `make_sentence_task` makes; see there for the fields. `files` are by split."""

    kind: SentenceKind
    labels: list[str]
    layout: SentenceLayout
    files: dict[str, str]
    dev_fraction: float = 0.0
    name: str = "delimited"

    @property
    def text_columns(self) -> tuple[str, ...]:
        """One, or two for pairs."""
        return self.layout.text_columns

    @property
    def columns(self) -> dict[str, str]:
        """Columns by what an exported model calls them, `label` among them; {} without a header."""
        if not self.layout.has_header:
            return {}
        named = zip(("text_a", "text_b", "label"), (*self.text_columns, None), strict=False)
        columns = dict(named) | {"label": self.layout.label_column}
        return {name: column for name, column in columns.items() if column}

    @property
    def bad_rows(self) -> BadRows:
        """See `SentenceTask`."""
        return self.layout.bad_rows

    @property
    def pairs(self) -> bool:
        """See `SentenceTask`."""
        return len(self.text_columns) == 2

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names that `modeling.metrics` knows; of two labels the second is F1's positive one."""
        if self.kind == SentenceKind.REGRESSION:
            return ("pearson", "spearman", "mse")
        if self.kind == SentenceKind.MULTI_LABEL:
            return ("micro_f1", "macro_f1", "accuracy")
        return ("accuracy", "f1" if len(self.labels) == 2 else "macro_f1")

    def splits(self, purpose: str) -> tuple[str, ...]:
        """See `SentenceTask`: "dev" is the first dev file, "dev_<stem>" are the others."""
        if purpose not in _NONE_GIVEN:
            raise DataError(f"There is no purpose {purpose!r}; train, dev and test there are.")
        return tuple(s for s in self.files if s.partition("_")[0] == purpose) or (purpose,)

    def read(self, data_dir: str | None, split: str) -> list[Example]:
        """See `SentenceTask`. Test examples have a label where their file does.

        `data_dir` isn't used: `make_sentence_task` was told where file names start from.
        """
        if self.dev_fraction and split in ("train", "dev"):
            return list(self._held_out[split == "dev"])
        if split == "train":
            return list(self._training)
        return self.examples(split)

    def examples(self, split: str, guess_kind: bool = False) -> list[Example]:
        """The examples of a file as they are, see `read`; their kind may be guessed."""
        if split in self.files:
            kind = None if guess_kind else self.kind
            return self.layout.read(self.files[split], split, kind, self.labels)
        if split in _NONE_GIVEN:
            raise DataError(_NONE_GIVEN[split])
        known = ["train", *self.splits("dev"), "test"]
        raise DataError(f"The task delimited has no {split!r} split; it has {', '.join(known)}.")

    @functools.cached_property
    def _training(self) -> list[Example]:
        examples = self.examples("train")
        if self.kind != SentenceKind.REGRESSION:
            warn_of_sentence_labels(self.files["train"], examples, self.labels)
        return examples

    @functools.cached_property
    def _held_out(self) -> tuple[list[Example], list[Example]]:
        if "train" not in self.files:
            raise DataError(
                f"A dev_fraction of {self.dev_fraction} is a part of the training file, and none"
                " was given; name it with --train_file, or a file to evaluate on with --dev_file."
            )
        return split_sentence_examples(self._training, self.dev_fraction)


def make_sentence_task(
    *,
    text_columns: str | Sequence[str] = (),
    label_column: str | None = None,
    id_column: str | None = None,
    train_file: str | None = None,
    dev_files: str | Sequence[str] = (),
    test_file: str | None = None,
    kind: str | SentenceKind | None = None,
    labels: str | Sequence[str] | None = None,
    saved_labels: SavedSentenceLabels | None = None,
    searched: Sequence[str] = (),
    label_separator: str = ",",
    has_header: bool = True,
    dev_fraction: float = 0.0,
    format: str | None = None,
    data_dir: str | None = None,
    skip_bad_rows: bool = False,
    delimiter: str | None = None,
    encoding: str = UTF8,
) -> OwnSentenceFiles:
    """The task over these files.

    Unless kind and labels are given or saved, the training file is read here. Wherever several
    names may be given, one string with commas does.

    Args:
        text_columns: One column, or two for pairs; by default those saved.
        label_column: Needed to train and to evaluate; scores a test file that has it.
        id_column: Its values become the examples' guids and have to differ within a file;
            otherwise the guids are split and row number, such as "train-1".
        train_file, dev_files, test_file: Which of them are needed the use decides.
        kind: "classes", "multi_label" or "regression"; by default the saved one, else
            multi-label if the first label of the training file is a list, else classes.
        labels: Class names in the order of their ids; by default those saved, else those of the
            training file, sorted, by value if all are numbers.
        saved_labels: From `load_sentence_labels`, for a trained model.
        searched: Where they might have been, for messages.
        label_separator: Splits multi-label strings, whose parts lose surrounding white space;
            the empty string has no label. Lists need none.
        has_header: See `read_table`.
        dev_fraction: Share of the training file that is the dev set, see `split_sentence_examples`.
        format: See `read_table`; one for all files.
        data_dir: Folder that relative file names start from.
        skip_bad_rows: Whether these are left out, see `bad_rows`.
        delimiter: See `tables.parse_delimiter`; for all files of fields.
        encoding: Of all files of text.

    Raises:
        DataError: The arguments contradict each other, or the training file is at fault.
    """
    dev_files = _listed(dev_files)
    text_columns = _listed(text_columns) or (saved_labels.text_columns if saved_labels else ())
    _check_columns(text_columns, label_column, saved_labels, searched)
    if not 0 <= dev_fraction < 1:
        raise DataError(f"dev_fraction is {dev_fraction}; it has to be at least 0 and below 1.")
    if dev_fraction and dev_files:
        raise DataError(
            f"Both dev files ({', '.join(dev_files)}) and a dev_fraction of {dev_fraction} were"
            " given; give one of them."
        )
    trained_on = saved_labels and saved_labels.dev_fraction
    if trained_on is not None and dev_fraction not in (0, trained_on):
        raise DataError(
            f"The model was trained with a dev_fraction of {trained_on}: of the {dev_fraction} that"
            " are to be evaluated on now it has seen some, if the file is the one it was trained"
            " on. Give the same fraction, or other rows as a dev file."
        )
    kind, labels = _kind_and_labels(kind, labels, saved_labels)
    if kind == SentenceKind.MULTI_LABEL and not label_separator:
        raise DataError("The label separator is empty; give the text between labels, such as ','.")
    files = {"train": train_file} | split_file_names("dev", dev_files) | {"test": test_file}
    task = OwnSentenceFiles(
        kind=kind or SentenceKind.CLASSES,
        labels=labels or [],
        layout=SentenceLayout(
            text_columns,
            label_column,
            id_column,
            label_separator,
            has_header,
            format,
            BadRows(skip_bad_rows),
            parse_delimiter(delimiter),
            encoding,
        ),
        files={split: placed_file(data_dir, path) for split, path in files.items() if path},
        dev_fraction=dev_fraction,
    )
    if labels is not None or kind == SentenceKind.REGRESSION:
        return task
    if not train_file:
        raise DataError(
            "The labels aren't known: there is no training file to find them in, no list of them,"
            f" and none saved with a trained model{_missing(searched)}. To train, give"
            " --train_file; to evaluate or predict, a trained model with its labels beside it, or"
            " --labels in the order that it was trained with."
        )
    examples = task.examples("train", guess_kind=kind is None)
    kind = (
        SentenceKind.MULTI_LABEL if isinstance(examples[0].label, tuple) else SentenceKind.CLASSES
    )
    labels, path = labels_of_sentences(examples), task.files["train"]
    if len(labels) < (2 if kind == SentenceKind.CLASSES else 1):
        raise DataError(
            f"{path}: the column {label_column!r} holds"
            f" {f'only the label {labels[0]!r}' if labels else 'no label'}; training needs"
            " examples of two classes at least (one, if examples have any number of labels)."
        )
    task = dataclasses.replace(task, kind=kind, labels=labels)
    # Where cached_property would keep it.
    task.__dict__["_training"] = examples
    warn_of_sentence_labels(path, examples, labels)
    logging.info("Labels found in %s: %s", path, error_list(labels))
    return task


def saved_sentence_labels(task: SentenceTask) -> dict:
    """What is kept with a model, for `load_sentence_labels`: kind, labels, columns, and name."""
    saved = {
        "task_name": task.name,
        "kind": task.kind.value,
        "labels": task.labels,
        "text_columns": list(getattr(task, "text_columns", ())),
    }
    if isinstance(task, OwnSentenceFiles):
        saved[saved_files.DEV_FRACTION] = task.dev_fraction
    return saved


def load_sentence_labels(path: str) -> SavedSentenceLabels:
    """Reads what was kept.

    Raises:
        DataError: The file can't be read or is another.
    """

    def form(saved) -> SavedSentenceLabels:
        names, columns = (
            saved_files.task_label_strings(saved, name) for name in ("labels", "text_columns")
        )
        kind, name = SentenceKind(saved["kind"]), saved.get("task_name")
        held_out = saved.get(saved_files.DEV_FRACTION)
        held_out = None if held_out is None else float(held_out)
        return SavedSentenceLabels(kind, list(names), columns, name and str(name), held_out)

    return saved_files.read_labels(path, form)


def _missing(places: Sequence[str]) -> str:
    return f" (there is no {' and no '.join(places)})" if places else ""


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return tuple(name for name in names if name)


def _check_columns(
    texts: Sequence[str],
    label_column: str | None,
    saved: SavedSentenceLabels | None,
    searched: Sequence[str],
) -> None:
    if not 1 <= len(texts) <= 2 or len(set(texts)) < len(texts):
        absent = "" if saved else _missing(searched)
        raise DataError(
            f"The text columns are {', '.join(texts) or 'none'}{absent}; name one with"
            " --text_columns, or two different ones for pairs of texts."
        )
    if label_column in texts:
        raise DataError(
            f"The column {label_column!r} is named as both text and label; the label would be"
            " read off the text. Name another one."
        )
    if saved and saved.text_columns and len(saved.text_columns) != len(texts):
        raise DataError(
            f"The model was trained on the text columns {', '.join(saved.text_columns)}, and those"
            f" given are {', '.join(texts)}; give as many."
        )


def _kind_and_labels(
    kind: str | SentenceKind | None,
    labels: str | Sequence[str] | None,
    saved: SavedSentenceLabels | None,
) -> tuple[SentenceKind | None, list[str] | None]:
    """Checked and completed by what was saved; None for what the training file has to tell."""
    if kind is not None:
        named = {known.value: known for known in _KINDS}
        if kind not in (*named, *_KINDS):
            raise DataError(f"The kind of labels is {kind!r}; it may be {', '.join(named)}.")
        kind = named.get(kind, kind)
    labels = list(_listed(labels)) if labels else None
    if labels and len(set(labels)) < len(labels):
        raise DataError(f"The labels {', '.join(labels)} have one twice; remove one of the two.")
    if labels and kind == SentenceKind.REGRESSION:
        raise DataError(f"Regression has no labels, and {', '.join(labels)} were given.")
    if saved:
        if kind not in (None, saved.kind) or (labels and labels != saved.labels):
            contradicting = [kind.value] if kind else []
            contradicting += [f"the labels {error_list(labels)}"] if labels else []
            raise DataError(
                f"The model was trained for {saved.kind.value} with the labels"
                f" {error_list(saved.labels) or '(none)'}; given were"
                f" {' and '.join(contradicting)}. Leave these out, or train a new model."
            )
        return saved.kind, saved.labels
    if labels and kind is None:
        kind = SentenceKind.CLASSES
    if kind == SentenceKind.CLASSES and labels and len(labels) < 2:
        raise DataError(f"One label ({labels[0]}) was given; classes need two at least.")
    return kind, labels
