"""The lines of files and of standard input, with exact places for messages.

    for start, number, line in Lines(path, begin=10_000_000):
        …
    for line in open_lines("-").lines():  # as soon as it has been typed
        …

`Lines` reads corpora, by ranges of their bytes if that is wanted. Only a newline ends a line there
(U+2028 doesn't), and a line belongs to the range in which its first byte lies: a reader that
starts within a line goes on to the next, so the ranges of a file share its lines out, wherever they
cut, within a character as well.

`LineStream` reads what a model is asked, from standard input too. Its lines end in LF, CRLF or CR,
as those of `data.files.text_files`, and one that isn't UTF-8 (or what --encoding says)
spoils no other.
"""

import io
import itertools
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from data.errors import DataError
from data.files import streams
from data.files.encodings import UTF8, codec_of, likely_encoding, not_decoded
from data.files.streams import file_compression, read_blocks, read_file_head

MAX_LINE_BYTES = 256 * 2**20
"""A corpus's line is held in memory; beyond this size the newlines are surely missing."""
MAX_LINE_CHARACTERS = 2**26
"""The same of a `LineStream`."""
STANDARD_INPUT = "standard input"
"""Its name in messages."""

_BINARY_BYTES = 2**21  # A zero byte within so many shows that the file isn't text.
_NOT_UTF8 = (
    "Corpus files must be UTF-8 text; convert the file, for instance with 'iconv -f latin1 -t"
    " utf-8', or leave it out."
)
_DAMAGED = (
    "The lines about it are UTF-8: they were damaged. Repair the line or leave it out; 'iconv -c -f"
    " utf-8 -t utf-8' leaves out such bytes alone."
)
_STREAM_BYTES = 2**13  # `LineStream.done` is this much ahead


class Lines:
    """Iterates once over the lines that start at byte `begin` or later.

    Args:
        path: Anything that `tf.io.gfile` opens.
        compression: See `streams.file_compression`.
        begin: In bytes of the uncompressed text. A compressed file is read from its start.
        end: Where the reader's range ends: lines go on after it, as its last document may.
        on_read: See `streams.read_blocks`.
        strip: Lines come without white space at both ends; else without the newline only.

    Yields:
        (position of the line's first byte in the uncompressed text, number, line). Numbers
        count from 1 at the first line that is yielded; `place` makes them numbers in the file.

    Raises:
        DataError: Naming file and line, for bytes that aren't UTF-8, a file that isn't text, a
            line of more than `MAX_LINE_BYTES`, and what `streams.read_blocks` refuses.
    """

    def __init__(
        self,
        path: str,
        compression: str | None = None,
        begin: int = 0,
        end: int | None = None,
        on_read: Callable[[int], None] | None = None,
        strip: bool = True,
    ):
        self.path = path
        self._begin = begin
        self._end = math.inf if end is None else end
        self._strip = strip
        # From the byte before `begin`: if that is a newline, a line starts at `begin`.
        self._at = max(0, begin - 1) if compression is None else 0
        self._blocks = read_blocks(path, compression, self._at, end, on_read)
        self._first = 0  # Where the first line starts
        self._before: int | None = None  # Newlines before it, if known

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        block = self._find_first()
        start, number, rest, size = self._first, 1, [], 0
        while block is not None:
            cut = block.rfind(b"\n") + 1
            if cut:
                data = b"".join([*rest, block[:cut]])
                for line, bytes_of_it in self._split(data, start, number):
                    yield start, number, line
                    start += bytes_of_it
                    number += 1
                rest, size = [], 0
            if cut < len(block):
                rest.append(block[cut:])
                size += len(block) - cut
                if size > MAX_LINE_BYTES:
                    raise DataError(
                        f"{self.place(number)}: this line has more than {MAX_LINE_BYTES:,} bytes."
                        " Corpus files hold a sentence (plain text), a paragraph (WikiExtractor)"
                        " or an object (JSON lines) per line; put newlines between them."
                    )
            block = next(self._blocks, None)
            if block is not None:
                self._check(block, start + size, number)
        for line, _ in self._split(b"".join(rest), start, number):
            yield start, number, line

    def place(self, number: int) -> str:
        """Where the yielded line of this number stands: "file:line".

        For a range of an uncompressed file this reads all that precedes it, once.
        """
        if self._before is None:
            self._before, at = 0, 0
            for block in read_blocks(self.path, None, 0, self._first):
                self._before += block.count(b"\n", 0, self._first - at)
                at += len(block)
                if at >= self._first:
                    break
        return f"{self.path}:{self._before + number}"

    def source(self, start: int, number: int) -> str:
        """As `place`, but "file:byte N" where the line's number would have to be counted."""
        if self._before is None:
            return f"{self.path}:byte {start}"
        return f"{self.path}:{self._before + number}"

    def _find_first(self) -> bytes | None:
        """What is left of a block from the first line on, or None if the range has no line."""
        newlines, position = 0, self._at
        for block in self._blocks:
            cut = 0
            if self._begin:
                cut = block.find(b"\n", max(0, self._begin - 1 - position)) + 1
            if cut or not self._begin:
                self._first = position + cut
                if self._at == 0:
                    self._before = newlines + block.count(b"\n", 0, cut)
                self._check(block[cut:], self._first, 1)
                return block[cut:]
            newlines += block.count(b"\n")
            position += len(block)
            if position >= self._end:
                break
        return None

    def _check(self, block: bytes, position: int, number: int) -> None:
        if position < _BINARY_BYTES and b"\0" in block:
            line = number + block.count(b"\n", 0, block.index(b"\0"))
            raise DataError(
                f"{self.place(line)}: found a zero byte, so this is a binary file or UTF-16."
                " Corpus files must be UTF-8 text (plain or compressed) or Parquet; convert it or"
                " leave it out."
            )

    def _split(self, data: bytes, start: int, number: int) -> Iterator[tuple[str, int]]:
        """(Line, its bytes with the newline) of whole lines."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = number + data.count(b"\n", 0, error.start)
            column = error.start - (data.rfind(b"\n", 0, error.start) + 1)
            raise DataError(
                f"{self.place(line)}: byte 0x{data[error.start]:02x} at byte {column} of the line"
                f" isn't valid UTF-8. {_DAMAGED if likely_encoding(data) == UTF8 else _NOT_UTF8}"
            ) from None
        if start == 0:
            text = text.removeprefix("\ufeff")
        lines = text.split("\n")
        ascii_only = len(text) == len(data)
        sizes = [len(line) + 1 for line in (lines if ascii_only else data.split(b"\n"))]
        if not lines[-1]:
            lines.pop()
        if self._strip:
            lines = [line.strip() for line in lines]
        return zip(lines, sizes, strict=False)


def first_line(path: str, compression: str | None) -> str:
    """The first line that isn't blank, stripped; "" if there is none."""
    return next((line for _, _, line in Lines(path, compression) if line), "")


