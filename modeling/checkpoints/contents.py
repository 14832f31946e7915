"""What a checkpoint holds, whatever its format: names, shapes, and a way to read each tensor."""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass
class Contents:
    """The weights of one checkpoint under the original's names; tensors are read on demand.

    Attributes:
        path: The file (or TF1 prefix) for messages.
        format: "tf1" or "huggingface".
        shapes: Original name → shape as the original stores it (kernels are [in, out]).
        file_names: Original name → the name in the file.
        unmapped: Names in the file that stand for no known BERT weight.
        ignored: Names in the file that are no weights: optimizer slots, step, position buffers.
        read: Original name → tensor in that shape; half precision comes as float32.
        untied_decoder: The file has a masked-LM output matrix that differs from its word
            embeddings, which no model here can hold; its name is among `unmapped`.
    """

    path: str
    format: str
    shapes: dict[str, tuple[int, ...]]
    file_names: dict[str, str]
    unmapped: list[str]
    ignored: list[str]
    read: Callable[[str], np.ndarray]
    untied_decoder: bool = False


def weights_as_float32(array: np.ndarray) -> np.ndarray:
    """Widens half precision (float16, bfloat16) to float32, which is exact; leaves the rest."""
    if array.dtype == np.float16 or array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array
