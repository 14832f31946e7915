"""Tagging words: reading CoNLL's format and JSON lines, rows, schemes, scores."""
