"""Question answering: reading SQuAD's format, windows, answers, scores."""