def numbered_lines(path: str, strip: bool = True) -> Iterator[tuple[int, str]]:
    """Streams (number from 1, line) of a whole file, compressed or not; see `Lines`."""
    for _, number, line in Lines(path, file_compression(read_file_head(path)), strip=strip):
        yield number, line


def number_of_lines(path: str) -> int:
    """How many lines `numbered_lines` gives, without looking into them.

    Raises:
        DataError: The file can't be read or is damaged.
    """
    count, last = 0, b"\n"
    for block in read_blocks(path, file_compression(read_file_head(path))):
        count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


class LineStream:
    """An open file, or standard input, compressed or not; `open_lines` opens it.

    Attributes:
        name: For messages: the path, or STANDARD_INPUT.
        size: Bytes, as they lie on disk; None where the end isn't known.
        live: Whether lines may come one by one while somebody waits for the answers: from a
            terminal, a pipe, a socket.
        done: Bytes read so far, compressed if they are.
        encoding: Of its text, as the flag --encoding says.
    """

    def __init__(self, name: str, file, size: int | None, live: bool, encoding: str = UTF8):
        self.name = name
        self.size = size
        self.live = live
        self.encoding = encoding
        self.done = 0
        self._file = file
        self._reader: io.BufferedReader | None = None  # there may be thousands of files

    def first_character(self) -> str:
        """The first one that isn't white space, which stays to be read; waits for it.

        "" if it isn't among the first bytes that there are.
        """
        return self._opened().peek(2).decode(codec_of(self.encoding), "replace").strip()[:1]

    def lines(self, keep_ends: bool = False) -> Iterator[str]:
        """The lines, without their ends, or with them as they are.

        Bytes that aren't of the encoding become lone surrogates as by Python's "surrogateescape",
        since a caller may want to go on after a bad line; see `check_decoded`.

        Raises:
            DataError: While iterating: the file can't be read or is damaged, a line has more than
                `MAX_LINE_CHARACTERS`, or bytes are wrong that can't become surrogates, as in
                UTF-16.
        """
        number = 0
        end = "" if keep_ends else None
        codec = codec_of(self.encoding)
        text = io.TextIOWrapper(self._opened(), codec, "surrogateescape", newline=end)
        try:
            while line := text.readline(MAX_LINE_CHARACTERS):
                number += 1
                if len(line) == MAX_LINE_CHARACTERS:
                    raise DataError(
                        f"{self.name}:{number}: this line has {MAX_LINE_CHARACTERS:,} characters "
                        f"or more. Every example is a line; put ends of lines between them."
                    )
                yield line if keep_ends else line.removesuffix("\n")
        except UnicodeError as error:
            # Without its byte order mark UTF-16 says so by a UnicodeError of another kind.
            wrong = getattr(error, "object", b"")[getattr(error, "start", 0) :][:4]
            source = f"{self.name}:{number + 1}"
            raise not_decoded(source, bytes(wrong), self.encoding, bytes(wrong)) from error
        finally:
            self._reader = None
            self._file.close()

    def _opened(self) -> io.BufferedReader:
        if self._reader is None:
            self._reader = io.BufferedReader(_Blocks(self._blocks()), _STREAM_BYTES)
        return self._reader

    def _blocks(self) -> Iterator[bytes]:
        head = self._read()
        chunks = itertools.chain([head], iter(self._read, b""))
        compression = file_compression(head)
        if compression is None:
            yield from chunks
        else:
            yield from streams.decompressed_stream(chunks, compression, self.name, at_once=True)

    def _read(self) -> bytes:
        data = streams.read(self._file, _STREAM_BYTES, self.name)
        self.done += len(data)
        return data


