"""What a model is asked, read from files or standard input while it answers.

for window in PredictionInputs("reviews.tsv", specs).windows(1024):
    for request in window: …  # request.values

What the lines may be says `data.prediction.formats`.
"""

import base64
import dataclasses
import os
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from data.errors import DataError, did_you_mean, error_list, error_text
from data.files.encodings import UTF8
from data.files.lines import open_lines
from data.files.tables import parse_delimiter
from data.files.text_files import expand
from data.prediction.formats import FORMATS, Specs, prediction_records

WINDOW_CHARACTERS = 2**23
"""So that memory doesn't depend on how long the lines are."""

_KINDS = {"b": "b", "i": "iu", "u": "iu"}
"""NumPy's kinds of numbers that a kind takes; the others take all numbers."""

Value = bytes | list[bytes] | np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class PredictionInput:
    """One line.

    Attributes:
        source: "file:line", for messages.
        values: The model's inputs by name; empty if the line is bad.
        passed: What else the line holds, by name.
        error: What is wrong with the line, or None.
        share: How much of all input has been read so far; None if nobody knows.
    """

    source: str
    values: Mapping[str, Value]
    passed: Mapping[str, object]
    error: DataError | None = None
    share: float | None = None

    @property
    def size(self) -> int:
        """How long the inputs are: bytes of texts, and numbers."""
        return sum(map(_size, self.values.values()))


class PredictionInputs:
    """The requests of some files, or of standard input, in their order.

    Args:
        files: A comma-separated list of globs; "-" is standard input.
        specs: The model's inputs, see `data.prediction.formats`.
        format: One of FORMATS, of every file.
        skip_bad_lines: Whether a bad line becomes a `PredictionInput` with an error; else it
            is raised.
        delimiter: Between fields, see `tables.parse_delimiter`.
        encoding: Of every file.
        columns: Of the training files, see `formats.prediction_records`.

    Attributes:
        live: Whether somebody may wait for the answer to each line, see `LineStream`.
        paths: The files.

    Raises:
        DataError: A pattern matches no file, or a file can't be read.
    """

    def __init__(
        self,
        files: str,
        specs: Specs,
        format: str = "auto",
        skip_bad_lines: bool = False,
        delimiter: str | None = None,
        encoding: str = UTF8,
        columns: Mapping[str, str] | None = None,
    ):
        if format not in FORMATS:
            raise DataError(f"Unknown format {format!r}; it may be one of {error_list(FORMATS)}.")
        self.specs = specs
        self.format = format
        self.skip_bad_lines = skip_bad_lines
        self.columns = columns or {}
        self.delimiter = parse_delimiter(delimiter)
        # A named pipe is no file to expand(), and a name may hold commas and brackets.
        single = files == "-" or (os.path.exists(files) and not os.path.isdir(files))
        self.paths = [files] if single else expand(files)
        self._streams = [open_lines(path, encoding) for path in self.paths]
        self._before = 0
        self.live = any(stream.live for stream in self._streams)
        sizes = [stream.size for stream in self._streams]
        self._size = None if None in sizes else sum(sizes)

    def __iter__(self) -> Iterator[PredictionInput]:
        """Can be used once.

        Raises:
            DataError: While iterating: a file is empty or damaged or its header doesn't fit the
                model; and what bad lines are, unless they are skipped.
        """
        for stream in self._streams:
            empty = True
            how = (self.format, self.delimiter, self.columns)
            for source, record in prediction_records(stream, self.specs, *how):
                empty = False
                share = (self._before + stream.done) / self._size if self._size else None
                yield self._example(source, record, share)
            self._before += stream.done
            if empty:
                raise DataError(
                    f"{stream.name} is empty: there is no line to answer. Check that it is the "
                    f"right one and that writing it came to its end."
                )

    def windows(self, most: int) -> Iterator[list[PredictionInput]]:
        """The requests in lists, read ahead by another thread while the caller works.

        From files all lists but the last have `most` requests, or as many as have
        `WINDOW_CHARACTERS`, so that the same file always gives the same lists. From a live source
        a list holds what is there, at most as much, so that nobody waits for an answer.
        """
        yield from _ReadAhead(self, most, prompt=self.live)

    def _example(
        self, source: str, record: dict[str, object] | DataError, share: float | None
    ) -> PredictionInput:
        passed: dict[str, object] = {}
        try:
            if isinstance(record, DataError):
                raise record
            passed = {name: value for name, value in record.items() if name not in self.specs}
            values = _values(source, record, self.specs, self.columns)
            return PredictionInput(source, values, passed, None, share)
        except DataError as error:
            if not self.skip_bad_lines:
                raise
            return PredictionInput(source, {}, passed, error, share)


