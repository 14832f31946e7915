"""Text: files of any kind and size to documents of sentences.

sources.py       files as streams of documents, whole or by ranges; held-out documents; progress
parts.py         a corpus divided into parts of about one size
formats.py       lines to documents: plain text, WikiExtractor, JSON lines
sentences.py     splitting a paragraph into sentences
docstrings.py    the default corpus that every machine has: docstrings of installed packages
"""

from data.files.text_files import expand
from data.pretraining.corpus.formats import TEXT_FIELD, Document, corpus_format
from data.pretraining.corpus.sources import (
    CorpusProgress,
    CorpusSource,
    corpus_document_hash,
    is_held_out_of_corpus,
    open_source,
    read_documents,
    split_corpus_documents,
    warn_of_common_files,
)

__all__ = [
    "TEXT_FIELD",
    "CorpusProgress",
    "CorpusSource",
    "Document",
    "corpus_document_hash",
    "corpus_format",
    "expand",
    "is_held_out_of_corpus",
    "open_source",
    "read_documents",
    "split_corpus_documents",
    "warn_of_common_files",
]
