"""Multiple choice: SWAG, CODAH and files of one's own to examples of a text and its choices.

A file's ending says its layout; lines and rows count from 1 in messages.

.csv    As SWAG is published: quoted fields and a header with sent1, sent2, ending0, ending1 …
        and label, among columns that aren't used. The text is sent1, a choice is sent2, which
        begins the second sentence, with one of the endings.
.tsv    As CODAH is published: category, prompt, four choices, label; no header, and quotation
        marks are text. The label may be left out in test files.
.jsonl  An object per line: {"context": text, "choices": [text, …], "label": number}, with any
        number of choices from two. "startphrase" and "answer" may stand for "context" and
        "label".

.ndjson and .json are read as .jsonl, and all of them may be packed (.gz, .bz2, .xz or .zst
behind the ending). Blank lines are skipped. Labels count from 0. Only test files may go without
them.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

from data.errors import DataError, error_list, error_text
from data.files.bad_rows import BadRows, RowAttempt
from data.files.parquet import check_column_names
from data.files.text_files import (
    csv_file_rows,
    file_extension,
    json_file_rows,
    named_file_row,
    placed_file,
    read_text,
    split_file_names,
    tsv_file_rows,
)
from data.tasks.sentences.examples import Example, SentenceKind

NAMES = ("codah", "multiple_choice", "swag")
_PUBLISHED = {
    "swag": {"train": "train.csv", "dev": "val.csv", "test": "test.csv"},
    "codah": {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"},
    "multiple_choice": {},
}
_CODAH_CHOICES = 4
_HINTS = {
    "swag": "The swag task expects the CSV files published with SWAG.",
    "codah": "The codah task expects train.tsv, dev.tsv and test.tsv, one fold of CODAH.",
    "multiple_choice": "Check the paths given for the task's files.",
}


@dataclasses.dataclass(frozen=True)
class ChoiceTask:
    """A task that is to choose among texts; see `examples.SentenceTask`.

    Attributes:
        name: One of NAMES.
        files: Split → file name.
    """

    name: str
    files: dict[str, str]
    kind: SentenceKind = SentenceKind.CHOICES
    labels: list[str] = dataclasses.field(default_factory=list)
    metrics: tuple[str, ...] = ("accuracy",)
    bad_rows: BadRows = dataclasses.field(default_factory=BadRows)

    @property
    def pairs(self) -> bool:
        """True: the text and one of its choices make a pair."""
        return True

    def splits(self, purpose: str) -> tuple[str, ...]:
        """See `SentenceTask`; empty if no file was given."""
        return tuple(s for s in self.files if s == purpose or s.startswith(f"{purpose}_"))

    def read(self, data_dir: str | None, split: str) -> list[Example]:
        """See `SentenceTask`.

        Raises:
            DataError: There is no such split; the file is missing, empty or not UTF-8; a line is
                broken, has too few columns or fewer than two choices; a label is missing (but in
                test files), not an integer or not the number of a choice.
        """
        if split not in self.files:
            has = ", ".join(self.files) or "none"
            raise DataError(
                f"The task {self.name} has no {split!r} split; it has {has}. Give a "
                f"{split.split('_')[0]} file."
            )
        path = placed_file(data_dir, self.files[split])
        rows_of = _LAYOUTS.get(file_extension(path))
        if rows_of is None:
            raise DataError(
                f"{path} has an ending that multiple choice doesn't know; files may end in "
                f"{', '.join(_LAYOUTS)}, each for its own layout."
            )
        bad = self.bad_rows.of(path)
        rows = rows_of(path, read_text(path, _HINTS[self.name]), bad.attempt)
        examples = [bad.attempt(self._example, split, *row) for row in rows]
        examples = [example for example in examples if example is not None]
        bad.finish(len(examples))
        if not examples:
            raise DataError(
                f"{path} has no examples for task {self.name}; the {split} split needs at least "
                "one. Check that the download or export of the file was complete."
            )
        return examples

    def _example(
        self, split: str, number: int, source: str, text: str, choices: list[str], label: object
    ) -> Example:
        if len(choices) < 2:
            raise DataError(
                f"{source}: found {len(choices)} choices; {self.name} needs at least two to choose "
                "from. Correct or remove the example."
            )
        if "" in choices:
            raise DataError(
                f"{source}: choice {choices.index('')} (from 0 on) is empty, which an exported "
                "model takes for no choice. Correct or remove the example."
            )
        if label is None and split != "test":
            raise DataError(
                f"{source}: there is no label; the {split} split needs one in every example, the "
                f"number of the right choice from 0 to {len(choices) - 1}. Only test files may "
                "go without labels."
            )
        if isinstance(label, str) and re.fullmatch(r"\s*[+-]?\d{1,9}\s*", label):
            label = int(label)
        if label == -1 and split == "test":
            label = None  # as test files that keep their labels back have it
        if label is not None and type(label) is not int:  # bool is an int to isinstance
            raise DataError(
                f"{source}: the label is {error_text(label)}, which is not an integer; it has to "
                f"be the number of the right choice, here from 0 to {len(choices) - 1}."
            )
        if label is not None and not 0 <= label < len(choices):
            raise DataError(
                f"{source}: the label is {label}, out of range for {len(choices)} choices; they "
                f"count from 0 to {len(choices) - 1}. Correct the label or add the choice."
            )
        return Example(
            guid=f"{split}-{number}",
            text_a=text,
            text_b=None,
            label=label,
            source=source,
            choices=tuple(choices),
        )


def get_task(
    name: str,
    train_file: str | None = None,
    dev_files: Sequence[str] = (),
    test_file: str | None = None,
    skip_bad_rows: bool = False,
) -> ChoiceTask:
    """The task "swag" or "codah", which know the published names of files, or "multiple_choice".

    Files that are named here take the place of those; for the splits of `dev_files` see
    `text_files.split_file_names`.

    Raises:
        DataError: There is no task of that name.
    """
    name = name.lower()
    if name not in _PUBLISHED:
        raise DataError(
            f"There is no multiple choice task {name!r}; task_name may be one of "
            f"{', '.join(NAMES)}."
        )
    published = _PUBLISHED[name]
    named = {"train": [train_file], "dev": list(dev_files), "test": [test_file]}
    files = {}
    for purpose, paths in named.items():
        paths = [path for path in paths if path] or [published.get(purpose)]
        files |= split_file_names(purpose, filter(None, paths))
    return ChoiceTask(name, files, bad_rows=BadRows(skip_bad_rows))


# Row number (for the guid), source, text, choices, label.
_Row = tuple[int, str, str, list[str], object]


def _csv_rows(path: str, text: str, attempt: RowAttempt) -> Iterator[_Row]:
    header: list[str] = []
    for number, (source, fields) in enumerate(csv_file_rows(path, text)):
        if number == 0:
            header, endings = _csv_header(source, fields)
        elif fields != [""]:
            row = attempt(named_file_row, source, header, fields, ",")
            if row is None:
                continue
            # An empty ending is no choice, whatever it would end.
            texts = [row[ending].strip() for ending in endings]
            choices = [f"{row['sent2']} {text}".strip() if text else "" for text in texts]
            yield number, source, row["sent1"], choices, row.get("label") or None


def _csv_header(source: str, fields: list[str]) -> tuple[list[str], list[str]]:
    """The header's columns, and those of them that are endings, in their order."""
    header = [field.strip() for field in fields]
    missing = [name for name in ("sent1", "sent2") if name not in header]
    endings = [name for name in header if re.fullmatch(r"ending\d+", name)]
    # SWAG's first column has no name, and others may have none, too.
    check_column_names(source, [n for n in header if n in ("sent1", "sent2", "label", *endings)])
    if missing or len(endings) < 2:
        missing += ["ending0, ending1 and so on"] if len(endings) < 2 else []
        raise DataError(
            f"{source}: the header has too few columns, {', '.join(missing)} missing; its columns "
            f"are {error_list(map(error_text, header))}. Use SWAG's published header (sent1, "
            "sent2, at least two choices ending0, ending1 …, and label), or JSON lines."
        )
    return header, sorted(endings, key=lambda name: int(name.removeprefix("ending")))


