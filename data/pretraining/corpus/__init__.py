"""Text: files of any kind and size to documents of sentences.

files.py         the room's door: globs, streams of documents, held-out documents, progress
sources.py       one file, read by ranges
parts.py         a corpus divided into parts of about one size
lines.py         ranges of lines
compression.py   gzip, bzip2, zstd
formats.py       lines to documents: plain text, WikiExtractor, JSON lines
parquet.py       rows to documents
sentences.py     splitting a paragraph into sentences
docstrings.py    the default corpus that every machine has: docstrings of installed packages
"""

from data.files.corpus_lines import numbered_lines
from data.pretraining.corpus.files import (
    Progress,
    document_hash,
    expand,
    is_held_out,
    read_documents,
    split_documents,
)
from data.pretraining.corpus.formats import TEXT_FIELD, Document
from data.pretraining.corpus.sources import Source, open_source

__all__ = [
    "TEXT_FIELD",
    "Document",
    "Progress",
    "Source",
    "document_hash",
    "expand",
    "is_held_out",
    "numbered_lines",
    "open_source",
    "read_documents",
    "split_documents",
]
