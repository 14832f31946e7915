"""The parts of a BERT: embeddings, attention, encoder, heads, and how they are computed."""
