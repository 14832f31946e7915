"""Learning a WordPiece vocabulary, or teaching a released one new words."""
