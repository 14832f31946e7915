"""Documents to training instances.

settings.py     every choice that the instances depend on
pairs.py        segments: pairs with next-sentence labels, or single ones
masking.py      which pieces are masked, and what stands in their place
word_spans.py   the places: pieces, whole words, spans of words
generate.py     all of it, streaming, for the documents of one part
"""
