"""Pairs of texts with a rating from 1 to 5: reading, scores, results."""
