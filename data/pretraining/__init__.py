"""Pre-training data: text → documents → instances → records → batches.

corpus/         files of text to documents
instances/      documents to pairs of segments, masked
records/        the TFRecord schema and its files
writing/        a whole corpus to record files: in parts, by several processes, on a cluster
batches/        records or text to batches, for each training objective
inspection/     what is in record files
domain.py       a corpus that a model is adapted to: its words, its vocabulary
judged_text.py  held-out text that its model is judged by
from_text.py    raw text to vocabulary and records in one call
demo.py         the demo's corpus, sizes and last words
"""
