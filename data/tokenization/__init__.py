"""Text to WordPiece ids, in the graph; vocabularies and model inputs."""

from data.tokenization.inputs import build_inputs
from data.tokenization.tokenizer import Tokenizer

__all__ = ["Tokenizer", "build_inputs"]
