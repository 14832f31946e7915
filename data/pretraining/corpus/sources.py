"""Corpus files as sources of documents, streaming, whole or by ranges.

    source = open_source("corpus/part-1.parquet")
    for document in source.documents(source.size // 2, source.size):
        …

However [0, size) is cut into consecutive ranges, their documents one after another are those of
the whole file: a range owns the documents that start in it (`formats.py` says where documents
start). So a corpus of any size is divided among workers without reading it before. Documents never
merge across files.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import parquet
from data.files.lines import Lines, first_line
from data.files.streams import file_compression, read_blocks, read_file_head, stored_file_bytes
from data.pretraining.corpus import formats
from data.pretraining.corpus.formats import TEXT_FIELD, Document

WHOLE_BYTES = 32 * 2**20
"""Compressed files up to this size are always read whole."""

_USUAL_RATIO = 4  # Of text to its compressed size
_SHOW_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class CorpusSource:
    """One corpus file; `open_source` makes it. Small and picklable.

    Attributes:
        path: Anything that `tf.io.gfile` opens.
        format: "plain", "wiki", "json" (see `formats.py`) or "parquet".
        compression: "gzip", "bzip2", "xz", "zstd" or None; None for Parquet too, which
            compresses by itself.
        text_field: The field or column that holds the text.
        stored: Bytes on disk.
        weight: Bytes of text, for dividing work: of a compressed file an estimate (four times
            its size), of Parquet the text column's size before compression.
    """

    path: str
    format: str
    compression: str | None
    text_field: str
    stored: int
    weight: int
    rows: int | None = None

    @property
    def divisible(self) -> bool:
        """Whether reading by ranges pays.

        Not so for compressed files of up to `WHOLE_BYTES`: a range of a compressed file is read
        by decompressing from the start.
        """
        return self.compression is None or self.stored > WHOLE_BYTES

    @functools.cached_property
    def size(self) -> int:
        """The file's extent: rows of Parquet, else bytes of uncompressed text.

        Known at once unless the file is compressed: then it is decompressed, once.
        """
        if self.rows is not None:
            return self.rows
        if self.compression is None:
            return self.stored
        return sum(map(len, read_blocks(self.path, self.compression)))

    def documents(
        self,
        begin: int = 0,
        end: int | None = None,
        on_read: Callable[[int], None] | None = None,
    ) -> Iterator[Document]:
        """Streams the documents that start in [begin, end), in the units of `size`.

        Args:
            begin: 0 or more.
            end: None: the end of the file.
            on_read: Called with a number of bytes each time that so many more have been read,
                as they lie on disk; all calls for a whole file sum up to `stored`.
                `CorpusProgress` is one such.

        Yields:
            Documents of at least one sentence, each to its end even if that is beyond `end`;
            empty ones (such as articles of a title only) are left out.

        Raises:
            DataError: Naming the file, and the line or row, for anything that can't be read:
                see `lines.Lines`, `formats.parse_documents` and `parquet.read_column`.
        """
        if self.rows is not None:
            rows = parquet.read_column(self.path, self.text_field, begin, end, on_read)
            documents = (formats.corpus_document(text, source) for source, text in rows)
            return (document for document in documents if document.sentences)
        lines = Lines(self.path, self.compression, begin, end, on_read)
        return formats.parse_documents(lines, self.format, begin, end, self.text_field)


def open_source(path: str, text_field: str = TEXT_FIELD) -> CorpusSource:
    """Looks at the beginning of a file (of Parquet, at its metadata).

    Args:
        path: Anything that `tf.io.gfile` opens: plain text, WikiExtractor's output or JSON
            lines, each compressed or not, or Parquet. Their content tells which, not the name.
        text_field: The field (JSON lines) or column (Parquet) that holds the text.

    Raises:
        DataError: For a file that can't be read, a binary one, Parquet without a column of
            strings `text_field`, and a missing package for Zstandard or Parquet.
    """
    head = read_file_head(path)
    stored = stored_file_bytes(path)
    if head.startswith(parquet.MAGIC):
        rows, weight = parquet.measure_parquet(path, text_field)
        return CorpusSource(path, "parquet", None, text_field, stored, weight, rows)
    if path.lower().endswith(".parquet"):
        raise DataError(
            f"{path} isn't a Parquet file, as its name says: it doesn't begin with"
            f" {parquet.MAGIC.decode()}. Restore it, or rename it if it is text."
        )
    compression = file_compression(head)
    format = formats.corpus_format(first_line(path, compression))
    weight = stored if compression is None else _USUAL_RATIO * stored
    return CorpusSource(path, format, compression, text_field, stored, weight)


def read_documents(
    files: Sequence[str],
    *,
    text_field: str = TEXT_FIELD,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Streams the documents of `files` (paths, not patterns), in order.

    Arguments, results and errors are those of `open_source` and `CorpusSource.documents`; errors
    come when the file's turn comes.
    """
    for path in files:
        yield from open_source(path, text_field).documents(on_read=on_read)


