"""Smaller models cut out of trained ones: where distillation starts from."""
