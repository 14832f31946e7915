"""Readers of other libraries' checkpoints, one file for each library's way of laying them out."""
