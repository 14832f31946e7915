"""Parquet: a column of strings, as corpora have their texts, or whole rows, as tables.

Reading streams: columns are taken in small pieces, whatever the size of their row groups, through
`tf.io.gfile`. Needs the package `pyarrow`.
"""

import contextlib
import io
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from data.errors import DataError, doubled, error_list, error_text
from data.files.lines import not_utf8
from data.files.streams import stored_file_bytes, unreadable
from data.progress import work

if TYPE_CHECKING:
    import pyarrow

MAGIC = b"PAR1"
"""What every Parquet file begins with (and ends)."""

_BUFFER_BYTES = 2**20
_BATCH_BYTES, _BATCH_ROWS = 2**22, 1024
_SHOWN_COLUMNS = 10


def measure_parquet(path: str, column: str) -> tuple[int, int]:
    """Reads a file's metadata.

    Returns:
        (number of rows, bytes of the text column before the file's compression).

    Raises:
        DataError: If the file can't be read or is damaged, has no column `column` or one of
            no strings, or if pyarrow is missing.
    """
    with _open(path) as file:
        _check_column(file.schema_arrow, path, column)
        metadata = file.metadata
        names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        index = names.index(column)
        groups = range(metadata.num_row_groups)
        size = sum(metadata.row_group(g).column(index).total_uncompressed_size for g in groups)
        return metadata.num_rows, size


