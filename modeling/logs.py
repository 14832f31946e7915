"""Keeping TensorFlow's own remarks out of a run's log."""

import contextlib
from collections.abc import Iterator

from absl import logging


@contextlib.contextmanager
def only_warnings() -> Iterator[None]:
    """Hides what TensorFlow says at INFO, for example about saving; it logs through absl too."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
