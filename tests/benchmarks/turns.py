"""Timing in turns, so that what slows the machine slows all, and comparing round by round."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def interleaved(
    engines: Mapping[str, Callable[[], float]], rounds: int, pause: float
) -> dict[str, list[float]]:
    """Calls all engines in turns; every round begins with another one.

    Args:
        engines: Name → function that measures once.
        rounds: How often each is called.
        pause: Seconds before each call.

    Returns:
        Name → what it gave in each round.
    """
    order = list(engines)
    found: dict[str, list[float]] = {name: [0.0] * rounds for name in order}
    for turn in range(rounds):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            time.sleep(pause)
            found[name][turn] = engines[name]()
    return found


def ratio(dividends: Sequence[float], divisors: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and most of the rounds' quotients."""
    ratios = [above / below for above, below in zip(dividends, divisors, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)
