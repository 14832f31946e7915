"""What a checkpoint holds, whatever its format: names, shapes, and a way to read each tensor."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from modeling.errors import ModelingError


@dataclasses.dataclass
class Contents:
    """The weights of one checkpoint under the original's names; tensors are read on demand.

    Attributes:
        path: The file (or TF1 prefix) for messages.
        format: Short name of the format, such as "tf1" or "huggingface".
        shapes: Original name → shape as the original stores it (kernels are [in, out]).
        file_names: Original name → the name in the file.
        unmapped: Names in the file that stand for no known BERT weight.
        ignored: Names in the file that are no weights: optimizer slots, step, position buffers.
        read: Original name → tensor in that shape, see `checked_weight`.
        untied_decoder: The file has a masked-LM output matrix that differs from its word
            embeddings, which no model here can hold; its name is among `unmapped`.
        num_attention_heads: Heads per layer where the file's own shapes tell them.
        head: The kind of head, one of `config.HEADS`, where the format's own names tell it.
        masked_lm: Fields of `BertConfig` that tell how the file's library computes its masked-LM
            head, where no configuration of that library does.
    """

    path: str
    format: str
    shapes: dict[str, tuple[int, ...]]
    file_names: dict[str, str]
    unmapped: list[str]
    ignored: list[str]
    read: Callable[[str], np.ndarray]
    untied_decoder: bool = False
    num_attention_heads: int | None = None
    head: str | None = None
    masked_lm: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def checked_weight(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """A weight as it comes from a file, half precision widened to float32.

    Raises:
        ModelingError: It holds NaN or infinity, so that such a model answers nothing but NaN; or
            something else than floating-point numbers.
    """
    array = weights_as_float32(array)
    if array.dtype.kind != "f":
        raise ModelingError(
            f"Tensor {name} in {path} is of {array.dtype.name}; a weight is a floating-point "
            f"number. The file is damaged or quantised: copy or download it again, or another."
        )
    bad = np.count_nonzero(~np.isfinite(array))
    if bad:
        raise ModelingError(
            f"Tensor {name} in {path} isn't finite: {bad:,} of its {array.size:,} numbers are NaN "
            f"or infinite, and so would the model's answers be. The run that wrote it has "
            f"diverged, or the file is damaged: take an earlier checkpoint, or copy or download "
            f"it again."
        )
    return array


def weights_as_float32(array: np.ndarray) -> np.ndarray:
    """Widens half precision (float16, bfloat16) to float32, which is exact; leaves the rest."""
    if array.dtype == np.float16 or array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array
