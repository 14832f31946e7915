"""Writes a tiny BERT with random weights, as released ones are: what documents' commands run on.

python -m tests.readme.tiny_model FOLDER
"""

from modeling import quiet  # noqa: F401  isort: skip

import pathlib
import string
import sys

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertPretrainer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "of", "and", "was", "it", "he", "said", "so", "film", "good", "bad"]


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    characters = string.ascii_lowercase + string.digits
    pieces = [*characters, *string.punctuation, *(f"##{character}" for character in characters)]
    vocabulary = [*SPECIAL, *WORDS, *pieces]
    (folder / "words.txt").write_text("\n".join(vocabulary) + "\n")
    model = BertPretrainer(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=512,
        )
    )
    model.build()
    checkpoints.save(model, folder, folder / "words.txt")
    (folder / "words.txt").unlink()


if __name__ == "__main__":
    main()