def open_lines(path: str, encoding: str = UTF8) -> LineStream:
    """Opens a file, "-" for standard input.

    Args:
        path: Anything that `tf.io.gfile` opens; and what only the operating system does, such as
            a named pipe.
        encoding: Of its text.

    Raises:
        DataError: That isn't possible, or there is no such encoding.
    """
    codec_of(encoding)
    try:
        if path == "-":
            # Not sys.stdin: Python dies at exit while another thread waits for its next line.
            file = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
            status = os.fstat(0)
            size = status.st_size if stat.S_ISREG(status.st_mode) else None
            return LineStream(STANDARD_INPUT, file, size, size is None, encoding)
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            return LineStream(path, open(path, "rb", buffering=0), None, True, encoding)
        size = tf.io.gfile.stat(path).length
        return LineStream(path, tf.io.gfile.GFile(path, "rb"), size, False, encoding)
    except (tf.errors.OpError, OSError) as error:
        raise streams.unreadable(path, error) from error


def check_decoded(source: str, text: str, encoding: str = UTF8, is_line: bool = True) -> str:
    """The text; raises DataError if it has a byte not of its encoding, see `LineStream.lines`.

    Which byte it is is said where the text is a whole line.
    """
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            wrong = text[error.start : error.end][:4].encode("utf-8", "surrogateescape")
            codec, where = codec_of(encoding).removesuffix("-sig"), ""
            try:
                line, before = (
                    part.encode(codec, "surrogateescape") for part in (text, text[: error.start])
                )
                where = f" (from byte {len(before) + 1} of the line on)" if is_line else ""
            except UnicodeEncodeError:  # UTF-16's codec can't give back what it couldn't read
                line = text.encode(codec, "ignore")
            raise not_decoded(source, wrong, encoding, line, where) from None
    return text


def not_utf8(source: str, wrong: bytes) -> DataError:
    """What is raised where a text holds these bytes."""
    return not_decoded(source, wrong, None, wrong)


def text_portions(texts: Iterable[str], most: int, characters: int) -> Iterator[list[str]]:
    """Lists of at most so many texts, each ended by the text that brings so many characters.

    So memory doesn't depend on how long the texts are, but for a single one.
    """
    some, size = [], 0
    for text in texts:
        some.append(text)
        size += len(text)
        if len(some) == most or size >= characters:
            yield some
            some, size = [], 0
    if some:
        yield some


class _Blocks(io.RawIOBase):
    """Blocks of bytes as Python's readers take them."""

    def __init__(self, blocks: Iterator[bytes]):
        super().__init__()
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self._rest = self._rest or memoryview(next(self._blocks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
