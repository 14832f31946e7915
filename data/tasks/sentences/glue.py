"""GLUE, its diagnostic set, and XNLI: tab-separated files, named as published, to examples.

Fields are split at tabs and nothing else: quotation marks are text, as in the original release
(STS-B and QQP have unbalanced ones). A byte order mark (MRPC is published with one) is dropped.
Columns are found by their names where the file has a header that has them, else by position, as
in the original. QNLI's first and second edition have the same columns and read alike; only the
second is scored by the GLUE server.

MRPC as published has 3,668 + 408 rows, all of the 4,076 that its source has; a copy that was made
with quotes interpreted, or cut, has fewer. So a file that is up to 1 % off its published size is
read with a warning, and a row that was cut short is an error. QQP's train and dev files do have
broken rows as published (questions with line breaks in them): these are left out and counted in
the log, as are rows of MNLI and XNLI whose annotators found no majority, "-".
"""

import dataclasses
import math
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from data.errors import DataError, error_text
from data.files.bad_rows import BadRows, RowAttempt
from data.files.text_files import lines_of, placed_file, read_text
from data.progress import counted
from data.tasks.sentences.examples import Example, SentenceKind

SPLITS = ("train", "dev", "test")
# fmt: off
XNLI_LANGUAGES = (
    "ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"
)
# fmt: on

# Name in the header and position, from 0, where the header doesn't have it; -1 is the last.
_Column = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class _Table:
    """Where a split's file keeps what."""

    file: str
    text_a: _Column
    text_b: _Column | None = None
    label: _Column | None = None
    header: bool = True
    # Number of rows as published.
    size: int | None = None
    # The name in guids.
    name: str = ""
    # The column that has to hold this value, else the row isn't of this task.
    only: tuple[_Column, str] | None = None
    # The column that names the row and must not repeat itself.
    index: _Column | None = None
    # The original takes MNLI's guids from there.
    index_in_guid: bool = False
    # Published with broken rows, which everybody leaves out.
    skip_short: bool = False
    # Read instead where it exists.
    rather: "_Table | None" = None

    def columns(self) -> dict[str, _Column]:
        columns = {"text_a": self.text_a, "text_b": self.text_b, "label": self.label}
        columns |= {"only": self.only and self.only[0], "index": self.index}
        return {use: column for use, column in columns.items() if column is not None}


