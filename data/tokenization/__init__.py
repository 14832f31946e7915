"""Text to WordPiece ids, in the graph; vocabularies and model inputs."""

from data.tokenization.inputs import build_choice_inputs, build_inputs
from data.tokenization.offsets import bytes_to_characters
from data.tokenization.tokenizer import Pieces, Tokenizer, WordPieces

__all__ = [
    "Pieces",
    "Tokenizer",
    "WordPieces",
    "build_choice_inputs",
    "build_inputs",
    "bytes_to_characters",
]
