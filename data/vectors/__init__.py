"""Vectors of a frozen encoder: texts to its inputs, stored and read."""
