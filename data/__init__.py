"""Text and files to tensors: tokenization, pre-training data, task data. Knows no models."""
