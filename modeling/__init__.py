"""BERT in Keras 3: layers, checkpoints, training, serving. Knows tensors, never files of text.

`from_pretrained` and `save_pretrained` are the one exception, see pretrained.py.
"""

import importlib

__all__ = ["from_pretrained", "save_pretrained"]


def __getattr__(name: str):
    # When asked for: TensorFlow takes seconds, and the scripts answer --help without it.
    if name in __all__:
        return getattr(importlib.import_module("modeling.pretrained"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
