"""Corpus files to record files, on one machine or many.

jobs.py           what is to be made, in parts that anyone can make in any order
local.py          on this machine, in several processes
beam_pipeline.py  on a cluster
shards.py         files that are there whole or not at all
manifest.py       what a finished job tells of its files, and checking them by it
"""
