"""What a run logs: progress of long work, and not TensorFlow's own remarks."""

import contextlib
import time
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


class ProgressLog:
    """Says how far long work outside of training has come, and how long it will still take.

    Args:
        unit: What is counted: "questions".
        total: How many there will be, if known.
        seconds: Least time between two lines.
    """

    def __init__(self, unit: str, total: int | None = None, seconds: float = 5.0):
        self.unit = unit
        self.total = total
        self.done = 0
        self._seconds = seconds
        self._start = self._shown = time.monotonic()

    def add(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        now = time.monotonic()
        finished = self.done == self.total
        if now - self._shown < self._seconds and not finished:
            return
        self._shown = now
        rate = self.done / max(now - self._start, 1e-6)
        text = f"{self.done:,} {self.unit}, {rate:,.1f} a second"
        if self.total and not finished:
            text += f", {self.done / self.total:.0%}, ETA {(self.total - self.done) / rate:.0f} s"
        logging.info("%s", text)
