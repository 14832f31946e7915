"""Files of UTF-8 text to numbered lines, streaming, and how far the reading has come.

A file is plain or gzip-compressed, told apart by its first two bytes. Paths may be anything that
`tf.io.gfile` opens.
"""

import gzip
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from absl import logging

from data.errors import DataError

MAX_LINE_BYTES = 2**28
"""A line is held in memory; beyond this size the line ends are surely missing."""

_BLOCK_BYTES = 2**21


def numbered_lines(
    path: str, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, str]]:
    """Streams the lines of a file; only a newline ends a line, not U+2028.

    Args:
        path: The file.
        on_bytes: Called with the number of bytes of the file (as it lies on the disk) that were
            read since the last call.

    Yields:
        (line number from 1, line without white space at both ends).

    Raises:
        DataError: Naming file and line, for bytes that aren't UTF-8, a file that isn't text, a
            damaged gzip file, or a line of more than `MAX_LINE_BYTES`.
    """
    number, rest, waiting = 1, [], 0
    for block in _blocks(path, on_bytes):
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            waiting += len(block)
            if waiting > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}:{number}: the line that starts here has more than"
                    f" {MAX_LINE_BYTES:,} bytes. Corpus files have one sentence, paragraph or"
                    " JSON object per line; check that its lines end in newlines."
                )
            continue
        text = _decode(b"".join([*rest, block[:end]]), path, number)
        rest = [block[end:]]
        waiting = len(rest[0])
        for line in text.split("\n")[:-1]:
            yield number, line.strip()
            number += 1
    last = _decode(b"".join(rest), path, number)
    if last:
        yield number, last.strip()


class ReadingProgress:
    """Logs how much of some files is read, how fast, and how long the rest will take.

    Args:
        files: Paths; their sizes are asked for at once.
        seconds: Between lines of the log; 0 for none.
    """

    def __init__(self, files: Sequence[str], seconds: float = 10.0):
        self._seconds = seconds
        self._started = self._last = time.monotonic()
        self.done = 0
        try:
            self.total = sum(tf.io.gfile.stat(path).length for path in files)
        except tf.errors.OpError:
            self.total = 0  # Reading will say what is wrong with the file.

    def add(self, size: int) -> None:
        """Counts bytes read; the `on_bytes` of `numbered_lines`."""
        self.done += size
        now = time.monotonic()
        if self._seconds and now - self._last >= self._seconds:
            self._last = now
            logging.info("Read %s", self.describe())

    def describe(self) -> str:
        """Bytes done and in all, speed, time left, as one line."""
        elapsed = max(time.monotonic() - self._started, 1e-9)
        line = f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB"
        line += f" ({self.done / 1e6 / elapsed:.1f} MB/s)"
        if 0 < self.done < self.total:
            left = elapsed * (self.total - self.done) / self.done
            line += f", about {int(left) // 60}:{int(left) % 60:02d} minutes left"
        return line


def _decode(data: bytes, path: str, number: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start)
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1)
        raise DataError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} at byte {column} of the line isn't"
            " valid UTF-8. Corpus files must be UTF-8 text; convert the file, for instance with"
            " 'iconv -f latin1 -t utf-8', or leave it out."
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _blocks(path: str, on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except tf.errors.OpError as error:
            raise DataError(f"{path} can't be read: {error.message}.") from None
        stream = gzip.GzipFile(fileobj=file, mode="rb") if compressed else file
        first, place = True, 0
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(
                    f"{path} is a damaged or truncated gzip file ({error}). Restore it or leave"
                    " it out."
                ) from None
            if not block:
                return
            if first and b"\0" in block:
                line = 1 + block.count(b"\n", 0, block.index(b"\0"))
                raise DataError(
                    f"{path}:{line}: found a zero byte, so this is a binary file or UTF-16."
                    " Corpus files must be UTF-8 text (plain or gzip); convert it or leave it out."
                )
            first = False
            if on_bytes is not None:
                before, place = place, file.tell()
                on_bytes(place - before)
            yield block
