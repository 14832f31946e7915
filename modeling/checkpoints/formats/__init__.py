"""Readers of checkpoints that other libraries wrote, one file a format."""