def _tsv_rows(path: str, text: str, attempt: RowAttempt) -> Iterator[_Row]:
    for number, (source, fields) in enumerate(tsv_file_rows(path, text)):
        row = None if fields == [""] else attempt(_tsv_row, number, source, fields)
        if row is not None:
            yield row


def _tsv_row(number: int, source: str, fields: list[str]) -> _Row:
    unlabelled = 2 + _CODAH_CHOICES
    if len(fields) not in (unlabelled, unlabelled + 1):
        raise DataError(
            f"{source}: this row has {len(fields)} tab-separated columns, {unlabelled + 1} "
            f"are needed (category, prompt, {_CODAH_CHOICES} choices, label); it begins "
            f"{error_text(fields[0])}. For another number of choices use JSON lines."
        )
    label = fields[unlabelled] if len(fields) > unlabelled else None
    return number, source, fields[1], fields[2:unlabelled], label or None


def _json_rows(path: str, text: str, attempt: RowAttempt) -> Iterator[_Row]:
    for number, (source, fields) in enumerate(json_file_rows(path, text, attempt)):
        row = None if fields is None else attempt(_json_row, number, source, fields)
        if row is not None:
            yield row


def _json_row(number: int, source: str, row: dict[str, object]) -> _Row:
    context, choices = row.get("context", row.get("startphrase")), row.get("choices")
    texts = [context, *choices] if isinstance(choices, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"{source}: expected an object with a text 'context' (or 'startphrase') and a list "
            f"of texts 'choices', found {error_text(row)}. Correct or remove the line."
        )
    return number, source, context, choices, row.get("label", row.get("answer"))


_LAYOUTS = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".json": _json_rows,
}
