"""The TFRecord files.

schema.py         encoding, checking, finding a bad record
record_files.py   compression, counting
shard_marks.py    what a file says of itself in its first record
record_sets.py    whether files are all of their sets, whole, and of one vocabulary
held_out.py       which records are kept from training
"""