class CorpusProgress:
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


def split_corpus_documents(
    documents: Iterable[Document], share: float
) -> tuple[list[Document], list[Document]]:
    """Splits documents into training and held-out ones by a stable hash of their text.

    A document's side depends on nothing but its own text and `share` (in (0, 1), of held-out ones),
    so copies of one text are on the same side, on every machine and in every order.

    Returns:
        (training documents, held-out documents), in their order. Unless there are fewer than
        four documents, each side has two at least (the number that next-sentence pairs need):
        documents nearest to the border change sides if necessary, with all their copies unless
        that would move more than as many again. Documents of a single word, such as headings,
        which make no pairs, don't count where a side would have less than two others.
    """
    documents = list(documents)
    places = [_place(document) for document in documents]
    below = {i for i, place in enumerate(places) if place < share}

    def split(counting: Sequence[int]) -> set[int]:
        chosen = below & set(counting)
        size = min(max(len(chosen), 2), len(counting) - 2)
        if size == len(chosen):
            return below
        ranked = sorted(counting, key=lambda i: (places[i], i))
        between = [
            n
            for n in range(2, len(counting) - 1)
            if abs(n - size) <= size and places[ranked[n - 1]] != places[ranked[n]]
        ]
        size = min(between, key=lambda n: abs(n - size), default=size)
        return below - chosen | set(ranked[:size])

    held_out = split(range(len(documents))) if len(documents) >= 4 else below
    full = [i for i, document in enumerate(documents) if not _is_one_word(document)]
    if len(full) >= 4 and not 2 <= len(held_out & set(full)) <= len(full) - 2:
        held_out = split(full)
    train = [d for i, d in enumerate(documents) if i not in held_out]
    return train, [d for i, d in enumerate(documents) if i in held_out]


def _is_one_word(document: Document) -> bool:
    """For certain: a word in other letters may be many characters that are words each."""
    (first, *others) = document.sentences or [""]
    return not others and first.isascii() and first.isalnum()


def is_held_out_of_corpus(document: Document, share: float) -> bool:
    """Whether the stable hash of `document` puts it on the held-out side; for streams."""
    return _place(document) < share


def corpus_document_hash(document: Document) -> int:
    """64 bits of BLAKE2b of the sentences; equal for exact copies, whatever file they stand in.

    Among a million documents that differ, any two agree with a probability of 3e-8; among a
    thousand million, of 3 %.
    """
    text = "\n".join([*document.sentences, ""])
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def _place(document: Document) -> float:
    return corpus_document_hash(document) / 2**64


def warn_of_common_files(train_files: Sequence[str], eval_files: Sequence[str]) -> None:
    """Says which files are both trained on and evaluated on."""
    places = {os.path.realpath(path) for path in train_files}
    both = [path for path in eval_files if os.path.realpath(path) in places]
    if both:
        logging.warning(
            "%d of the files to evaluate on are trained on as well, and results on them say little:"
            " %s",
            len(both),
            ", ".join(both[:3]),
        )
