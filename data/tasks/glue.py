"""GLUE and XNLI as the original release reads them: tab-separated files to examples.

Fields are split at tabs and nothing else: quotation marks are text, as in the original. A byte
order mark (MRPC is published with one) is dropped.
"""

import dataclasses
import os
from collections.abc import Iterator

import tensorflow as tf

from data.errors import DataError

SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Example:
    """One sentence or pair.

    Attributes:
        guid: The original's name of it, such as "train-1": split and line number, header = 0.
        text_a: First or only text.
        text_b: Second text, or None.
        label: One of the task's labels; None in test sets, which have none.
        source: "file:line", lines counting from 1, for messages.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: str | None
    source: str


@dataclasses.dataclass(frozen=True)
class _Table:
    """Where a split's file keeps what; columns count from 0, -1 being the last."""

    file: str
    text_a: int
    text_b: int | None = None
    label: int | None = None
    header: bool = True
    # The name in guids.
    name: str = ""
    # The column that has to hold this value, else the row isn't of this task.
    only: tuple[int, str] | None = None
    # The original takes MNLI's guids from the first column.
    guid: int | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A classification task.

    Attributes:
        name: Lower case.
        labels: In the order of their ids in the original release.
    """

    name: str
    labels: list[str]
    tables: dict[str, _Table]
    renamed_labels: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def pairs(self) -> bool:
        """Whether an example is two texts."""
        return any(table.text_b is not None for table in self.tables.values())

    def read(self, data_dir: str, split: str) -> list[Example]:
        """Reads one split.

        Args:
            data_dir: The folder of the task's files, named as published.
            split: "train", "dev" or "test".

        Raises:
            DataError: A file is missing or empty, or a row has too few columns or a label that
                the task doesn't have.
        """
        if split not in self.tables:
            raise DataError(
                f"The task {self.name} has no {split!r} split; it has {', '.join(self.tables)}."
            )
        table = self.tables[split]
        path = os.path.join(data_dir, *table.file.split("/"))
        examples = list(self._examples(path, table, split))
        if not examples:
            raise DataError(
                f"{path} has no examples for task {self.name}; the {split} split needs a "
                "tab-separated file with at least one row"
                + (" below its header." if table.header else ".")
            )
        return examples

    def _examples(self, path: str, table: _Table, split: str) -> Iterator[Example]:
        columns = [table.text_a, table.text_b, table.label, table.only and table.only[0]]
        needed = 1 + max(column for column in columns if column is not None)
        for number, line in enumerate(_lines(path)):
            if not line or (number == 0 and table.header):
                continue
            source = f"{path}:{number + 1}"
            fields = line.split("\t")
            if len(fields) < needed:
                raise DataError(
                    f"{source}: this row of {self.name} has {len(fields)} tab-separated columns, "
                    f"{needed} are needed; it reads {_shortened(line)}. Check that the file is "
                    f"the task's own {table.file}, with tabs."
                )
            if table.only and fields[table.only[0]] != table.only[1]:
                continue
            label = None
            if table.label is not None:
                label = self.renamed_labels.get(fields[table.label], fields[table.label])
                if label not in self.labels:
                    raise DataError(
                        f"{source}: the label is {_shortened(fields[table.label])}; {self.name} "
                        f"has the labels {', '.join(self.labels)}. Correct or remove the row."
                    )
            name = fields[table.guid] if table.guid is not None else str(number)
            yield Example(
                guid=f"{table.name or split}-{name}",
                text_a=fields[table.text_a],
                text_b=None if table.text_b is None else fields[table.text_b],
                label=label,
                source=source,
            )


def get_task(name: str) -> Task:
    """The task of that name, in upper or lower case.

    Raises:
        DataError: There is none; the message lists those there are.
    """
    task = _TASKS.get(name.lower())
    if task is None:
        raise DataError(
            f"There is no task {name!r}; task_name may be one of {', '.join(sorted(_TASKS))}."
        )
    return task


def task_names() -> list[str]:
    """Names that `get_task` knows."""
    return sorted(_TASKS)


def _lines(path: str) -> Iterator[str]:
    """Lines without their ends, whichever of LF, CRLF and CR these are."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
    except tf.errors.OpError as error:
        raise DataError(
            f"{path} can't be read ({type(error).__name__}); data_dir has to be the folder that "
            "holds the task's files under their published names."
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: found the bytes {data[error.start : error.start + 4]!r}, which are "
            "not UTF-8; convert the file to UTF-8."
        ) from error
    # Not splitlines(), which also splits at U+2028, U+0085 and others that occur in sentences.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return iter(lines)


def _shortened(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")


_NLI_LABELS = ["contradiction", "entailment", "neutral"]
_COLA = {"text_a": 3, "label": 1, "header": False}
_MRPC = {"text_a": 3, "text_b": 4}
_MNLI = {"text_a": 8, "text_b": 9, "guid": 0}

_TASKS = {
    task.name: task
    for task in (
        Task(
            "cola",
            ["0", "1"],
            {
                "train": _Table("train.tsv", **_COLA),
                "dev": _Table("dev.tsv", **_COLA),
                "test": _Table("test.tsv", text_a=1),
            },
        ),
        Task(
            "mnli",
            _NLI_LABELS,
            {
                "train": _Table("train.tsv", **_MNLI, label=-1),
                "dev": _Table("dev_matched.tsv", **_MNLI, label=-1, name="dev_matched"),
                "test": _Table("test_matched.tsv", **_MNLI),
            },
        ),
        Task(
            "mrpc",
            ["0", "1"],
            {
                "train": _Table("train.tsv", **_MRPC, label=0),
                "dev": _Table("dev.tsv", **_MRPC, label=0),
                "test": _Table("test.tsv", **_MRPC),
            },
        ),
        Task(
            "xnli",
            _NLI_LABELS,
            {
                "train": _Table("multinli/multinli.train.zh.tsv", text_a=0, text_b=1, label=2),
                "dev": _Table("xnli.dev.tsv", text_a=6, text_b=7, label=1, only=(0, "zh")),
            },
            {"contradictory": "contradiction"},
        ),
        Task(
            "sst-2",
            ["0", "1"],
            {
                "train": _Table("train.tsv", text_a=0, label=1),
                "dev": _Table("dev.tsv", text_a=0, label=1),
                "test": _Table("test.tsv", text_a=1),
            },
        ),
    )
}
