"""What long work shows while it lasts, and not TensorFlow's own remarks.

    with activity("Predicting", "questions", len(questions)) as progress:
        for some in portions:
            ...
            progress.add(len(some))

On a terminal the activity stands at the foot, with a bar where it is known how much there is.
Elsewhere a line tells of it once nothing has been logged for ten seconds, and again after the next
ten: what is going on, how far it is, or how long it has lasted. Scripts and commands do so
(`errors.run` calls `break_silence`); a program that uses the packages sees none of it.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from logging import INFO, Handler, LogRecord, getLogger
from typing import TypeVar

from absl import logging
from tqdm import tqdm

Item = TypeVar("Item")

SILENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.5  # between two looks at how long it has been silent
_BAR_SECONDS = 0.1  # between two drawings of a bar
_UNBOUNDED = "{desc}  {elapsed}"
_BOUNDED = "{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}  {desc}"


@contextlib.contextmanager
def only_warnings() -> Iterator[None]:
    """Hides what TensorFlow says at INFO, for example about saving; it logs through absl too."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def duration_text(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Activity:
    """Something that may last; of several the one begun last is shown.

    Args:
        what: In words, "Compiling the training step".
        unit: What is counted: "questions".
        total: How many there will be, if known; may be set later.

    Attributes:
        done: How many are.
    """

    def __init__(self, what: str, unit: str = "", total: int | None = None):
        self.what = what
        self.unit = unit
        self.total = total
        self.done = 0
        self._note = ""
        self._begin = time.monotonic()
        self._drawn = 0.0
        self._bar: tqdm | None = None

    def add(self, count: int) -> None:
        """So many more are done."""
        self.show(self.done + count, self.total)

    def show(self, done: int, total: int | None = None, note: str | None = None) -> None:
        """Tells how far it is.

        Args:
            done: How many are done by now.
            total: Of how many.
            note: What else is to be shown, in place of the speed and the time left.
        """
        self.done, self.total = done, total
        self._note = "" if note is None else note
        if time.monotonic() - self._drawn > _BAR_SECONDS:
            self.draw()

    def line(self) -> str:
        """What it is and how far, for the log."""
        seconds = time.monotonic() - self._begin
        if not self.done:
            return f"{self.what}: {duration_text(seconds)} so far"
        count = f"{self.done:,}"
        if self.total:
            count += f" of {self.total:,}"
        text = f"{self.what}: {count} {self.unit}".rstrip()
        if self.total:
            text += f", {self.done / self.total:.0%}"
        return f"{text}, {self._note or self._pace(seconds)}"

    def _pace(self, seconds: float) -> str:
        rate = self.done / max(seconds, 1e-6)
        text = f"{rate:,.1f} a second"
        if self.total and rate:
            text += f", ETA {duration_text((self.total - self.done) / rate)}"
        return text

    def draw(self) -> None:
        """Draws it at the foot of the terminal, if there is one and it is this one's turn."""
        if not (_silence and _silence.terminal):
            return
        with _drawing:
            # Asked here, as another thread may just have ended it and taken it off the terminal.
            if not (_under_way and _under_way[-1] is self):
                return
            if self._bar is None:
                self._bar = tqdm(
                    total=self.total,
                    file=sys.stderr,
                    leave=False,
                    dynamic_ncols=True,
                    bar_format=_BOUNDED if self.total else _UNBOUNDED,
                )
            self._bar.bar_format = _BOUNDED if self.total else _UNBOUNDED
            self._bar.n, self._bar.total = self.done, self.total
            pace = self._note or (self._pace(time.monotonic() - self._begin) if self.done else "")
            self._bar.set_description_str(f"{self.what}  {pace}".rstrip(), refresh=False)
            self._bar.refresh()
            self._drawn = time.monotonic()

    def wipe(self) -> None:
        """Takes it off the terminal."""
        with _drawing:
            if self._bar is not None:
                self._bar.close()
                self._bar = None


_under_way: list[Activity] = []
_drawing = threading.RLock()


@contextlib.contextmanager
def activity(what: str, unit: str = "", total: int | None = None) -> Iterator[Activity]:
    """An `Activity` for as long as the block lasts; the arguments are its."""
    begun = Activity(what, unit, total)
    begin_activity(begun)
    try:
        yield begun
    finally:
        end_activity(begun)


def counted(what: str, unit: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items, one after the other, with an `activity` of so many."""
    with activity(what, unit, len(items)) as progress:
        for item in items:
            yield item
            progress.add(1)


def begin_activity(begun: Activity) -> None:
    """Shows it from now on, above those that are under way."""
    with _drawing:
        for other in _under_way[-1:]:
            other.wipe()
        _under_way.append(begun)


def end_activity(ended: Activity) -> None:
    """Shows it no longer."""
    with _drawing:
        with contextlib.suppress(ValueError):
            _under_way.remove(ended)
        ended.wipe()


class _Silence(threading.Thread):
    """Breaks it: tells of the last activity when nothing was logged for so long."""

    def __init__(self):
        super().__init__(daemon=True)
        self.terminal = sys.stderr.isatty()
        # As --verbosity says; while TensorFlow saves, `only_warnings` hides what is below.
        self._wanted = logging.get_verbosity() >= logging.INFO
        self._heard = time.monotonic()

    def filter(self, record: LogRecord) -> bool:
        """A filter of the handler, to know when something was logged."""
        self._heard = time.monotonic()
        return True

    def run(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            for last in _under_way[-1:]:
                if self.terminal:
                    last.draw()
                elif self._wanted and time.monotonic() - self._heard >= SILENCE_SECONDS:
                    self._tell("; ".join(one.line() for one in _under_way[-2:]))

    def _tell(self, text: str) -> None:
        root = getLogger()
        root.handle(root.makeRecord("absl", INFO, __file__, 0, text, (), None))


class _AboveBar(Handler):
    """Wipes the bar, lets the handlers in its care print, and draws the bar again."""

    def __init__(self, handlers: list[Handler]):
        super().__init__()
        self.handlers = handlers

    def emit(self, record: LogRecord) -> None:
        with _drawing, tqdm.external_write_mode(file=sys.stderr):
            for handler in self.handlers:
                if record.levelno >= handler.level:
                    handler.handle(record)


_silence: _Silence | None = None


def break_silence() -> None:
    """From now on activities are shown, see above; once absl logs through its handler.

    Forked processes show nothing: threads stay behind.
    """
    global _silence
    if _silence is not None:
        return
    _silence = _Silence()
    logging.get_absl_handler().addFilter(_silence)
    if _silence.terminal:
        tqdm.set_lock(threading.RLock())  # the default one also serves processes; not needed
        root = getLogger()
        # absl's handler is none of those that tqdm.contrib.logging knows how to redirect.
        root.handlers = [_AboveBar(root.handlers)]
    _silence.start()
