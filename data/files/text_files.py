"""Reading text files: bytes, lines and records, and the words that messages about them share.

Every task reads its files through here, so all agree on what a file may be: UTF-8, with or without
a byte order mark (or what the flag --encoding says, where there is one), compressed or not (see
`data.files.streams`), with lines that end in LF, CRLF or CR. Every record comes with its source,
"file:line", lines counting from 1.

Files are read whole: what is fine-tuned on fits into memory.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf
from absl import logging

from data.errors import DataError, doubled, error_text, json_error
from data.files import atomic, lock_files, streams
from data.files.bad_rows import RowAttempt, first_bad_row_raises
from data.files.encodings import decoded
from data.files.streams import READABLE, near_file, unreadable
from data.progress import counted

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet")
"""Extensions that `file_extension` and `stem` know."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Those that may stand behind them."""

DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
"""Characters between fields that have a name."""

# As of JSON: whatever ends a line for some reader (splitlines() knows ten), and control characters.
_ESCAPES = {c: f"\\u{c:04x}" for c in (*range(32), 0x7F, 0x85, 0x2028, 0x2029)}
_ESCAPES |= str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NUMBER = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE
)
# The wide ones are formulas in East Asian settings.
_FORMULA = re.compile(r"['\s]*[=+\-@＝＋－＠]")
# The csv module refuses fields of more than 128 KiB unless told otherwise, and takes no more than
# a C long, which has 32 bits on Windows.
_CSV_FIELD_LIMIT = 2**31 - 1


def placed_file(data_dir: str | None, path: str) -> str:
    """The path, starting from data_dir (None: the working folder) if it is a relative one."""
    # tf.io.gfile.join would put gs:// before an absolute path too.
    if not data_dir or "://" in path or os.path.isabs(path):
        return path
    return tf.io.gfile.join(data_dir, path)


def file_extension(path: str) -> str:
    """Which of EXTENSIONS the name ends in, one of PACKED left aside; "" if none."""
    name = _unpacked_name(path).lower()
    return next((ending for ending in EXTENSIONS if name.endswith(ending)), "")


def stem(path: str) -> str:
    """A file's name without its folder and the extensions that are known here."""
    name = _unpacked_name(path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])
    known = file_extension(name)
    return name[: -len(known)] if known and len(name) > len(known) else name


def _unpacked_name(path: str) -> str:
    packed = next((ending for ending in PACKED if path.lower().endswith(ending)), "")
    return path[: len(path) - len(packed)] or path


def expand(patterns: str | Iterable[str]) -> list[str]:
    """Files that match a comma-separated list (or an iterable) of globs.

    Returns:
        Paths in the order of the patterns, sorted within each, none twice.

    Raises:
        DataError: If a pattern matches no file, or matches a folder only, or there is no pattern,
            or TensorFlow doesn't know such a file system.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    files: dict[str, None] = {}
    for pattern in (pattern.strip() for pattern in patterns):
        if not pattern:
            continue
        matches = _matches(pattern)
        names = [path for path in matches if not tf.io.gfile.isdir(path) and _is_meant(path)]
        if not names:
            what = "matches only folders" if matches else f"matches no file{near_file(pattern)}"
            raise DataError(
                f"The file pattern {pattern!r} {what}. Give one file, a glob"
                " such as 'corpus/*.txt', or a comma-separated list of these."
            )
        files.update(dict.fromkeys(names))
    if not files:
        raise DataError("No input file was given: the list of file patterns is empty.")
    by_place: dict[str, str] = {}
    for path in files:
        first = path if "://" in path else by_place.setdefault(os.path.realpath(path), path)
        if first != path:
            logging.warning("%s is the file %s by another name: it is read twice.", path, first)
    return list(files)


def _matches(pattern: str) -> list[str]:
    """What a glob matches, sorted; the file of just that name if there is one, as "a[1].txt"."""
    try:
        return [pattern] if tf.io.gfile.exists(pattern) else sorted(tf.io.gfile.glob(pattern))
    except tf.errors.UnimplementedError as error:
        raise DataError(
            f"{pattern} is in a file system that this TensorFlow can't read (gs:// and local files"
            " it can). Copy the files, or mount them as a folder."
        ) from error


def _is_meant(path: str) -> bool:
    """Whether a pattern may mean the file: not what is half-written beside the others, or a lock.

    To tf.io.gfile a name that begins with a dot is one like others.
    """
    name = os.path.basename(path)
    return atomic.temporary_target(name) is None and not lock_files.is_lock(name)


def read_bytes(path: str, hint: str = READABLE) -> bytes:
    """The content of a file that `tf.io.gfile` opens.

    Raises:
        DataError: It can't be read; ends in the hint, a sentence that says what to do.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except (tf.errors.OpError, OSError) as error:
        raise unreadable(path, error, hint) from error


