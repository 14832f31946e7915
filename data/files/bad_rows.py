"""Rows of a file that can't be used: told together in one message, or left out.

    bad_rows = BadRows(skip=False)  # one for a run
    rows = bad_rows.of("train.tsv")
    for fields in table:
        example = rows.attempt(make_example, fields)  # None if that raises a DataError
    rows.finish(len(examples))  # the one error of the file, or a warning about what is left out

What is wrong with a file as a whole (its header, its encoding, an end of a quotation that is
missing) isn't the matter of a row: it is raised where it is met, and never left out.
"""

import re
from collections.abc import Callable
from typing import Any

from absl import logging

from data.errors import DataError

MOST_BAD_ROWS_TOLD = 20
"""Rows that a message names."""

_REASON = 160  # characters of what is wrong with a row, but for the first

RowAttempt = Callable[..., Any]


def first_bad_row_raises(function: Callable, *arguments):
    """In place of `FileRows.attempt` where the first bad row ends everything."""
    return function(*arguments)


class BadRows:
    """What becomes of the bad rows of a run's files.

    Args:
        skip: Whether they are left out.

    Attributes:
        skipped: How many were, by file; a file without any isn't among them.
    """

    def __init__(self, skip: bool = False):
        self.skip = skip
        self.skipped: dict[str, int] = {}

    def of(self, path: str, called: str = "rows") -> "FileRows":
        """For one reading of a file, whose rows may be called otherwise in messages."""
        return FileRows(self, path, called)


class FileRows:
    """One reading of a file, made by `BadRows.of`.

    Attributes:
        bad: Bad rows so far.
    """

    def __init__(self, all_files: BadRows, path: str, called: str):
        self.bad = 0
        self._all = all_files
        self._path = path
        self._called = called
        self._untold = 0
        self._alike = True  # those that aren't told have the first one's reason
        self._reasons: dict[str, list[str]] = {}

    def attempt(self, function: Callable, *arguments, size: int = 1):
        """The function's result, or None if it raises a DataError; `size` rows are bad then."""
        try:
            return function(*arguments)
        except DataError as error:
            if self.bad < MOST_BAD_ROWS_TOLD:
                # "file:line: …", of Parquet "file: row 3: …", of SQuAD "file: data[0]…: …".
                place = re.match(re.escape(self._path) + r"(:\d+|: [^:]*)(?=: )", str(error))
                place = place[0] if place else self._path
                reason = str(error).removeprefix(f"{place}: ")
                self._reasons.setdefault(reason, []).append(place)
            else:
                self._untold += size
                self._alike &= str(error).endswith(next(iter(self._reasons)))
            self.bad += size
            return None

    def finish(self, good: int) -> None:
        """Call it when the file is read, with the number of its good rows.

        Raises:
            DataError: There are bad ones, and they aren't to be left out, or are more than half.
        """
        if not self.bad:
            return
        share = f"{self.bad} of {self.bad + good} {self._called} of {self._path}"
        if not good and self.bad > 1 and len(self._reasons) == 1 and self._alike:
            (reason, places), *_ = self._reasons.items()
            raise DataError(
                f"{places[0]}: {reason} So it is with all {self.bad} {self._called} of"
                f" {self._path}: check that it is the right file, and what the flags say of it."
            )
        if self.bad > good:
            raise DataError(
                f"{self._told()} That makes {share} which can't be used: more than are left out"
                " with --skip_bad_rows, which takes half at most. Check that it is the right file,"
                " and what the flags say of its form."
            )
        if not self._all.skip:
            raise DataError(
                f"{self._told()} That makes {share} which can't be used; with --skip_bad_rows they"
                " are left out."
            )
        self._all.skipped[self._path] = self.bad
        logging.warning("Left out %s, which can't be used: %s", share, self._told())

    def _told(self) -> str:
        first, *others = self._reasons.items()
        reason, places = first
        text = f"{places[0]}: {reason}"
        if places[1:]:
            text += f" The same at {', '.join(places[1:])}."
        for reason, places in others:
            shown = reason if len(reason) <= _REASON else f"{reason[:_REASON]}…"
            text += f" {', '.join(places)}: {shown}"
        return f"{text} And {self._untold} more." if self._untold else text