def read_column(
    path: str,
    column: str,
    begin: int = 0,
    end: int | None = None,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Streams the strings of a column in the rows [begin, end).

    Args:
        path: Anything that `tf.io.gfile` opens.
        column: Its name.
        begin, end: Numbers of rows, from 0; `end` isn't included, None is the last row's end.
        on_read: Called with the share of the file's bytes that the rows read stand for.

    Yields:
        (source "file: row N", text), N counting from 1.

    Raises:
        DataError: As `measure_parquet`, and naming the row, for a null and bytes that aren't UTF-8.
    """
    rows, size = measure_parquet(path, column)
    end = rows if end is None else min(end, rows)
    stored = stored_file_bytes(path)
    batch_rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES * rows // max(size, 1)))
    after = 0  # the rows of the groups that are behind
    with _open(path) as file:
        for group in range(file.metadata.num_row_groups):
            at, after = after, after + file.metadata.row_group(group).num_rows
            if at >= end or after <= begin:
                continue
            options = {"columns": [column], "batch_size": batch_rows}
            for batch in _stream(file, path, row_groups=[group], **options):
                first, last = max(begin, at), min(end, at + batch.num_rows)
                if first < last:
                    texts = _bytes_of(batch.column(0)[first - at : last - at])
                    for number, text in enumerate(texts, first + 1):
                        source = f"{path}: row {number}"
                        yield source, _decode(text, source, column)
                    if on_read:
                        on_read(stored * last // rows - stored * first // rows)
                at += batch.num_rows
                if at >= end:
                    break


def read_rows(
    path: str, columns: Container[str] | None = None
) -> Iterator[tuple[str, dict[str, object]]]:
    """Streams rows: source "file: row N", N counting from 1, and values by column.

    Args:
        path: Anything that `tf.io.gfile` opens.
        columns: Whose values are needed; of others only the names are there, with None. None: all.

    Raises:
        DataError: The file can't be read or is damaged, two columns have one name, a string
            isn't UTF-8 or a value none that Python has; names the row.
    """
    with _open(path) as file:
        names = file.schema_arrow.names
        check_column_names(path, names)
        wanted = [name for name in names if columns is None or name in columns]
        others = dict.fromkeys(names, None) if columns is not None else {}
        number = 0
        with work(f"Reading {path}", "rows", file.metadata.num_rows) as shown:
            for batch in _stream(file, path, batch_size=_BATCH_ROWS, columns=wanted):
                for fields in _unpacked(path, batch, number):
                    number += 1
                    yield f"{path}: row {number}", others | fields
                shown.add(batch.num_rows)


def check_column_names(source: str, names: list[str], or_else: str = "") -> None:
    """Raises DataError if two columns have one name; `or_else` goes on with what to do."""
    twice = doubled(names)
    if twice:
        raise DataError(
            f"{source}: the columns {error_list(map(error_text, names))} have a name twice:"
            f" {error_list(map(error_text, twice))}. Rename one of them{or_else}."
        )


def _unpacked(path: str, batch: "pyarrow.RecordBatch", before: int) -> list[dict[str, object]]:
    import pyarrow

    # Of a date that Python doesn't reach, a nanosecond, a zone of time that isn't known here.
    errors = ValueError, OverflowError, pyarrow.ArrowException
    try:
        return batch.to_pylist()
    except errors:
        rows = []
    for index in range(batch.num_rows):
        source = f"{path}: row {before + index + 1}"
        try:
            rows += batch.slice(index, 1).to_pylist()
        except UnicodeDecodeError as error:
            wrong = error.object[error.start : error.start + 4]
            raise not_utf8(source, wrong) from error
        except errors as error:
            kinds = [f"{field.name!r} ({field.type})" for field in batch.schema]
            raise DataError(
                f"{source}: a value can't be read ({error}); the columns are {error_list(kinds)}."
                " Write the one that it is in as text or as numbers, or leave it out of the file."
            ) from None
    return rows


def _stream(
    file: "pyarrow.parquet.ParquetFile", path: str, **options
) -> Iterator["pyarrow.RecordBatch"]:
    with _damage_told(path):
        yield from file.iter_batches(use_threads=False, **options)


def _bytes_of(column: "pyarrow.Array") -> list[bytes | None]:
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # pyarrow would decode a whole batch, and wouldn't say which row isn't UTF-8.
    return column.cast(pyarrow.large_binary()).to_pylist()


def _decode(text: bytes | None, source: str, column: str) -> str:
    if text is None:
        raise DataError(
            f"{source}: the column {column!r} holds null; a string was expected. Leave"
            " such rows out of the file."
        )
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{source}: byte 0x{text[error.start]:02x} at byte {error.start} of the text"
            " isn't valid UTF-8. Convert this row's text or leave the row out."
        ) from None


def _check_column(schema: "pyarrow.Schema", path: str, column: str) -> None:
    import pyarrow.types as types

    names = list(schema.names)
    if column not in names:
        known = error_list(map(repr, names), _SHOWN_COLUMNS) or "none"
        raise DataError(
            f"{path} has no column {column!r}; its columns: {known}. Name the one that holds"
            " the text with --text_field."
        )
    if names.count(column) > 1:
        raise DataError(f"{path} has several columns {column!r}; rename all but one.")
    kind = schema.field(column).type
    value = kind.value_type if types.is_dictionary(kind) else kind
    # Some writers leave out that bytes are text; decoding shows whether they are.
    checks = ("is_string", "is_large_string", "is_string_view", "is_binary", "is_large_binary")
    if not any(getattr(types, check, lambda _: False)(value) for check in checks):
        raise DataError(
            f"{path}: the column {column!r} holds values of type {kind}; strings were"
            " expected. Name the column that holds the text with --text_field."
        )


@contextlib.contextmanager
def _open(path: str) -> Iterator["pyarrow.parquet.ParquetFile"]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"{path}: reading Parquet needs the package pyarrow, which can't be imported"
            f" ({error}). Install it (pip install pyarrow) or convert the file to JSON lines."
        ) from None
    stored_file_bytes(path)  # A missing file is told in the words of the other formats.
    with _Seekable(path) as raw:
        with _damage_told(path):
            # With a buffer a column is read in pieces, else a row group's whole column at once.
            file = pyarrow.parquet.ParquetFile(raw, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        yield file


@contextlib.contextmanager
def _damage_told(path: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is a damaged or truncated Parquet file ({error}). Restore it or leave it out."
        ) from None
    except tf.errors.OpError as error:
        raise unreadable(path, error) from None


class _Seekable(io.RawIOBase):
    """A file of `tf.io.gfile` as one of Python's."""

    def __init__(self, path: str):
        self._file = tf.io.gfile.GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
