"""Corpus files to documents, streaming, whatever the size.

Plain text, WikiExtractor's output and JSON lines (see `formats.py`), told apart by the first line
that isn't blank, each plain or gzip-compressed (told apart by the first two bytes).

Documents never merge across files. Paths may be anything that `tf.io.gfile` opens.
"""

import gzip
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining import formats
from data.pretraining.formats import TEXT_FIELD, Document

__all__ = [
    "TEXT_FIELD",
    "Document",
    "Progress",
    "expand",
    "is_held_out",
    "numbered_lines",
    "read_documents",
    "split_documents",
]

MAX_LINE_BYTES = 256 * 2**20
"""A line is held in memory; beyond this size the newlines are surely missing."""

_BLOCK_BYTES = 2**21
_SHOW_SECONDS = 10


def expand(patterns: str | Iterable[str]) -> list[str]:
    """Files that match a comma-separated list (or an iterable) of globs.

    Returns:
        Paths in the order of the patterns, sorted within each, none twice.

    Raises:
        DataError: If a pattern matches no file, or matches a folder only, or there is no pattern.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    files: dict[str, None] = {}
    for pattern in (p.strip() for p in patterns):
        if not pattern:
            continue
        matches = sorted(tf.io.gfile.glob(pattern))
        found = [path for path in matches if not tf.io.gfile.isdir(path)]
        if not found:
            what = "matches only folders" if matches else "matches no file"
            raise DataError(
                f"The file pattern {pattern!r} {what}. Give one file, a glob such as"
                " 'corpus/*.txt', or a comma-separated list of these."
            )
        files.update(dict.fromkeys(found))
    if not files:
        raise DataError("No input file was given: the list of file patterns is empty.")
    return list(files)


def read_documents(
    files: Sequence[str],
    *,
    text_field: str = TEXT_FIELD,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Streams the documents of `files`, in order.

    Args:
        files: Paths (not patterns, see `expand`).
        text_field: The field that holds the text where a file is JSON lines.
        on_read: Called with a number of bytes each time that so many more have been read, as
            they lie on disk (compressed, if they are). `Progress` is one such.

    Yields:
        Documents of at least one sentence; empty ones (such as articles of a title only) are
        left out.

    Raises:
        DataError: Naming file and line, for bytes that aren't UTF-8, a file that isn't text, a
            damaged gzip file, a line of more than `MAX_LINE_BYTES`, and what `formats.parse`
            refuses.
    """
    for path in files:
        lines = numbered_lines(path, on_read)
        first = next((numbered for numbered in lines if numbered[1]), None)
        if first is not None:
            yield from formats.parse(path, chain([first], lines), first[1], text_field)


class Progress:
    """Logs how far the reading of files is: share, MB/s and remaining time, every ten seconds.

    Args:
        files: The files that will be read, once each; their sizes on disk are the whole.
        what: What is going on, such as "Counting words".
    """

    def __init__(self, files: Sequence[str], what: str):
        self.total = sum(tf.io.gfile.stat(path).length for path in files)
        self.done = 0
        self._what = what
        self._start = self._shown = time.monotonic()

    def __call__(self, size: int) -> None:
        """Takes note of `size` more bytes."""
        self.done += size
        now = time.monotonic()
        if now - self._shown >= _SHOW_SECONDS or self.done >= self.total > self.done - size:
            self._shown = now
            logging.info("%s", self.line(now - self._start))

    def line(self, seconds: float) -> str:
        """The message after so many seconds of work."""
        rate = self.done / max(seconds, 1e-6)
        left = max(0, self.total - self.done) / max(rate, 1e-6)
        return (
            f"{self._what}: {self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB"
            f" ({self.done / max(1, self.total):.0%}), {rate / 1e6:.2f} MB/s,"
            f" {int(left // 60)}:{int(left % 60):02d} left"
        )


def split_documents(
    documents: Iterable[Document], share: float
) -> tuple[list[Document], list[Document]]:
    """Splits documents into training and held-out ones by a stable hash of their text.

    A document's side depends on nothing but its own text and `share`, so copies of one text are
    always on the same side, on every machine and in every order.

    Args:
        documents: Any documents.
        share: Expected share of held-out documents, in (0, 1).

    Returns:
        (training documents, held-out documents), in their order. Unless there are fewer than
        four documents, each side has two at least (the number that next-sentence pairs need):
        documents nearest to the border change sides if necessary.
    """
    documents = list(documents)
    places = [_place(document) for document in documents]
    held_out = {i for i, place in enumerate(places) if place < share}
    if len(documents) >= 4:
        ranked = sorted(range(len(documents)), key=lambda i: (places[i], i))
        size = min(max(len(held_out), 2), len(documents) - 2)
        if size != len(held_out):
            held_out = set(ranked[:size])
    train = [d for i, d in enumerate(documents) if i not in held_out]
    return train, [d for i, d in enumerate(documents) if i in held_out]


def is_held_out(document: Document, share: float) -> bool:
    """Whether the stable hash of `document` puts it on the held-out side; for streams."""
    return _place(document) < share


def _place(document: Document) -> float:
    digest = blake2b(digest_size=8)
    for sentence in document.sentences:
        digest.update(sentence.encode("utf-8", "surrogatepass") + b"\n")
    return int.from_bytes(digest.digest(), "big") / 2**64


def numbered_lines(
    path: str, on_read: Callable[[int], None] | None = None, strip: bool = True
) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, line); only a newline ends a line, not U+2028. Streams.

    Args:
        path, on_read: See `read_documents`.
        strip: Without white space at both ends; else without the newline only.

    Raises:
        DataError: As `read_documents`, but for the formats.
    """
    number, rest = 1, []
    for block in _blocks(path, on_read):
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            if sum(map(len, rest)) > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}:{number}: this line has more than {MAX_LINE_BYTES:,} bytes. Corpus"
                    " files hold a sentence (plain text), a paragraph (WikiExtractor) or an object"
                    " (JSON lines) per line; put newlines between them."
                )
            continue
        text = _decode(b"".join([*rest, block[:end]]), path, number)
        rest = [block[end:]]
        for line in text.split("\n")[:-1]:
            yield number, line.strip() if strip else line
            number += 1
    last = _decode(b"".join(rest), path, number)
    if last:
        yield number, last.strip() if strip else last


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


def _blocks(path: str, on_read: Callable[[int], None] | None) -> Iterator[bytes]:
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except tf.errors.OpError as error:
            raise DataError(f"{path} can't be read: {error.message}.") from None
        stream = gzip.GzipFile(fileobj=file, mode="rb") if compressed else file
        first, reported = True, 0
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(
                    f"{path} is a damaged or truncated gzip file ({error}). Restore it or leave"
                    " it out."
                ) from None
            # What gzip has read ahead counts as well.
            if on_read and (place := file.tell()) > reported:
                on_read(place - reported)
                reported = place
            if not block:
                return
            if first and b"\0" in block:
                line = 1 + block.count(b"\n", 0, block.index(b"\0"))
                raise DataError(
                    f"{path}:{line}: found a zero byte, so this is a binary file or UTF-16."
                    " Corpus files must be UTF-8 text (plain or gzip); convert it or leave it out."
                )
            first = False
            yield block
