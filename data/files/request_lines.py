"""Lines of files and of standard input, one after the other, without reading them whole.

for line in open_lines("-").lines(): …  # as soon as it has been typed

Unlike `data.files.text_files`, which reads what fits into memory, this streams. Both take the same
files: with or without a byte order mark, gzip-compressed or not, lines that end in LF, CRLF or CR.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator

import tensorflow as tf

from data.errors import DataError

STANDARD_INPUT = "standard input"
"""Its name in messages."""

MAX_LINE_CHARACTERS = 2**26
"""A line is held in memory; beyond this length the ends of lines are surely missing."""

_BUFFER_BYTES = 2**13  # `done` is this much ahead


class LineStream:
    """An open file, or standard input.

    Attributes:
        name: For messages: the path, or STANDARD_INPUT.
        size: Bytes, as they lie on disk; None where the end isn't known.
        live: Whether lines may come one by one while somebody waits for the answers: from a
            terminal, a pipe, a socket.
    """

    def __init__(self, name: str, file, size: int | None, live: bool):
        self.name = name
        self.size = size
        self.live = live
        self._raw = _Counted(file)
        self._reader: io.BufferedReader | None = None  # there may be thousands of files

    @property
    def done(self) -> int:
        """Bytes read so far, compressed if they are."""
        return self._raw.count

    def first_character(self) -> str:
        """The first one that isn't white space, which stays to be read; waits for it.

        "" if it isn't among the first bytes that there are.
        """
        head = self._head()
        if head[:2] == b"\x1f\x8b":
            try:
                head = zlib.decompressobj(wbits=31).decompress(head, 1024)
            except zlib.error:
                return ""  # `lines` will say it
        return head.decode("utf-8-sig", "replace").strip()[:1]

    def lines(self, keep_ends: bool = False) -> Iterator[str]:
        """The lines, without their ends, or with them as they are.

        Bytes that aren't UTF-8 become lone surrogates as by Python's "surrogateescape", since a
        caller may want to go on after a bad line; see `check_utf8`.

        Raises:
            DataError: While iterating: the file can't be read or is damaged, or a line has more
                than `MAX_LINE_CHARACTERS`.
        """
        number = 0
        try:
            compressed = self._head()[:2] == b"\x1f\x8b"
            binary = gzip.GzipFile(fileobj=self._reader) if compressed else self._reader
            text = io.TextIOWrapper(
                binary, "utf-8-sig", "surrogateescape", newline="" if keep_ends else None
            )
            while line := text.readline(MAX_LINE_CHARACTERS):
                number += 1
                if len(line) == MAX_LINE_CHARACTERS:
                    raise DataError(
                        f"{self.name}:{number}: this line has {MAX_LINE_CHARACTERS:,} characters "
                        f"or more. Every example is a line; put ends of lines between them."
                    )
                yield line if keep_ends else line.removesuffix("\n")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(
                f"{self.name} is gzip-compressed and damaged ({error}); copy or compress it anew."
            ) from error
        except (tf.errors.OpError, OSError) as error:
            raise _unreadable(self.name, error) from error
        finally:
            self._reader = None

    def _head(self) -> bytes:
        if self._reader is None:
            self._reader = io.BufferedReader(self._raw, _BUFFER_BYTES)
        try:
            return self._reader.peek(2)
        except (tf.errors.OpError, OSError) as error:
            raise _unreadable(self.name, error) from error


def open_lines(path: str) -> LineStream:
    """Opens a file, "-" for standard input.

    Args:
        path: Anything that `tf.io.gfile` opens; and what only the operating system does, such as
            a named pipe.

    Raises:
        DataError: That isn't possible.
    """
    try:
        if path == "-":
            # Not sys.stdin: Python dies at exit while another thread waits for its next line.
            file = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
            return _opened(STANDARD_INPUT, file)
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            return _opened(path, open(path, "rb", buffering=0))
        size = tf.io.gfile.stat(path).length
        return LineStream(path, tf.io.gfile.GFile(path, "rb"), size, live=False)
    except (tf.errors.OpError, OSError) as error:
        raise _unreadable(path, error) from error


def check_utf8(source: str, text: str) -> str:
    """The text; raises DataError if it has a byte that wasn't UTF-8, see `LineStream.lines`."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            found = text[error.start : error.end][:4].encode("utf-8", "surrogateescape")
            raise DataError(
                f"{source}: found the bytes {found!r}, which are not UTF-8; convert the text to "
                f"UTF-8."
            ) from None
    return text


def _opened(name: str, file: io.FileIO) -> LineStream:
    status = os.fstat(file.fileno())
    regular = stat.S_ISREG(status.st_mode)
    return LineStream(name, file, status.st_size if regular else None, live=not regular)


def _unreadable(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name} can't be read ({type(error).__name__}). Check the name and that the file is "
        f"readable."
    )


class _Counted(io.RawIOBase):
    """What Python's readers need of a file, counting bytes; a GFile doesn't have it."""

    def __init__(self, file):
        super().__init__()
        self.count = 0
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
