"""A frozen encoder's vectors of texts, pieces and words, and a tagger on them (paper, 5.3)."""
