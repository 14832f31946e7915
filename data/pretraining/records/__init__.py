"""The TFRecord files.

schema.py         encoding, checking, finding a bad record
record_files.py   compression, counting
held_out.py       which records are kept from training
"""
