"""Files of rows, row by row: TSV, CSV, JSON lines and Parquet.

The extension tells the format, unless the caller does:

    .tsv                    fields are split at tabs and nothing else; quotation marks are text,
                            as in the original release
    .csv                    RFC 4180: quoted fields may hold commas, quotation marks and newlines
    .jsonl, .ndjson, .json  one object on every line, its fields being the columns
    .parquet                needs pyarrow

TSV and CSV may have another delimiter. The text formats may be compressed (`.gz`, `.bz2`, `.xz` or
`.zst` behind the extension is fine); what else text files may be says `data.files.text_files`.

Blank lines are skipped in JSON lines and at the end of a file. Elsewhere in a TSV or CSV file of
one column a blank line is a row with an empty text, so that predictions stay aligned with the
lines; among several columns it is a row with too few.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from data.errors import DataError, did_you_mean, error_list, error_text
from data.files.bad_rows import FileRows, RowAttempt, first_bad_row_raises
from data.files.parquet import check_column_names, read_rows
from data.files.text_files import (
    DELIMITERS,
    PACKED,
    csv_file_rows,
    delimiter_hint,
    file_extension,
    json_file_rows,
    named_file_row,
    read_text,
    tsv_file_rows,
)

FORMATS = ("tsv", "csv", "jsonl", "parquet")
"""What `read_table` takes as format."""

FORMAT_OF = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
"""By extension."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row.

    Attributes:
        source: Where it begins, for messages: "file:line", lines counting from 1 and those
            inside quoted fields too; for Parquet "file: row N", N counting from 1.
        fields: Values by column. Strings for TSV and CSV; otherwise what the file holds, null
            being None.
    """

    source: str
    fields: dict[str, object]


def read_table(
    path: str,
    *,
    format: str | None = None,
    has_header: bool = True,
    bad_rows: FileRows | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    columns: Container[str] | None = None,
) -> Iterator[TableRow]:
    """Streams the rows of a file.

    Args:
        path: Anything that `tf.io.gfile` opens.
        format: One of `FORMATS`; None: the file's extension tells.
        has_header: Whether the first line of TSV and CSV names the columns. If not they are
            named "0", "1" and so on, as many as the first line has. The other formats name
            their columns always.
        bad_rows: Takes those that aren't JSON or have more or fewer columns, so that reading goes
            on; None: the first one is raised.
        delimiter: Between the fields of TSV and CSV, see `parse_delimiter`; None: a tab, a comma.
        encoding: Of the text formats, see `text_files.read_text`.
        columns: Those that are needed; of a Parquet file others aren't read, see `read_rows`.

    Raises:
        DataError: While iterating, naming file and line: the file can't be read, isn't what the
            format says or isn't UTF-8, has no rows, or two columns of one name, or a row with
            more or fewer columns than the header (the first row, if there is none).
    """
    format = format or FORMAT_OF.get(file_extension(path))
    if format is None:
        raise DataError(
            f"{path}: the extension doesn't tell the format. Known are {error_list(FORMAT_OF)} (the"
            f" text formats with {error_list(PACKED)} too); rename the file or name its format"
            f" (--file_format), one of {error_list(FORMATS)}."
        )
    if format not in FORMATS:
        raise DataError(
            f"{path}: unknown format {format!r}; it may be one of {error_list(FORMATS)}."
        )
    attempt = bad_rows.attempt if bad_rows else first_bad_row_raises
    if format == "parquet":
        rows = (TableRow(*record) for record in read_rows(path, columns))
    elif format == "jsonl":
        records = json_file_rows(path, read_text(path, encoding=encoding), attempt)
        rows = (TableRow(*record) for record in records if record[1] is not None)
    else:
        separator, records = (",", csv_file_rows) if format == "csv" else ("\t", tsv_file_rows)
        separator = delimiter or separator
        text = read_text(path, encoding=encoding)
        rows = _named(records(path, text, separator), separator, has_header, attempt)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty and not (bad_rows and bad_rows.bad):
        raise DataError(
            f"{path} is empty: it has no row"
            + (" below its header" if has_header and format in ("tsv", "csv") else "")
            + ". Check that it is the right file and that writing it came to its end."
        )


def parse_delimiter(given: str | None) -> str | None:
    """The one character that --delimiter means: itself, or by its name in `DELIMITERS`.

    Raises:
        DataError: It is neither, or can't stand between fields.
    """
    if given is None:
        return None
    # A shell hands on \\t as two characters.
    delimiter = DELIMITERS.get(given.lower(), "\t" if given == "\\t" else given)
    if len(delimiter) == 1 and delimiter not in '"\r\n' and not delimiter.isalnum():
        return delimiter
    raise DataError(
        f"--delimiter is {error_text(given)}; expected {error_list(DELIMITERS)}, or one character"
        " that is no letter, digit, quotation mark or end of a line."
    )


def table_value(row: TableRow, column: str) -> object:
    """The row's value in that column.

    Raises:
        DataError: There is no such column; lists those there are and the nearest by spelling.
    """
    if column in row.fields:
        return row.fields[column]
    raise DataError(
        f"{row.source}: there is no column {column!r}; the columns are"
        f" {error_list(map(error_text, row.fields))}{did_you_mean(column, row.fields)}. Name one"
        f" that is there.{delimiter_hint(row.fields)}"
    )


def _named(
    records: Iterator[tuple[str, list[str]]], separator: str, has_header: bool, attempt: RowAttempt
) -> Iterator[TableRow]:
    names: list[str] | None = None
    for source, values in records:
        if names is None:
            if has_header:
                names = values
                or_else = "; if the first line is data and no header, say so (--noheader)"
                check_column_names(source, names, or_else)
                continue
            names = [str(column) for column in range(len(values))]
        first = "header" if has_header else "first row"
        fields = attempt(named_file_row, source, names, values, separator, first)
        if fields is not None:
            yield TableRow(source, fields)
