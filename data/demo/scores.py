"""Scores of a demo's systems, each with an interval, as one table.

What a system did is counted for every example: right, found and gold, [N, 3]. The score of all is
F1, 2 · right / (found + gold): of entities. With one answer to each question, found and gold
being 1, that is accuracy, or the mean of the shares that are right.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from tabulate import tabulate

_RESAMPLES = 1000


def counts_of_answers(right: Sequence[float]) -> np.ndarray:
    """Counts, float64 [N, 3], where every example has one answer."""
    right = np.asarray(right, np.float64)
    return np.stack([right, np.ones_like(right), np.ones_like(right)], axis=1)


def score_of_counts(counts: np.ndarray) -> np.ndarray:
    """Scores [...] of counts [..., N, 3]; 0 where nothing was found and nothing is gold."""
    right, found, gold = np.moveaxis(counts.sum(axis=-2), -1, 0)
    return 2 * right / np.maximum(found + gold, 1)


def score_interval(counts: np.ndarray, groups: Sequence[str]) -> tuple[float, float]:
    """Where 95 % of the scores are if groups are drawn anew, with replacement.

    Args:
        counts: [N, 3].
        groups: Of the N examples: those of a module are alike, and are drawn together.
    """
    _, number = np.unique(list(groups), return_inverse=True)
    sums = np.zeros((number.max() + 1, 3))
    np.add.at(sums, number, counts)
    drawn = np.random.default_rng(0).integers(len(sums), size=(_RESAMPLES, len(sums)))
    low, high = np.percentile(score_of_counts(sums[drawn]), [2.5, 97.5])
    return float(low), float(high)


def score_table(
    systems: Mapping[str, Sequence[np.ndarray]], groups: Sequence[str], metric: str
) -> str:
    """A line per system: its score, the interval and, of several runs, their spread.

    Args:
        systems: Name → counts [N, 3] of each of its runs; the score is the mean of the runs'.
        groups: See `score_interval`.
        metric: Name of the score.
    """
    runs = max(map(len, systems.values()))
    names = ["", metric, "95 % interval", *([f"{runs} seeds"] if runs > 1 else [])]
    rows = []
    for name, counts in systems.items():
        scores = [float(score_of_counts(run)) for run in counts]
        low, high = score_interval(np.mean(counts, axis=0), groups)
        row = [name, f"{np.mean(scores):.3f}", f"{low:.3f} to {high:.3f}"]
        rows.append([*row, f"± {np.std(scores, ddof=1):.3f}" if len(scores) > 1 else ""])
    return tabulate([row[: len(names)] for row in rows], names, "simple", disable_numparse=True)
