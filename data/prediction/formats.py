"""Formats of what a model is asked: lines to records, each with the model's inputs by name.

for source, record in prediction_records(open_lines("reviews.tsv"), specs): …

A model's inputs are told by their names, types and shapes, as a signature of a SavedModel has
them. What comes of lines are texts, string [B]; lists of texts, string [B, N]; and, from JSON
lines, numbers of any shape [B, …].

    text    a line is the text of a model with one input. With several inputs they stand between
            tabs, those of `ORDER` first; a list, which has to be the last, takes all columns
            that are left.
    tsv     fields between tabs, quotation marks being text, below a header that names the inputs.
    csv     the same as of RFC 4180.
    jsonl   an object on every line.

Headers and objects may name the columns of the training files in place of the inputs. In a header
the columns of a list are NAME_0, NAME_1 … Other columns and names stay in the record.
A blank line is a text where a line is one; else it is skipped in JSON lines and at the end, and
elsewhere a row of one empty field.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import tensorflow as tf

from data.errors import DataError, did_you_mean, doubled, error_list, error_text
from data.files.lines import STANDARD_INPUT, LineStream, check_decoded
from data.files.tables import FORMAT_OF
from data.files.text_files import (
    csv_rows,
    delimiter_hint,
    delimiter_name,
    file_extension,
    json_object,
    named_file_row,
    without_last_blanks,
)

FORMATS = ("auto", "text", "tsv", "csv", "jsonl")
ORDER = ("text", "text_a", "text_b", "question", "context", "choices", "words")
"""Inputs that are known here, in the order of their columns."""

Specs = Mapping[str, tf.TensorSpec]
Record = tuple[str, dict[str, object] | DataError]


def prediction_records(
    stream: LineStream,
    specs: Specs,
    format: str = "auto",
    delimiter: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """The lines as (source, record), the source being "file:line".

    Args:
        stream: Of lines.
        specs: The model's inputs, each with a batch dimension.
        format: One of FORMATS; "auto" goes by the ending of a file's name (text, if it has none
            that is known) and by the first character of standard input and of pipes: "{" for JSON
            lines, else text.
        delimiter: Between fields; None: a tab, in CSV a comma.
        columns: Columns of the files that the model was trained on, by the inputs' names. What
            has all of them under headers or in objects is read as those files were.

    Yields:
        Records of strings, lists of strings for lists, and whatever JSON holds; or what is wrong
        with the line, to be raised or not. They may lack inputs, or have them of a wrong type.

    Raises:
        DataError: While iterating: the stream can't be read, its header doesn't fit the model, or
            the model's inputs can't come in that format.
    """
    format = _format_of(stream) if format == "auto" else format
    specs = {name: specs[name] for name in _in_order(specs)}
    columns = columns or {}
    _check_format(specs, format, stream.name)
    if format == "text":
        yield from _text(stream, specs, delimiter or "\t")
    elif format == "tsv":
        delimiter = delimiter or "\t"
        yield from _below_header(_separated(stream, delimiter), specs, delimiter, columns)
    elif format == "csv":
        delimiter = delimiter or ","
        yield from _below_header(_quoted(stream, delimiter), specs, delimiter, columns)
    else:

        def record(source: str, line: str) -> dict[str, object]:
            fields = json_object(source, line)
            inputs = _inputs_of(source, fields.keys(), specs, columns)
            return {inputs.get(name, name): value for name, value in fields.items()}

        for source, line in _lines(stream):
            if isinstance(line, DataError) or line.strip():
                yield source, _attempt(record, source, line)


def _inputs_of(
    source: str, names: Set[str], specs: Specs, columns: Mapping[str, str]
) -> dict[str, str]:
    """Inputs by the columns of the training files, where all of these are among the names; else {}.

    Raises:
        DataError: A further column has the name of an input, so that both could be meant.
    """
    inputs = {column: name for name, column in columns.items()}
    if not inputs or inputs.keys() - names:
        return {}
    further = specs.keys() & (names - inputs.keys())
    if further:
        raise DataError(
            f"{source}: there are {error_list(inputs)}, which the model was trained on, and "
            f"{error_list(sorted(further))}, as its inputs are called: nobody can tell which is "
            f"meant. Rename or remove one of them."
        )
    return inputs


def _in_order(names: Iterable[str]) -> list[str]:
    """A model's inputs in the order of their columns: those of ORDER, then by name."""
    return sorted(names, key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n))


def _check_format(specs: Specs, format: str, where: str) -> None:
    """Raises DataError if a model's inputs can't come in that format."""
    if format == "jsonl":
        return
    for name, spec in specs.items():
        if spec.dtype != tf.string:
            raise DataError(
                f"{where} is read as {format}, and the model's input {name!r} is of numbers "
                f"({spec.dtype.name}), which come from JSON lines only. Give those "
                f"(--input_format=jsonl), or name a signature of texts (--signature)."
            )
    lists = [name for name, spec in specs.items() if spec.shape.rank == 2]
    if format == "text" and lists and list(specs)[-1:] != lists:
        raise DataError(
            f"{where} is read as lines of text, and among the model's inputs {error_list(specs)} "
            f"those that are lists ({error_list(lists)}) have no place in a line. Give JSON lines."
        )


