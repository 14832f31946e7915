"""A model's answers as JSON lines or TSV, in the order of what was asked.

with PredictionOutputs("answers.jsonl", "jsonl", specs) as outputs:
    outputs.write(requests, answers)

JSON lines: what the line of input held besides the model's inputs, then the outputs by name, as
the model gives them. Numbers read back as the same float32. Of a line that couldn't be answered
{"error": "file:line: …"} is in place of the outputs. What was passed through is never replaced: it
is called input_NAME where an output has its name, as a gold label beside the label.

TSV: the same below a header, single values only, with escapes as `text_files.tsv_line` has them;
what a spreadsheet would run gets an apostrophe before it. The columns passed through are those of
the first line that isn't bad.
"""

import contextlib
import gzip
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError, error_list
from data.files import atomic
from data.files.inputs_survive import check_inputs_survive
from data.files.text_files import tsv_line
from data.prediction.inputs import PredictionInput

FORMATS = ("jsonl", "tsv")
ERROR = "error"
"""Where the message about a bad line stands."""
_CHARACTERS_AT_ONCE = 2**20

Answer = Mapping[str, np.ndarray | np.generic | bytes] | Exception


class PredictionOutputs:
    """Where the answers go: a file, or standard output.

    A file is written under a temporary name, compressed if it ends in .gz, and renamed in the end.

    Args:
        path: Of the file; "-" is standard output.
        format: One of FORMATS.
        specs: The model's outputs, each with a batch dimension.
        skip_bad_lines: Whether lines that have no answer are written as errors; else they're
            raised.
        inputs: Files that mustn't be overwritten.
        raw_cells: Whether TSV has no apostrophes, see `text_files.tsv_line`.

    Attributes:
        done: Lines written.
        bad: How many of them are errors.

    Raises:
        DataError: All outputs are lists, which TSV can't hold, or the path is one of `inputs`. On
            entering and leaving: the file can't be written.
    """

    def __init__(
        self,
        path: str,
        format: str,
        specs: Mapping[str, tf.TensorSpec],
        skip_bad_lines: bool = False,
        inputs: Iterable[str] = (),
        raw_cells: bool = False,
    ):
        if path != "-":
            check_inputs_survive({"input_file": inputs}, {"output_file": [path]})
        self.path = path
        self.done = self.bad = 0
        self._skip = skip_bad_lines
        self._names = list(specs) if format == "jsonl" else _single_values(specs)
        taken = [*self._names, ERROR] if skip_bad_lines else self._names
        self._tsv = None if format == "jsonl" else _Tsv(taken, raw_cells)
        self._taken = frozenset(taken)
        self._said: set[str] = set()
        self._said_bytes = False
        self._files = contextlib.ExitStack()

    def __enter__(self) -> "PredictionOutputs":
        with self._files:
            if self.path == "-":
                self._file = sys.stdout.buffer
            else:
                atomic.make_folder(self.path)
                self._file = self._files.enter_context(atomic.writing(self.path))
            if self.path.endswith(".gz"):
                packed = gzip.GzipFile("", "wb", fileobj=self._file, mtime=0)
                self._file = self._files.enter_context(packed)
            self._files = self._files.pop_all()
        return self

    def write(self, requests: Sequence[PredictionInput], answers: Iterable[Answer]) -> None:
        """Appends a line for each request, in their order.

        Args:
            requests: Some.
            answers: One for each request that isn't bad: arrays (and single values) by name, or
                why the model refuses the line.

        Raises:
            DataError: A line has no answer, if such aren't skipped; those before it are written.
                Or the file can't be written.
            BrokenPipeError: Nobody reads standard output any more. What is written there from then
                on goes nowhere, and nothing more goes wrong at exit.
        """
        answers = iter(answers)
        lines: list[str] = []
        characters = 0
        try:
            for request in requests:
                characters += sum(map(len, lines[-1:]))
                if characters > _CHARACTERS_AT_ONCE:
                    self._send(lines)
                    lines, characters = [], 0
                passed = self._passed(request)
                error = request.error
                if error is None:
                    answer = next(answers)
                    if isinstance(answer, Exception):
                        error = DataError(f"{request.source}: the model refuses it: {answer}")
                if error is None:
                    outputs = {name: self._plain(answer[name]) for name in self._names}
                    lines += self._lines(passed, outputs, bad=False)
                elif self._skip:
                    lines += self._lines(passed, {ERROR: " ".join(str(error).split())}, bad=True)
                    self.bad += 1
                else:
                    raise error
                self.done += 1
        finally:
            self._send(lines)

    def __exit__(self, kind, *error) -> None:
        with self._files:
            if kind is not None:
                self._files.pop_all().__exit__(kind, *error)
            elif self._tsv:
                self._send(self._tsv.rest())

    def _lines(self, passed: dict, outputs: dict, bad: bool) -> list[str]:
        if self._tsv:
            return self._tsv.lines(passed, outputs, bad)
        return [json.dumps(passed | outputs, ensure_ascii=False)]

    def _passed(self, request: PredictionInput) -> dict[str, object]:
        passed, renamed = {}, {}
        given = self._taken | request.passed.keys()
        for name, value in request.passed.items():
            other = name
            if name in self._taken:
                while other in given or other in passed:
                    other = f"input_{other}"
            passed[other] = value
            if other != name:
                renamed[name] = other
        for name in renamed.keys() - self._said:
            self._said.add(name)
            logging.warning(
                f"{request.source}: the field {name!r} is called {renamed[name]!r} in the "
                "output, where its name is taken."
            )
        return passed

    def _plain(self, value: np.ndarray | np.generic | bytes):
        """As JSON knows it."""
        if isinstance(value, bytes):
            return self._texts(value)
        value = np.asarray(value)
        if value.dtype == object:
            return self._texts(value.tolist())
        if value.dtype.kind in "biu" or value.dtype == np.float64:
            return value.tolist()
        # By way of the digits, since a float32 has no short form as a float64.
        return value.astype(np.float32).astype(str).astype(np.float64).tolist()

    def _texts(self, value):
        if isinstance(value, list):
            return [self._texts(item) for item in value]
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            if not self._said_bytes:
                self._said_bytes = True
                logging.warning("An output isn't UTF-8; bytes that aren't are written as U+FFFD.")
            return value.decode("utf-8", "replace")

    def _send(self, lines: Iterable[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        if not data:
            return
        try:
            with atomic.name_failing_file("Standard output" if self.path == "-" else self.path):
                self._file.write(data)
                if self.path == "-":
                    self._file.flush()
        except BrokenPipeError:
            # Python flushes standard output at exit once more.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            raise


def _single_values(specs: Mapping[str, tf.TensorSpec]) -> list[str]:
    names = [name for name, spec in specs.items() if spec.shape.rank == 1]
    others = [name for name in specs if name not in names]
    if not names:
        raise DataError(
            f"TSV holds single values only, and all of the model's outputs are lists: "
            f"{error_list(others)}. Write JSON lines (--output_format=jsonl)."
        )
    if others:
        logging.warning("Left out of the TSV, since they are lists: %s", error_list(others))
    return names


class _Tsv:
    """Lines of TSV. What is bad waits until a good line has told the header.

    Args:
        names: Of columns besides those passed through.
        raw: See `text_files.tsv_line`.
    """

    def __init__(self, names: list[str], raw: bool):
        self._names = names
        self._raw = raw
        self._header: list[str] = []
        self._waiting: list[dict] = []

    def lines(self, passed: dict, outputs: dict, bad: bool) -> list[str]:
        if bad and not self._header:
            self._waiting.append(passed | outputs)
            return []
        return [*self._begin(passed), self._row(passed | outputs)]

    def rest(self) -> list[str]:
        return self._begin({}) if self._waiting else []

    def _begin(self, passed: dict) -> list[str]:
        if self._header:
            return []
        self._header = [*passed, *self._names]
        rows = [tsv_line(self._header, self._raw), *map(self._row, self._waiting)]
        self._waiting = []
        return rows

    def _row(self, fields: dict) -> str:
        values = (fields.get(name, "") for name in self._header)
        cells = (v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values)
        return tsv_line(cells, self._raw)
