"""A corpus file as a source of documents that can be read by ranges.

    source = open_source("corpus/part-1.parquet")
    for document in source.documents(source.size // 2, source.size):
        …

However [0, size) is cut into consecutive ranges, their documents one after another are those of
the whole file: a range owns the documents that start in it (`formats.py` says where documents
start). So a corpus of any size is divided among workers without reading it before.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

from data.errors import DataError
from data.files import parquet
from data.files.lines import Lines, first_line
from data.files.streams import compression_of, read_blocks, read_head, stored_bytes
from data.pretraining.corpus import formats
from data.pretraining.corpus.formats import TEXT_FIELD, Document

WHOLE_BYTES = 32 * 2**20
"""Compressed files up to this size are always read whole."""

_USUAL_RATIO = 4  # Of text to its compressed size


@dataclasses.dataclass(frozen=True)
class Source:
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

        Yields:
            Documents of at least one sentence, each to its end even if that is beyond `end`;
            empty ones (such as articles of a title only) are left out.

        Raises:
            DataError: Naming the file, and the line or row, for anything that can't be read:
                see `lines.Lines`, `formats.parse` and `parquet.read_column`.
        """
        if self.rows is not None:
            rows = parquet.read_column(self.path, self.text_field, begin, end, on_read)
            documents = (formats.document_of(text, source) for source, text in rows)
            return (document for document in documents if document.sentences)
        lines = Lines(self.path, self.compression, begin, end, on_read)
        return formats.parse(lines, self.format, begin, end, self.text_field)


def open_source(path: str, text_field: str = TEXT_FIELD) -> Source:
    """Looks at the beginning of a file (of Parquet, at its metadata).

    Args:
        path: Anything that `tf.io.gfile` opens: plain text, WikiExtractor's output or JSON
            lines, each compressed or not, or Parquet. Their content tells which, not the name.
        text_field: The field (JSON lines) or column (Parquet) that holds the text.

    Raises:
        DataError: For a file that can't be read, a binary one, Parquet without a column of
            strings `text_field`, and a missing package for Zstandard or Parquet.
    """
    head = read_head(path)
    stored = stored_bytes(path)
    if head.startswith(parquet.MAGIC):
        rows, weight = parquet.measure(path, text_field)
        return Source(path, "parquet", None, text_field, stored, weight, rows)
    if path.lower().endswith(".parquet"):
        raise DataError(
            f"{path} isn't a Parquet file, as its name says: it doesn't begin with"
            f" {parquet.MAGIC.decode()}. Restore it, or rename it if it is text."
        )
    compression = compression_of(head)
    format = formats.format_of(first_line(path, compression))
    weight = stored if compression is None else _USUAL_RATIO * stored
    return Source(path, format, compression, text_field, stored, weight)