def _format_of(stream: LineStream) -> str:
    format = FORMAT_OF.get(file_extension(stream.name))
    if format == "parquet":
        raise DataError(f"{stream.name} is Parquet, which isn't read here; write JSON lines of it.")
    if format or not (stream.live or stream.name == STANDARD_INPUT):
        return format or "text"
    return "jsonl" if stream.first_character() == "{" else "text"


def _text(stream: LineStream, specs: Specs, delimiter: str) -> Iterator[Record]:
    names = list(specs)
    listed = specs[names[-1]].shape.rank == 2
    if len(names) == 1 and not listed:
        for source, line in _lines(stream):
            yield source, line if isinstance(line, DataError) else {names[0]: line}
        return

    def record(source: str, fields: list[str]) -> dict[str, object]:
        if len(fields) == len(names) or (listed and len(fields) > len(names)):
            last = len(names) - 1
            values = [*fields[:last], fields[last:] if listed else fields[last]]
            return dict(zip(names, values, strict=True))
        raise DataError(
            f"{source}: this line has {len(fields)} columns between "
            f"{delimiter_name(delimiter)}s; expected {len(names)}"
            f"{' or more' * listed}: {error_list(names)}. It begins {error_text(fields[0])}. "
            f"Correct it, or give TSV with a header or JSON lines (--input_format)."
        )

    for source, fields in _separated(stream, delimiter):
        yield source, _attempt(record, source, fields)


def _attempt(function: Callable, source: str, value):
    """The function's result, or what is wrong; nothing is tried with what is wrong already."""
    if isinstance(value, DataError):
        return value
    try:
        return function(source, value)
    except DataError as error:
        return error


def _lines(stream: LineStream) -> Iterator[tuple[str, str | DataError]]:
    decoded = functools.partial(check_decoded, encoding=stream.encoding)
    for number, line in enumerate(stream.lines(), 1):
        source = f"{stream.name}:{number}"
        yield source, _attempt(decoded, source, line)


def _separated(stream: LineStream, delimiter: str) -> Iterator[tuple[str, list[str] | DataError]]:
    def fields(_: str, line: str) -> list[str]:
        return line.split(delimiter) if line else []

    rows = ((source, _attempt(fields, source, line)) for source, line in _lines(stream))
    return without_last_blanks(rows)


def _quoted(stream: LineStream, delimiter: str) -> Iterator[tuple[str, list[str] | DataError]]:
    def checked(source: str, row: list[str]) -> list[str]:
        check_decoded(source, "".join(row), stream.encoding, is_line=False)
        return row

    rows = csv_rows(stream.name, stream.lines(keep_ends=True), delimiter)
    return without_last_blanks((source, _attempt(checked, source, row)) for source, row in rows)


def _below_header(
    rows: Iterator[tuple], specs: Specs, separator: str, columns: Mapping[str, str]
) -> Iterator[Record]:
    source, names = next(rows, ("", None))
    if names is None:
        return
    if isinstance(names, DataError):
        raise names
    header, inputs = names, _inputs_of(source, {*names}, specs, columns)
    names = [inputs.get(name, name) for name in names]
    lists = {n: _columns_of(n, names) for n, spec in specs.items() if spec.shape.rank == 2}
    lacking = [name for name in specs if not lists.get(name, name in names)]
    twice = doubled(names)
    if twice or lacking:
        expected = [f"{name}_0, {name}_1 …" if name in lists else name for name in specs]
        wrong = f"{error_list(twice)} twice" if twice else f"no {error_list(lacking)}"
        trained = f", or the columns it was trained on, {error_list(columns.values())}"
        near = did_you_mean(columns.get(lacking[0], lacking[0]), names) if lacking else ""
        raise DataError(
            f"{source}: expected a header that names the model's inputs, {error_list(expected)}"
            f"{trained if columns else ''}; it has {wrong}{near}. The header is "
            f"{error_list(map(error_text, header))}. Correct it; a file without a header can be "
            f"read as lines of text (--input_format=text).{delimiter_hint(names)}"
        )

    def record(source: str, values: list[str]) -> dict[str, object]:
        fields: dict[str, object] = named_file_row(source, names, values, separator)
        for name, columns in lists.items():
            fields[name] = [fields.pop(column) for column in columns]
        return fields

    for column in names:
        name, _, number = column.rpartition("_")
        if name in lists and number.isdecimal() and column not in lists[name]:
            raise DataError(
                f"{source}: the header has {column!r} and no {name}_{len(lists[name])} before it. "
                f"The columns of a list are numbered from 0 on, without a gap: rename them."
            )
    for source, values in rows:
        yield source, _attempt(record, source, values)


def _columns_of(name: str, header: Sequence[str]) -> list[str]:
    """NAME_0, NAME_1 … as far as the header has them without a gap."""
    numbered = (f"{name}_{number}" for number in itertools.count())
    return list(itertools.takewhile({*header}.__contains__, numbered))
