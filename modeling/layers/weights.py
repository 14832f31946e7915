"""How layers read their large weights: as they are, or as an export keeps them.

with kept_as({id(layer.kernel): Int8(values, scales)}):
    outputs = model(inputs)

Training reads Keras variables. An exported model may keep its matrices in fewer bits; then the
layers read those instead, without knowing.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Protocol

from keras import ops


class Kept(Protocol):
    """A matrix that is stored in another form."""

    def read(self, dtype: str):
        """All of it as a tensor."""

    def rows(self, numbers, dtype: str):
        """Some of its rows: int32 [...] → [..., columns]."""


_KEPT: contextvars.ContextVar[Mapping[int, Kept]] = contextvars.ContextVar("kept", default={})  # noqa: B039


@contextlib.contextmanager
def kept_as(kept: Mapping[int, Kept]) -> Iterator[None]:
    """Within it the variables with these `id`s are read from elsewhere."""
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def read(weight, dtype: str):
    """A weight as a tensor; `dtype` is what the layer computes in."""
    kept = _KEPT.get().get(id(weight))
    return ops.convert_to_tensor(weight) if kept is None else kept.read(dtype)


def read_rows(table, numbers, dtype: str):
    """Rows of a table [rows, columns]: int32 [...] → [..., columns]."""
    kept = _KEPT.get().get(id(table))
    return ops.take(table, numbers, axis=0) if kept is None else kept.rows(numbers, dtype)
