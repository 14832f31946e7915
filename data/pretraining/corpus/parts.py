"""A corpus divided by size into parts, each of which can be read by itself.

    corpus = divide(["a.txt", "b.jsonl.gz"], lambda text_bytes: 1 + text_bytes // PART_BYTES)

Nothing but the files' sizes is read to divide
them, unless they are compressed and large (see `sources.CorpusSource`).
"""

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from data.pretraining import corpus
from data.pretraining.corpus import Document

PART_BYTES = 8 * 2**20
"""Text of a part, about: small enough for bounded memory, large enough for random segments."""
SEGMENTS = 16


@dataclass(frozen=True)
class CorpusSpan:
    """Documents of one file: those that start in [begin, end), in `corpus.CorpusSource`'s units."""

    path: str
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class CorpusParts:
    """A divided corpus. Made by `divide_corpus`.

    Attributes:
        files: (path, size, time of change in ns) of the files.
        text_field: The field or column that holds the text, where files have such.
        held_out: None for all documents; ("train" or "eval", share) for one side of
            `corpus.is_held_out_of_corpus`.
        spans: Of each part.
        text_bytes: Of the whole, about.
    """

    files: tuple[tuple[str, int, int], ...]
    text_field: str
    held_out: tuple[str, float] | None
    spans: tuple[tuple[CorpusSpan, ...], ...]
    text_bytes: int

    def __len__(self) -> int:
        return len(self.spans)

    def documents(self, number: int) -> Iterator[Document]:
        """Streams the documents of one part."""
        for span in self.spans[number]:
            source = corpus.open_source(span.path, self.text_field)
            for document in source.documents(span.begin, span.end):
                if self.held_out is None:
                    yield document
                    continue
                side, share = self.held_out
                if corpus.is_held_out_of_corpus(document, share) == (side == "eval"):
                    yield document

    def joined(self, other: "CorpusParts") -> "CorpusParts":
        """Each part with the same part of another corpus behind it, so that all have some of both.

        What tells a corpus from others, `files`, stays as it is.
        """
        spans = tuple(own + more for own, more in zip(self.spans, other.spans, strict=True))
        text_bytes = self.text_bytes + other.text_bytes
        return dataclasses.replace(self, spans=spans, text_bytes=text_bytes)

    def behind(self, number: int) -> Iterator[int]:
        """The other parts: those behind this one, then those before it."""
        return ((number + offset) % len(self) for offset in range(1, len(self)))

    def names(self) -> str:
        """The first files, for messages."""
        more = len(self.files) - 3
        shown = ", ".join(path for path, _, _ in self.files[:3])
        return f"{shown} and {more} more files" if more > 0 else shown


def divide_corpus(
    files: Sequence[str],
    number_of_parts: Callable[[int], int],
    text_field: str = corpus.TEXT_FIELD,
    held_out: tuple[str, float] | None = None,
    segments: int = SEGMENTS,
) -> CorpusParts:
    """Divides a corpus into parts of about one size.

    Args:
        files, text_field, held_out: See `CorpusParts`.
        number_of_parts: From the bytes of text, about, to how many parts to make.
        segments: Most pieces that a compressed file is read in, each by decompressing from its
            start; further parts of it stay empty.

    Raises:
        DataError: A file can't be read.
    """
    sources = [corpus.open_source(path, text_field) for path in files]
    total = sum(source.weight for source in sources)
    stats = [tf.io.gfile.stat(path) for path in files]
    return CorpusParts(
        tuple((f, s.length, s.mtime_nsec) for f, s in zip(files, stats, strict=True)),
        text_field,
        held_out,
        tuple(_spans(sources, total, number_of_parts(total), segments)),
        total,
    )


def _spans(
    sources: Sequence[corpus.CorpusSource], total: int, count: int, segments: int
) -> Iterator[tuple[CorpusSpan, ...]]:
    """The spans of each of `count` parts of equal weight."""
    borders = [total * k // count for k in range(count)] + [total + 1]
    starts = np.cumsum([0] + [source.weight for source in sources]).tolist()
    for low, high in itertools.pairwise(borders):
        spans = []
        number = max(0, bisect.bisect_right(starts, low) - 1)
        while number < len(sources) and starts[number] < high:
            source, start = sources[number], starts[number]
            end = start + source.weight
            if not source.divisible or (low <= start and end <= high):
                if low <= start:
                    spans.append(CorpusSpan(source.path))
            elif low < end:
                first = _place(source, start, segments, low)
                last = None if end <= high else _place(source, start, segments, high)
                if first != last:
                    spans.append(CorpusSpan(source.path, first, last))
            number += 1
        yield tuple(spans)


def _place(source: corpus.CorpusSource, start: int, segments: int, border: int) -> int:
    """Where in a source, in its units, a border of parts lies."""
    inside = max(0, border - start)
    if source.compression is not None:
        segment = max(1, source.weight // segments)
        inside = inside // segment * segment
    return inside * source.size // source.weight
