"""A student learns from teachers: soft answers, layers, and where a run keeps what they said."""
