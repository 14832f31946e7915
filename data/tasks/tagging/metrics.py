"""Scores by entity, as the CoNLL tasks' scorer conlleval counts; by seqeval.

An entity is right if its type and all of its words are. Sequences that don't fit the scheme are
read as `schemes` says, which is conlleval's reading.
"""

import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from tabulate import tabulate

from data.errors import DataError

NAMES = ("f1", "precision", "recall", "accuracy")
Tags = Sequence[Sequence[str]]


def evaluate_tags(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Scores over all sentences.

    Args:
        gold, predicted: Tags of every sentence, both in the same scheme, IOB1, IOB2 or IOBES.

    Returns:
        f1, precision and recall of the entities (0 where there are none), and the accuracy of
        the single tags.

    Raises:
        DataError: There are no words.
    """
    gold, predicted = _lists(gold), _lists(predicted)
    words = sum(map(len, gold))
    if not words:
        raise DataError("There is nothing to score: the sentences have no words.")
    precision, recall, f1, _ = _scores(gold, predicted, "micro")
    right = sum(
        a == b
        for one, other in zip(gold, predicted, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    values = (f1, precision, recall, right / words)
    return {name: float(value) for name, value in zip(NAMES, values, strict=True)}


def report_by_type(gold: Tags, predicted: Tags) -> str:
    """A table: precision, recall, F1, and how many entities there are and were found, by type."""
    from seqeval.metrics.sequence_labeling import get_entities

    gold, predicted = _lists(gold), _lists(predicted)
    right, answered = (Counter(e[0] for e in get_entities(tags)) for tags in (gold, predicted))
    columns = [np.atleast_1d(values) for values in _scores(gold, predicted, None)[:3]]
    rows = [
        [name, *values, right[name], answered[name]]
        for name, *values in zip(sorted(right | answered), *columns, strict=False)
    ]
    rows.append(["all", *_scores(gold, predicted, "micro")[:3], right.total(), answered.total()])
    names = ("", "precision", "recall", "f1", "entities", "found")
    return tabulate(rows, names, "plain", floatfmt=".4f")


def _scores(gold: list[list[str]], predicted: list[list[str]], average: str | None):
    # Here, since importing seqeval takes a second.
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    with warnings.catch_warnings():
        # Of types without an entity it asks for an average, of nothing.
        warnings.simplefilter("ignore")
        return precision_recall_fscore_support(gold, predicted, average=average, zero_division=0)


def _lists(tags: Tags) -> list[list[str]]:
    """seqeval takes only lists for sentences."""
    return [list(sentence) for sentence in tags]
