"""What answers requests: predictions in words, and SavedModels."""
