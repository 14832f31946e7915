"""What the owners' programs share: sizes, random weights, inputs and what is kept of them.

A program writes each checkpoint into OUT/NAME and what went in and came out into OUT/NAME.npz. The
first part of NAME is one of `SIZES`. The interpreters differ; all of them have NumPy.
"""

import pathlib
import zlib

import numpy as np

SIZES = {
    "a": {
        "vocab_size": 131,
        "hidden_size": 36,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "intermediate_size": 52,
        "max_position_embeddings": 40,
        "type_vocab_size": 1,
    },
    "b": {
        "vocab_size": 203,
        "hidden_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 72,
        "max_position_embeddings": 50,
        "type_vocab_size": 2,
    },
    "c": {
        "vocab_size": 157,
        "hidden_size": 30,
        "num_hidden_layers": 12,
        "num_attention_heads": 5,
        "intermediate_size": 44,
        "max_position_embeddings": 33,
        "type_vocab_size": 3,
    },
}
"""Fields of Hugging Face's configuration, and of ours."""
ROWS, LENGTH = 3, 11
INPUTS = ("input_ids", "input_mask", "segment_ids")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def sizes_of(name: str) -> dict[str, int]:
    """The sizes of the checkpoint of this name."""
    return SIZES[name[0]]


def drawn(name: str, weight: str, shape) -> np.ndarray:
    """A weight of the checkpoint of this name, norms and biases too; no gamma is near 0."""
    gamma = weight.removesuffix(":0").endswith(("gamma", "LayerNorm.weight", "layer_norm.weight"))
    rng = np.random.default_rng(zlib.crc32(f"{name} {weight}".encode()))
    return rng.normal(float(gamma), 0.2, tuple(shape)).astype(np.float32)


def inputs_of(name: str) -> dict[str, np.ndarray]:
    """int32 [3, 11] each; all rows but the first are padded."""
    sizes = sizes_of(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    mask = (np.arange(LENGTH) < np.array([[LENGTH], [4], [7]])).astype(np.int32)
    ids = rng.integers(len(_SPECIAL), sizes["vocab_size"], mask.shape) * mask
    segments = rng.integers(0, sizes["type_vocab_size"], mask.shape) * mask
    return dict(zip(INPUTS, (ids.astype(np.int32), mask, segments.astype(np.int32)), strict=True))


def every_position() -> np.ndarray:
    """int32 [3, 11]: where words are masked, if all are."""
    return np.tile(np.arange(LENGTH, dtype=np.int32), [ROWS, 1])


def vocabulary_of(name: str, cased: bool) -> list[str]:
    """As many tokens as there are ids, all different."""
    letter = "W" if cased else "w"
    return [*_SPECIAL, *(f"{letter}{n}" for n in range(sizes_of(name)["vocab_size"] - 5))]


def write_vocabulary(path: pathlib.Path, name: str, cased: bool) -> str:
    """The path, once the vocabulary is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{token}\n" for token in vocabulary_of(name, cased)))
    return str(path)


def keep(folder: pathlib.Path, name: str, outputs) -> None:
    """Writes the inputs and what the library computed of them, under our names."""
    arrays = {key: np.asarray(value, np.float32) for key, value in outputs.items()}
    np.savez(folder / f"{name}.npz", **inputs_of(name), **arrays)
