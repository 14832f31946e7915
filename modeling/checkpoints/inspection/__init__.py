"""What a folder could hold, and which of the original's releases it is."""
