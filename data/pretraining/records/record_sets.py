"""Whether record files are all files of their sets, whole, and made with one vocabulary.

    sets = examine_sets(files, vocabulary_checksum(tokens))
    sets.check()

Told by the files' names (-00000-of-00003) and by the marks in their first records; nothing else of
them is read. Of files without marks, such as the original release's, little can be known.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining.records.record_files import count_records
from data.pretraining.records.shard_marks import ShardMark, read_mark

_NAME = re.compile(r"^(.*)-(\d+)-of-(\d+)([^/]*)$")
_SHOWN = 3
_READERS = 16


@dataclass(slots=True)
class RecordSets:
    """What `examine_sets` found.

    Attributes:
        marks: Path → the file's mark, None where it has none.
        problems: What is wrong, a paragraph each.
        notes: What could not be checked, or is left out, a sentence each.
    """

    marks: dict[str, ShardMark | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def vocabulary(self) -> str | None:
        """Checksum of the tokens that the files were made with, as far as one says it."""
        return next((mark.vocabulary for mark in self.marks.values() if mark), None)

    def check(self) -> None:
        """Raises DataError if there is a problem."""
        if self.problems:
            raise DataError(self.problems[0])

    def log_notes(self) -> None:
        """To the log, where they stand for what silence would have hidden."""
        for note in self.notes:
            logging.info("%s", note)

    def summary(self) -> dict[str, Any]:
        """For JSON: the number of marked files and records, their vocabulary, problems, notes."""
        marks = [mark for mark in self.marks.values() if mark]
        return {
            "marked_files": len(marks),
            "marked_records": sum(mark.records for mark in marks),
            "vocabulary_checksum": self.vocabulary,
            "problems": self.problems,
            "notes": self.notes,
        }


def examine_sets(
    files: Sequence[str],
    vocabulary: str | None = None,
    described: Collection[str] = (),
    vocab_file: str | None = None,
) -> RecordSets:
    """Looks at names and marks of record files.

    Args:
        files: Paths.
        vocabulary: Checksum of the tokens that they are to be read with, None if it isn't known.
        described: Those that a manifest tells of, which need no mark.
        vocab_file: Where the tokens are from, for messages.
    """
    sets, empty = RecordSets(), []

    def read(path: str) -> tuple[ShardMark | None, bool] | str:
        try:
            return read_mark(path)
        except DataError as error:
            return str(error)

    with ThreadPoolExecutor(_READERS) as pool:
        for path, found in zip(files, pool.map(read, files), strict=True):
            if isinstance(found, str):
                sets.problems.append(found)
                continue
            mark, is_whole = found
            if is_whole or mark:
                sets.marks[path] = mark
            else:
                empty.append(path)
            if mark and not is_whole:
                _examine_length(path, mark, sets)
    sets.problems += _wrong_vocabularies(sets.marks, vocabulary, vocab_file)
    sets.problems += _doubles(sets.marks)
    for family, numbers in _families(files).items():
        empty = _examine_family(family, numbers, empty, sets)
    sets.notes += _unread(sets.marks)
    if empty:
        sets.notes.append(f"Not checked: whether these were made empty, {_named(empty)}.")
    unknown = [path for path, mark in sets.marks.items() if not mark and path not in described]
    if unknown:
        sets.notes.append(
            f"Not checked: whether {_named(unknown)} lack records, and which vocabulary they were "
            f"made with. Files of data.create_pretraining_data tell it, those of other programs "
            f"don't."
        )
    return sets


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


def _examine_length(path: str, mark: ShardMark, sets: RecordSets) -> None:
    """A file of another length than its mark tells."""
    try:
        records = count_records(path)
    except DataError as error:
        sets.problems.append(str(error))
        return
    if records == mark.records:
        sets.notes.append(f"{path} has all its records, but they were changed since it was made.")
        return
    sets.problems.append(
        f"{path} has {records:,} records, but by its first one it was made with {mark.records:,}: "
        f"it was cut, or joined with others. Copy or make it again, or leave it out."
    )


def _wrong_vocabularies(
    marks: Mapping[str, ShardMark | None], vocabulary: str | None, vocab_file: str | None
) -> Iterator[str]:
    first = None
    for path, mark in marks.items():
        if mark is None:
            continue
        if vocabulary and mark.vocabulary != vocabulary:
            yield (
                f"{path} was made with another vocabulary than "
                f"{vocab_file or 'the one given'}: the checksum of its tokens, which the first "
                f"record tells, begins with {mark.vocabulary[:8]}, that of "
                f"the vocabulary given with {vocabulary[:8]}. Give the vocabulary that the records "
                f"were made with, or make them again."
            )
        first = first or path
        if not vocabulary and mark.vocabulary != marks[first].vocabulary:
            yield (
                f"{first} and {path} were made with different vocabularies, by what their first "
                f"records tell, so one id means different pieces in them. Make them again with one."
            )


def _doubles(marks: Mapping[str, ShardMark | None]) -> Iterator[str]:
    place: dict[tuple[str, int], str] = {}
    for path, mark in marks.items():
        if mark and place.setdefault((mark.set, mark.number), path) != path:
            yield (
                f"{path} holds the same records as {place[mark.set, mark.number]}: both are file "
                f"{mark.number} of {mark.count} of one set, by what their first records tell. "
                f"Leave one out, or copy it again if it should be another one."
            )


Family = tuple[str, int, str]  # what stands before the number, how many, what stands behind


def _families(files: Sequence[str]) -> dict[Family, dict[int, str]]:
    """The files that are numbered by name."""
    families: dict[Family, dict[int, str]] = {}
    for path in files:
        if name := _NAME.match(path):
            families.setdefault(_family(name), {})[int(name[2])] = path
    return families


def _family(name: re.Match) -> Family:
    return name[1], int(name[3]), name[4]


def _examine_family(
    family: Family, numbers: Mapping[int, str], empty: Sequence[str], sets: RecordSets
) -> list[str]:
    """One whose files are named -00000-of-00003 and so on; returns what of `empty` is open."""
    before, count, behind = family
    example = next(iter(numbers.values()))
    total = _NAME.match(example)[3]
    pattern = f"{before}-*-of-{total}{behind}"
    folder = os.path.dirname(before)
    # Not by a glob: names may hold its signs.
    names = (os.path.join(folder, name) for name in tf.io.gfile.listdir(folder or "."))
    present = {int(name[2]) for name in map(_NAME.match, names) if name and _family(name) == family}
    if len(present) < count:
        # Some programs count from 1.
        missing = sorted(set(range(count)) - present)[-(count - len(present)) :]
        paths = [f"{before}-{number:0{len(total)}d}-of-{total}{behind}" for number in missing]
        sets.problems.append(
            f"{_named(paths)} {'is' if len(paths) == 1 else 'are'}n't there, but "
            f"{example} says by its name that there are {count} files. Copy or make the missing "
            f"again; to use the others alone, give them names without '-of-{total}'."
        )
    elif len(numbers) < count:
        sets.notes.append(f"Of the {count} files {pattern}, {len(numbers)} are read.")
    marks = [sets.marks[path] for path in numbers.values() if path in sets.marks]
    of_sets = {mark and mark.set for mark in marks}
    if len(of_sets) > 1:
        sets.problems.append(
            f"The files {pattern} are of different sets, by what their first records tell: some "
            f"were made by another run than the others. Make all of them again."
        )
    here = [path for path in numbers.values() if path in empty]
    mark = marks[0] if marks and len(of_sets) == 1 else None
    if mark is None or mark.count != count:
        return list(empty)
    if len(here) > mark.empty:
        sets.problems.append(
            f"{_named(here)} {'has' if len(here) == 1 else 'have'} no records, but by the first "
            f"records of the others {mark.empty or 'none'} of the {count} files were made empty. "
            f"Copy or make them again."
        )
    return [path for path in empty if path not in here]


def _unread(marks: Mapping[str, ShardMark | None]) -> Iterator[str]:
    """Sets whose files aren't numbered by name, of which some are not among those read."""
    read: dict[str, list[str]] = {}
    for path, mark in marks.items():
        if mark and not _NAME.match(path):
            read.setdefault(mark.set, []).append(path)
    for paths in read.values():
        count = marks[paths[0]].count
        if len(paths) < count:
            yield (
                f"{_named(paths)}: {len(paths)} of {count} files that were made together; "
                f"the others are not read."
            )