def read_text(path: str, hint: str = READABLE, encoding: str | None = None) -> str:
    """The text of a file, without a byte order mark, decompressed if it is compressed.

    Args:
        path: Anything that `tf.io.gfile` opens.
        hint: See `read_bytes`.
        encoding: As the flag --encoding says; None: UTF-8, and there is no such flag.

    Raises:
        DataError: The file can't be read (see `read_bytes`), is damaged, or isn't of the encoding;
            names the line.
    """
    data = read_bytes(path, hint)
    compression = streams.file_compression(data)
    if compression:
        data = b"".join(streams.decompressed_stream([data], compression, path))
    return decoded(data, path, encoding)


def lines_of(text: str) -> list[str]:
    """Lines without their ends (LF, CRLF or CR) and without blank ones at the text's end."""
    # Not splitlines(), which also splits at U+2028, U+0085 and others that occur in sentences.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _read_lines(path: str, text: str) -> Iterator[str]:
    return counted(f"Reading {path}", "lines", lines_of(text))


def tsv_file_rows(path: str, text: str, delimiter: str = "\t") -> Iterator[tuple[str, list[str]]]:
    """Sources and fields, split at the delimiter and nothing else: quotation marks are text.

    A blank line is a record of one empty field, but at the end of the text.
    """
    for number, line in enumerate(_read_lines(path, text), 1):
        yield f"{path}:{number}", line.split(delimiter)


def csv_rows(
    name: str, lines: Iterable[str], delimiter: str = ","
) -> Iterator[tuple[str, list[str] | DataError]]:
    """Sources (of a row's first line) and fields as of RFC 4180, a blank line having none.

    Quoted fields may hold delimiters, quotation marks and newlines, and be of any length.

    Args:
        name: Of what is read.
        lines: With their ends, which newlines inside quoted fields are taken from.
        delimiter: One character.

    Yields:
        A DataError in the place of a row that isn't CSV: quotation marks are where they can't be,
        or missing.
    """
    header: list[str] = []
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    while True:
        source = f"{name}:{reader.line_num + 1}"
        # Process-wide, hence raised before every row: another library may have lowered it.
        csv.field_size_limit(max(csv.field_size_limit(), _CSV_FIELD_LIMIT))
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = DataError(
                f"{source}: the row that begins here isn't CSV ({error}). A field that holds a"
                f" {delimiter_name(delimiter)}, a quotation mark or a newline stands in quotation"
                " marks, those inside it doubled; if quotation marks are plain text in this file,"
                f" it is no CSV.{delimiter_hint(header)}"
            )
        if row is None:
            return
        header = header or (row if isinstance(row, list) else [])
        yield source, row


def csv_file_rows(path: str, text: str, delimiter: str = ",") -> Iterator[tuple[str, list[str]]]:
    """Sources and fields as of `csv_rows`; blank lines as in TSV.

    Raises:
        DataError: While iterating: a row isn't CSV.
    """
    # newline="" leaves newlines inside quoted fields as they are and still ends lines at CR.
    lines = counted(
        f"Reading {path}", "lines", io.StringIO(text, newline=""), text.count("\n") or None
    )
    for source, row in without_last_blanks(csv_rows(path, lines, delimiter)):
        if isinstance(row, DataError):
            raise row
        yield source, row


def without_last_blanks(
    rows: Iterable[tuple[str, list[str] | DataError]],
) -> Iterator[tuple[str, list[str] | DataError]]:
    """The rows but for blank ones ([]) at the end; others have one empty field."""
    blank: list[str] = []
    for source, row in rows:
        if row == []:
            blank.append(source)
            continue
        yield from ((earlier, [""]) for earlier in blank)
        blank.clear()
        yield source, row


