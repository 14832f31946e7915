"""Imports TensorFlow without the lines that its C++ side prints before logging can be set.

Scripts and commands import this first. What goes wrong while importing still raises as always.
Later messages from C++ are shown from errors upwards where there is a GPU, else none: on a CPU
the errors are of the kind that no GPU was found. TF_CPP_MIN_LOG_LEVEL changes that.
"""

import contextlib
import glob
import os
import sys
from collections.abc import Iterator

from absl import logging

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if glob.glob("/dev/nvidia*") else "3")


def _import_tensorflow() -> None:
    # The lines come from C++, so Python's sys.stderr is the wrong place to catch them.
    sys.stderr.flush()
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.config.list_physical_devices()  # where there is no GPU, this complains of it
    finally:
        os.dup2(terminal, 2)
        os.close(nowhere)
        os.close(terminal)


if "tensorflow" not in sys.modules:
    _import_tensorflow()


@contextlib.contextmanager
def only_warnings() -> Iterator[None]:
    """Hides what TensorFlow says at INFO about saving; TensorFlow logs through absl too."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