@dataclasses.dataclass(frozen=True)
class PublishedTask:
    """A task of GLUE or XNLI; implements `examples.SentenceTask`.

    Attributes:
        name: Lower case.
        labels: In the order of their ids in the original release, or GLUE's own; empty for
            STS-B, whose labels are numbers from 0 to 5.
        tables: By split; the splits are "train", "dev", "test" and for MNLI also
            "dev_mismatched", "test_mismatched", "diagnostic".
        metrics: The official ones, the first to choose models by.
    """

    name: str
    labels: list[str]
    tables: dict[str, _Table]
    metrics: tuple[str, ...] = ("accuracy",)
    kind: SentenceKind = SentenceKind.CLASSES
    renamed_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    bad_rows: BadRows = dataclasses.field(default_factory=BadRows)

    @property
    def pairs(self) -> bool:
        """See `SentenceTask`."""
        return any(table.text_b is not None for table in self.tables.values())

    def splits(self, purpose: str) -> tuple[str, ...]:
        """See `SentenceTask`; not all of them need be there, see `exists`."""
        if purpose not in SPLITS:
            raise ValueError(f"purpose is {purpose!r}; it may be one of {', '.join(SPLITS)}.")
        names = [purpose, f"{purpose}_mismatched"] + ["diagnostic"] * (purpose == "test")
        return tuple(name for name in names if name in self.tables)

    def exists(self, data_dir: str, split: str) -> bool:
        """Whether the folder has the file of that split."""
        return split in self.tables and self._present(data_dir, self.tables[split]) is not None

    def _present(self, data_dir: str, table: _Table) -> _Table | None:
        """The table, or the one to be read rather, if its file is there."""
        choice = [option for option in (table.rather, table) if option]
        return next((t for t in choice if tf.io.gfile.exists(placed_file(data_dir, t.file))), None)

    def published_size(self, split: str) -> int | None:
        """How many rows the split has as published (QNLI: second edition)."""
        return self._table(split).size

    def read(self, data_dir: str | None, split: str) -> list[Example]:
        """See `SentenceTask`.

        Test sets have no labels, but for XNLI's and the diagnostic set's full file.

        Raises:
            DataError: A file is missing or empty, or a row has too few columns or more than the
                first line, a label that the task doesn't have, or the index of an earlier row.
        """
        table = self._table(split)
        if not data_dir:
            raise DataError(
                f"No data_dir was given; {self.name} needs the folder that holds {table.file}."
            )
        path = placed_file(data_dir, table.file)
        table = self._present(data_dir, table)
        if table is None:
            present = [name for name in self.tables if self.exists(data_dir, name)]
            raise DataError(
                f"{path} can't be read (there is no such file); data_dir has to be the folder "
                "that holds the task's files under their published names. Of the splits of "
                f"{self.name} it has {', '.join(present) or 'none'}."
            )
        path = placed_file(data_dir, table.file)
        lines = lines_of(read_text(path))
        bad = self.bad_rows.of(path)
        examples = list(self._examples(path, table, split, lines, bad.attempt))
        bad.finish(len(examples))
        if not examples:
            raise DataError(
                f"{path} has no examples for task {self.name}; the {split} split needs a "
                "tab-separated file with at least one row"
                + (" below its header." if table.header else ".")
            )
        if table.size and 0 < abs(len(examples) - table.size) <= max(1, table.size // 100):
            logging.warning(
                f"{path} has {len(examples)} examples, {self.name} as published has {table.size}: "
                "rows may have been lost or added when it was copied."
            )
        return examples

    def _table(self, split: str) -> _Table:
        if split not in self.tables:
            raise DataError(
                f"The task {self.name} has no {split!r} split; it has {', '.join(self.tables)}."
            )
        return self.tables[split]

    def _examples(
        self, path: str, table: _Table, split: str, lines: list[str], attempt: RowAttempt
    ) -> Iterator[Example]:
        at = _positions(path, table, lines)
        needed = 1 + max(at.values())
        width = len(next(filter(None, lines), "").split("\t"))
        seen: dict[str, str] = {}
        skipped: dict[str, list[str]] = {"too few columns": [], 'the label "-"': []}

        def example(number: int, line: str) -> Example | None:
            """None for what isn't of the task, or is left out by everybody."""
            source = f"{path}:{number + 1}"
            fields = line.split("\t")
            if len(fields) < needed:
                if table.skip_short:
                    skipped["too few columns"].append(source)
                    return None
                raise DataError(
                    f"{source}: this row of {self.name} has {len(fields)} tab-separated columns, "
                    f"{needed} are needed; it reads {error_text(line)}. Check that the file is "
                    f"the task's own {table.file}, with tabs."
                )
            if any(fields[width:]) and not table.skip_short:
                raise DataError(
                    f"{source}: this row of {self.name} has {len(fields)} tab-separated columns, "
                    f"the first line has {width}; it reads {error_text(line)}. Take the tab out of "
                    "the text that holds one, or remove the row."
                )
            if table.only and fields[at["only"]] != table.only[1]:
                return None
            if "index" in at:
                first = seen.setdefault(fields[at["index"]], source)
                if first is not source:
                    raise DataError(
                        f"{source}: the index {error_text(fields[at['index']])} is that of "
                        f"{first} too; each row of {self.name} needs its own. Remove one of the "
                        "rows, or number them anew."
                    )
            label = None
            if "label" in at:
                if fields[at["label"]] == "-" and self.labels == _NLI_LABELS:
                    skipped['the label "-"'].append(source)
                    return None
                label = self._label(fields[at["label"]], source)
            return Example(
                guid=f"{table.name or split}-"
                f"{fields[at['index']] if table.index_in_guid else number}",
                text_a=fields[at["text_a"]],
                text_b=fields[at["text_b"]] if "text_b" in at else None,
                label=label,
                source=source,
            )

        for number, line in enumerate(counted(f"Reading {path}", "lines", lines)):
            if line and not (number == 0 and table.header):
                made = attempt(example, number, line)
                if made is not None:
                    yield made
        for reason, sources in skipped.items():
            if sources:
                logging.warning(
                    f"{path}: left out {len(sources)} rows that have {reason}, the first at "
                    f"{sources[0]}."
                )

    def _label(self, text: str, source: str) -> str | float:
        if self.kind is SentenceKind.REGRESSION:
            try:
                score = float(text)
            except ValueError:
                score = math.nan
            if not 0 <= score <= 5:
                raise DataError(
                    f"{source}: the score is {error_text(text)}; {self.name} has numbers from 0 "
                    "to 5. Correct or remove the row."
                )
            return score
        label = self.renamed_labels.get(text, text)
        if label not in self.labels:
            raise DataError(
                f"{source}: the label is {error_text(text)}; {self.name} "
                f"has the labels {', '.join(self.labels)}. Correct or remove the row."
            )
        return label


def get_task(name: str, skip_bad_rows: bool = False) -> PublishedTask:
    """The task of that name, in upper or lower case.

    Raises:
        DataError: There is none; the message lists those there are.
    """
    task = _TASKS.get(name.lower())
    if task is None:
        raise DataError(
            f"There is no task {name!r}; task_name may be one of {', '.join(sorted(_TASKS))}."
        )
    return dataclasses.replace(task, bad_rows=BadRows(skip_bad_rows))


def task_names() -> list[str]:
    """Names that `get_task` knows."""
    return sorted(_TASKS)


def _positions(path: str, table: _Table, lines: list[str]) -> dict[str, int]:
    """Which field holds what."""
    columns = table.columns()
    header = lines[0].split("\t") if table.header and lines else []
    missing = [name for use, (name, _) in columns.items() if use != "index" and name not in header]
    if header and len(missing) < len(columns.keys() - {"index"}):
        if missing:
            raise DataError(
                f"{path}:1: the header has no column {error_text(missing[0])}; it reads "
                f"{error_text(lines[0])}. Name the columns as published."
            )
    elif header:
        logging.warning(
            f"{path}:1: this line is taken for a header and left out, though it has none of the "
            f"names {', '.join(missing)}; it reads {error_text(lines[0])}."
        )
    if "index" in columns and columns["index"][0] not in header and not table.index_in_guid:
        # The first column may be anything then.
        del columns["index"]
    return {
        use: header.index(name) if name in header else position
        for use, (name, position) in columns.items()
    }


_NLI_LABELS = ["contradiction", "entailment", "neutral"]
_ENTAILMENT = ["entailment", "not_entailment"]
_TWO = ["0", "1"]
_INDEX = ("index", 0)

_PAIR = {"text_a": ("sentence1", 1), "text_b": ("sentence2", 2), "index": _INDEX}
_MNLI = {**_PAIR, "text_a": ("sentence1", 8), "text_b": ("sentence2", 9), "index_in_guid": True}
# The annotators' labels stand before it: one in train, five in dev.
_MNLI_LABELLED = {**_MNLI, "label": ("gold_label", -1)}
_AX = {"text_a": ("Premise", 5), "text_b": ("Hypothesis", 6), "label": ("Label", 7)}
_AX_FULL = _Table("diagnostic-full.tsv", **_AX, size=1104, name="diagnostic")
_DIAGNOSTIC = _Table("diagnostic.tsv", **_PAIR, size=1104, name="diagnostic", rather=_AX_FULL)


def _usual(
    sizes: tuple[int | None, int, int], texts: dict, label: _Column, test: dict | None = None
) -> dict[str, _Table]:
    """train.tsv, dev.tsv and test.tsv, the last with the same texts unless said otherwise."""
    columns = ({**texts, "label": label}, {**texts, "label": label}, test or texts)
    return {
        split: _Table(f"{split}.tsv", **these, size=size)
        for split, these, size in zip(SPLITS, columns, sizes, strict=True)
    }


def _xnli(name: str, language: str) -> PublishedTask:
    """Dev and test are one file for all languages; train is MNLI's, translated."""
    both = {"text_a": ("sentence1", 6), "text_b": ("sentence2", 7), "label": ("gold_label", 1)}
    both["only"] = (("language", 0), language)
    tables = {
        "train": _Table(
            f"multinli/multinli.train.{language}.tsv",
            text_a=("premise", 0),
            text_b=("hypo", 1),
            label=("label", 2),
            size=392702,
        ),
        "dev": _Table("xnli.dev.tsv", **both, size=2490),
        "test": _Table("xnli.test.tsv", **both, size=5010),
    }
    return PublishedTask(
        name, _NLI_LABELS, tables, renamed_labels={"contradictory": "contradiction"}
    )


def _glue() -> Iterator[PublishedTask]:
    one = {"text_a": ("sentence", 1), "index": _INDEX}
    cola = {"text_a": ("", 3), "header": False}
    tables = _usual((8551, 1043, 1063), cola, ("", 1), one)
    yield PublishedTask("cola", _TWO, tables, metrics=("matthews",))

    tables = _usual((67349, 872, 1821), {"text_a": ("sentence", 0)}, ("label", 1), one)
    yield PublishedTask("sst-2", _TWO, tables)

    mrpc = {"text_a": ("#1 String", 3), "text_b": ("#2 String", 4)}
    tables = _usual((3668, 408, 1725), mrpc, ("Quality", 0), {**mrpc, "index": _INDEX})
    yield PublishedTask("mrpc", _TWO, tables, metrics=("f1", "accuracy"))

    stsb = {**_PAIR, "text_a": ("sentence1", 7), "text_b": ("sentence2", 8)}
    tables = _usual((5749, 1500, 1379), stsb, ("score", 9))
    yield PublishedTask(
        "sts-b", [], tables, metrics=("spearman", "pearson"), kind=SentenceKind.REGRESSION
    )

    qqp = {"text_a": ("question1", 1), "text_b": ("question2", 2), "index": ("id", 0)}
    labelled = {**qqp, "text_a": ("question1", 3), "text_b": ("question2", 4), "skip_short": True}
    # How many rows of train are whole depends on what counts as the end of a line.
    tables = _usual((None, 40430, 390965), labelled, ("is_duplicate", 5), qqp)
    yield PublishedTask("qqp", _TWO, tables, metrics=("f1", "accuracy"))

    matched = _Table("dev_matched.tsv", **_MNLI_LABELLED, size=9815, name="dev_matched")
    tables = {
        "train": _Table("train.tsv", **_MNLI_LABELLED, size=392702),
        "dev": matched,
        "dev_mismatched": _Table("dev_mismatched.tsv", **_MNLI_LABELLED, size=9832),
        "test": _Table("test_matched.tsv", **_MNLI, size=9796),
        "test_mismatched": _Table("test_mismatched.tsv", **_MNLI, size=9847),
        "diagnostic": _DIAGNOSTIC,
    }
    yield PublishedTask("mnli", _NLI_LABELS, tables)
    tables = {"dev": _AX_FULL, "test": _DIAGNOSTIC}
    yield PublishedTask("diagnostic", _NLI_LABELS, tables, metrics=("matthews",))

    qnli = {"text_a": ("question", 1), "text_b": ("sentence", 2), "index": _INDEX}
    tables = _usual((104743, 5463, 5463), qnli, ("label", 3))
    yield PublishedTask("qnli", _ENTAILMENT, tables)
    yield PublishedTask("rte", _ENTAILMENT, _usual((2490, 277, 3000), _PAIR, ("label", 3)))
    yield PublishedTask("wnli", _TWO, _usual((635, 71, 146), _PAIR, ("label", 3)))


_TASKS = {task.name: task for task in _glue()}
_TASKS["xnli"] = _xnli("xnli", "zh")
_TASKS |= {f"xnli-{language}": _xnli(f"xnli-{language}", language) for language in XNLI_LANGUAGES}