def json_file_rows(
    path: str, text: str, attempt: RowAttempt = first_bad_row_raises
) -> Iterator[tuple[str, dict[str, object] | None]]:
    """Sources and objects of JSON lines, an object on every line; blank lines are skipped.

    Half a surrogate pair, which JSON may hold and UTF-8 can't, becomes U+FFFD. Where `attempt`
    doesn't raise what is wrong, None stands for the object.

    Raises:
        DataError: While iterating, by way of `attempt`: a line isn't JSON, or no object, or has a
            name twice.
    """
    for number, line in enumerate(_read_lines(path, text), 1):
        if line.strip():
            source = f"{path}:{number}"
            yield source, attempt(json_object, source, line)


def loads(text: str) -> object:
    """What a JSON text holds; see `json_file_rows`. Raises ValueError and RecursionError."""
    return json.loads(text, object_pairs_hook=_object)


def json_object(source: str, line: str) -> dict[str, object]:
    """The object of a line; see `json_file_rows`."""
    try:
        fields = loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{source}: this line isn't JSON ({json_error(error)}); it begins"
            f" {error_text(line)}. A file of JSON lines holds one whole object on every line;"
            " repair the line, or write the file anew with one object per line."
        ) from None
    if not isinstance(fields, dict):
        raise DataError(
            f"{source}: expected an object, and this line, which holds {error_text(fields)}, is"
            " not an object. A file of JSON lines holds one on every line, not an array over"
            " many; write the file anew with one object per line."
        )
    return fields


def delimiter_name(delimiter: str) -> str:
    """Its name in DELIMITERS; else the character itself."""
    return next((name for name, own in DELIMITERS.items() if own == delimiter), delimiter)


def delimiter_hint(names: Iterable[str]) -> str:
    """A sentence that names --delimiter where a header's only name holds another one; or ""."""
    header, *others = [*names] or [""]
    called = next((name for name, own in DELIMITERS.items() if own in header and not others), "")
    return f" If {called}s separate the columns, give --delimiter={called}." if called else ""


def named_file_row(
    source: str, names: Sequence[str], values: Sequence[str], separator: str, first: str = "header"
) -> dict[str, str]:
    """A record's values by the names of its columns; `first` is where those come from.

    Raises:
        DataError: There are more or fewer values than names.
    """
    if len(values) == len(names):
        return dict(zip(names, values, strict=True))
    tab, called = separator == "\t", delimiter_name(separator)
    raise DataError(
        f"{source}: this row has {len(values)} {called}-separated columns, the {first} has"
        f" {len(names)}; the row begins {error_text(separator.join(values))}. Correct or remove"
        f" it; a {called} inside a text "
        + ("isn't possible in TSV." if tab else "needs quotation marks.")
    )


def split_file_names(purpose: str, paths: Iterable[str]) -> dict[str, str]:
    """Files by split: the first is named as the purpose, the others by their stems too.

    "dev", "dev_<stem>", and with a number behind it where a name is taken: "dev_<stem>_2".
    Characters that not every file name and chart takes become "_".
    """
    files: dict[str, str] = {}
    for path in paths:
        tidy = re.sub(r"[^0-9A-Za-z_.-]", "_", stem(path))
        name = base = f"{purpose}_{tidy}" if files else purpose
        number = 1
        while name in files:
            number += 1
            name = f"{base}_{number}"
        files[name] = path
    return files


def tsv_line(cells: Iterable[str], raw: bool = False) -> str:
    """A line, without its end.

    In cells a backslash, control characters and all that may end a line are escaped as in JSON.
    One that a spreadsheet would run, as it begins with = + - or @, gets an apostrophe before it,
    unless it is a number: https://owasp.org/www-community/attacks/CSV_Injection. White space and
    apostrophes before such a character make no difference, so that who reads the file takes away
    the first apostrophe of every cell that has only these before it.

    Args:
        cells: Any texts.
        raw: Whether no apostrophe is put before any.
    """
    return "\t".join((cell if raw else _unrun(cell)).translate(_ESCAPES) for cell in cells)


def _unrun(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = {name: _paired(value) for name, value in pairs}
    if len(fields) < len(pairs):
        name = doubled(name for name, _ in pairs)[0]
        raise ValueError(f"the name {name!r} occurs twice in one object")
    return fields


def _paired(value: object) -> object:
    if isinstance(value, list):
        return [_paired(item) for item in value]
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
