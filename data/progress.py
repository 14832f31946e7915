"""How far long work on data is, for whoever shows it.

As with logging, those who work say so, and a program decides what becomes of it: the scripts let
`modeling.logs.activity` show it. Without a `show_with` nothing is shown, and nothing is slower.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
_ITEMS_AT_ONCE = 4096


class Shown(Protocol):
    """What a shower gives for as long as the work lasts."""

    def add(self, count: int) -> None:
        """So many more are done."""


class _Unseen:
    def add(self, count: int) -> None:
        pass


Show = Callable[[str, str, int | None], AbstractContextManager[Shown]]
"""Called with what is done in words, the unit and the number of all units, if it is known."""

_show: Show = lambda *_: contextlib.nullcontext(_Unseen())  # noqa: E731


def show_with(show: Show) -> None:
    """From now on `show` is told of what this process works at."""
    global _show
    _show = show


def work(what: str, unit: str, total: int | None = None) -> AbstractContextManager[Shown]:
    """A block that does this; `add` of what it gives tells how far it is."""
    return _show(what, unit, total)


def counted(
    what: str, unit: str, items: Iterable[Item], total: int | None = None
) -> Iterator[Item]:
    """The items, while it is told how many of them were taken.

    Args:
        what, unit: See `work`.
        items: Cheap ones: of thousands at a time it is told.
        total: By default their length, if they have one.
    """
    total = len(items) if total is None and isinstance(items, Sequence) else total
    with work(what, unit, total) as shown:
        for number, item in enumerate(items, 1):
            yield item
            if number % _ITEMS_AT_ONCE == 0:
                shown.add(_ITEMS_AT_ONCE)


def portions(what: str, unit: str, items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """The items in portions of so many, while it is told how far they are."""
    with work(what, unit, len(items)) as shown:
        for begin in range(0, len(items), size):
            some = items[begin : begin + size]
            yield some
            shown.add(len(some))