def number_of_prediction_inputs(done: int, last: PredictionInput) -> int | None:
    """How many requests there may be in all, once so many up to `last` have been read."""
    # Always one more, since nobody knows of the last one that it is the last.
    return max(round(done / last.share), done + 1) if last.share else None


def _values(
    source: str, record: dict[str, object], specs: Specs, columns: Mapping[str, str]
) -> dict[str, Value]:
    values = {}
    trained = f", or the columns it was trained on, {error_list(columns.values())}"
    for name, spec in specs.items():
        value = record.get(name)
        if value is None and name in record:
            raise DataError(
                f"{source}: the field {columns.get(name, name)!r} holds null. Give its value, or"
                " leave out the line."
            )
        if value is None:
            raise DataError(
                f"{source}: the field {name!r} is missing"
                f"{did_you_mean(columns.get(name, name), record)}. The model takes"
                f" {error_list(specs)}{trained if columns else ''}; this line has"
                f" {error_list(map(error_text, record)) or 'none'}."
            )
        if spec.dtype != tf.string:
            values[name] = _numbers(source, name, value, spec)
        elif spec.shape.rank == 1:
            values[name] = _bytes(source, name, value)
        elif isinstance(value, list) and spec.shape[1] in (None, len(value)):
            values[name] = [_bytes(source, name, item) for item in value]
        else:
            number = "" if spec.shape[1] is None else f"{spec.shape[1]} "
            raise _wrong(source, name, value, f"a list of {number}texts")
    return values


def _bytes(source: str, name: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    # As TF Serving's REST interface takes bytes that are no text.
    if isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError:
            raise _wrong(source, name, value, "base64 behind b64") from None
    raise _wrong(source, name, value, "a text")


def _numbers(source: str, name: str, value: object, spec: tf.TensorSpec) -> np.ndarray:
    shape = spec.shape[1:]
    dtype = spec.dtype.as_numpy_dtype
    expected = f"numbers ({spec.dtype.name}) of shape {str(shape.as_list()).replace('None', 'any')}"
    if not shape.rank:
        expected = f"one number ({spec.dtype.name})"
    wrong = _wrong(source, name, value, expected)
    try:
        numbers = np.asarray(value)
    except ValueError:  # lists of several lengths
        raise wrong from None
    if not numbers.size:
        # NumPy knows neither the type nor all dimensions of an empty list.
        numbers = numbers.astype(dtype).reshape([0] * max(numbers.ndim, shape.rank))
    if numbers.dtype.kind not in _KINDS.get(np.dtype(dtype).kind, "iuf"):
        raise wrong
    limits = spec.dtype if spec.dtype.is_integer and numbers.size else None
    if limits and not limits.min <= numbers.min() <= numbers.max() <= limits.max:
        raise wrong
    if not shape.is_compatible_with(numbers.shape):
        raise wrong
    return numbers.astype(dtype)


def _wrong(source: str, name: str, value: object, expected: str) -> DataError:
    return DataError(
        f"{source}: the field {name!r} holds {error_text(value)}; the model takes {expected} there."
    )


def _size(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 1


class _ReadAhead:
    """See `PredictionInputs.windows`."""

    def __init__(self, requests, most: int, prompt: bool):
        self._most = most
        self._prompt = prompt
        self._items: list[PredictionInput] = []
        self._size = 0
        self._ended = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        # A daemon, since it may wait for standard input when the process has to end.
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def __iter__(self) -> Iterator[list[PredictionInput]]:
        while True:
            with self._changed:
                self._changed.wait_for(self._ready)
                window, self._items, self._size = self._items, [], 0
                if not window:
                    break
                self._changed.notify_all()
            yield window
        if self._error is not None:
            raise self._error

    def _ready(self) -> bool:
        return self._ended or self._full() or bool(self._prompt and self._items)

    def _full(self) -> bool:
        return len(self._items) >= self._most or self._size >= WINDOW_CHARACTERS

    def _read(self, requests) -> None:
        try:
            for request in requests:
                size = request.size + sum(map(_size, request.passed.values()))
                with self._changed:
                    self._changed.wait_for(lambda: not self._full())
                    self._items.append(request)
                    self._size += size
                    if self._ready():
                        self._changed.notify_all()
        except Exception as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()
