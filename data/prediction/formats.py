"""Formats of what a model is asked: lines to records, each with the model's inputs by name.

for source, record in prediction_records(open_lines("reviews.tsv"), specs): …

A model's inputs are told by their names, types and shapes, as a signature of a SavedModel has
them. What comes of lines are texts, string [B]; lists of texts, string [B, N]; and, from JSON
lines, numbers of any shape [B, …].

    text    a line is the text of a model with one input. With several inputs they stand between
            tabs, in the order of `in_order`; a list, which has to be the last, takes all columns
            that are left.
    tsv     fields between tabs, quotation marks being text, below a header that names the inputs.
    csv     the same as of RFC 4180.
    jsonl   an object on every line.

In a header the columns of a list are NAME_0, NAME_1 … Other columns and names stay in the record.
A blank line is a text where a line is one; else it is skipped in JSON lines and at the end, and
elsewhere a row of one empty field.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf

from data.errors import DataError, did_you_mean, error_list, error_text
from data.files.lines import STANDARD_INPUT, LineStream, check_decoded
from data.files.tables import FORMAT_OF, delimiter_hint
from data.files.text_files import (
    csv_rows,
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
) -> Iterator[Record]:
    """The lines as (source, record), the source being "file:line".

    Args:
        stream: Of lines.
        specs: The model's inputs, each with a batch dimension.
        format: One of FORMATS; "auto" goes by the ending of a file's name (text, if it has none
            that is known) and by the first character of standard input and of pipes: "{" for JSON
            lines, else text.
        delimiter: Between fields; None: a tab, in CSV a comma.

    Yields:
        Records of strings, lists of strings for lists, and whatever JSON holds; or what is wrong
        with the line, to be raised or not. They may lack inputs, or have them of a wrong type.

    Raises:
        DataError: While iterating: the stream can't be read, its header doesn't fit the model, or
            the model's inputs can't come in that format.
    """
    format = _format_of(stream) if format == "auto" else format
    specs = {name: specs[name] for name in _in_order(specs)}
    _check_format(specs, format, stream.name)
    if format == "text":
        yield from _text(stream, specs, delimiter or "\t")
    elif format == "tsv":
        delimiter = delimiter or "\t"
        yield from _below_header(_separated(stream, delimiter), specs, delimiter)
    elif format == "csv":
        delimiter = delimiter or ","
        yield from _below_header(_quoted(stream, delimiter), specs, delimiter)
    else:
        for source, line in _lines(stream):
            if isinstance(line, DataError) or line.strip():
                yield source, _attempt(json_object, source, line)


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
        return line.split(delimiter)

    rows = ((source, _attempt(fields, source, line)) for source, line in _lines(stream))
    return without_last_blanks(rows)


def _quoted(stream: LineStream, delimiter: str) -> Iterator[tuple[str, list[str] | DataError]]:
    def checked(source: str, row: list[str]) -> list[str]:
        check_decoded(source, "".join(row), stream.encoding, is_line=False)
        return row

    rows = csv_rows(stream.name, stream.lines(keep_ends=True), delimiter)
    return without_last_blanks((source, _attempt(checked, source, row)) for source, row in rows)


def _below_header(rows: Iterator[tuple], specs: Specs, separator: str) -> Iterator[Record]:
    source, names = next(rows, ("", None))
    if names is None:
        return
    if isinstance(names, DataError):
        raise names
    lists = {n: _columns_of(n, names) for n, spec in specs.items() if spec.shape.rank == 2}
    lacking = [name for name in specs if not lists.get(name, name in names)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or lacking:
        expected = [f"{name}_0, {name}_1 …" if name in lists else name for name in specs]
        wrong = f"{error_list(twice)} twice" if twice else f"no {error_list(lacking)}"
        raise DataError(
            f"{source}: expected a header that names the model's inputs, {error_list(expected)}; "
            f"it has {wrong}{'' if twice else did_you_mean(lacking[0], names)}. The header is "
            f"{error_list(map(error_text, names))}. Correct it; a file without a header can be "
            f"read as lines of text (--input_format=text).{delimiter_hint(names)}"
        )

    def record(source: str, values: list[str]) -> dict[str, object]:
        fields: dict[str, object] = named_file_row(source, names, values, separator)
        for name, columns in lists.items():
            fields[name] = [fields.pop(column) for column in columns]
        return fields

    for source, values in rows:
        yield source, _attempt(record, source, values)


def _columns_of(name: str, header: Sequence[str]) -> list[str]:
    """NAME_0, NAME_1 … as far as the header has them without a gap."""
    numbered = (f"{name}_{number}" for number in itertools.count())
    return list(itertools.takewhile(lambda column: column in header, numbered))
