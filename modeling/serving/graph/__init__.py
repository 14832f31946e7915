"""How an export computes: its matrices, and the encoder in branches."""
