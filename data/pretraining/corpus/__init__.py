"""Text: files of any kind and size to documents of sentences.

files.py         the room's door: streams of documents, held-out documents, progress
sources.py       one file, read by ranges
parts.py         a corpus divided into parts of about one size
formats.py       lines to documents: plain text, WikiExtractor, JSON lines
sentences.py     splitting a paragraph into sentences
docstrings.py    the default corpus that every machine has: docstrings of installed packages
"""

from data.files.text_files import expand
from data.pretraining.corpus.files import (
    ReadingProgress,
    document_hash,
    is_held_out,
    read_documents,
    split_documents,
)
from data.pretraining.corpus.formats import TEXT_FIELD, Document
from data.pretraining.corpus.sources import Source, open_source

__all__ = [
    "TEXT_FIELD",
    "Document",
    "ReadingProgress",
    "Source",
    "document_hash",
    "expand",
    "is_held_out",
    "open_source",
    "read_documents",
    "split_documents",
]
