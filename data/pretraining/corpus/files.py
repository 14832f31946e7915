"""Corpus files to documents, streaming, whatever the size.

Plain text, WikiExtractor's output and JSON lines (see `formats.py`), each as it is or compressed
(see `data/files/streams.py`), and Parquet, told apart by their content.

Documents never merge across files. Paths may be anything that `tf.io.gfile` opens. `sources.py`
reads ranges of files.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

import tensorflow as tf
from absl import logging

from data.pretraining.corpus.formats import TEXT_FIELD, Document
from data.pretraining.corpus.sources import open_source

_SHOW_SECONDS = 10


def read_documents(
    files: Sequence[str],
    *,
    text_field: str = TEXT_FIELD,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Streams the documents of `files`, in order.

    Args:
        files: Paths (not patterns, see `expand`).
        text_field: The field (JSON lines) or column (Parquet) that holds the text.
        on_read: Called with a number of bytes each time that so many more have been read, as
            they lie on disk (compressed, if they are). `ReadingProgress` is one such.

    Yields:
        Documents of at least one sentence; empty ones (such as articles of a title only) are
        left out.

    Raises:
        DataError: As `open_source` and `Source.documents`, when the file's turn comes.
    """
    for path in files:
        yield from open_source(path, text_field).documents(on_read=on_read)


class ReadingProgress:
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


def document_hash(document: Document) -> int:
    """64 bits of BLAKE2b of the sentences; equal for exact copies, whatever file they stand in.

    Among a million documents that differ, any two agree with a probability of 3e-8; among a
    thousand million, of 3 %.
    """
    text = "\n".join([*document.sentences, ""])
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def _place(document: Document) -> float:
    return document_hash(document) / 2**64
