"""Pre-training data: corpus text → documents → instances → TFRecords → batches.

corpus.py      files of text, compressed or not, to lines; globs, progress, held-out documents
formats.py     lines to documents of sentences: plain text, WikiExtractor, JSON lines
sentences.py   splitting a paragraph into sentences
docstrings.py  the default corpus that every machine has: docstrings of installed packages
instances.py   documents to pairs of segments (next-sentence labels, lengths, truncation)
masking.py     which pieces are masked, and what stands in their place
records.py     the TFRecord schema: writing, counting, checking, finding a bad record
generate.py    all of the above in one streaming pass
pipeline.py    TFRecords to batches in tf.data, for each training objective
from_text.py   raw text to vocabulary and records in one call
probes.py      small questions to a masked LM about its held-out text
demo.py        the demo's corpus, sizes and last words
"""
