"""From logits to answers, in the graph: spans, tags, words for [MASK]."""
