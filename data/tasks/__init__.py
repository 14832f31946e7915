"""Task data: reading, features, answers back to text."""
