"""The report of a tagger, from what was counted of its tags and entities."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from modeling.training.reports.calibration import measure_reliability
from modeling.training.reports.contents import ReportTable, rare_names_limit
from modeling.training.reports.intervals import bootstrap_interval


class _EntityCounts(Protocol):
    """`data.tasks.tagging.mistakes.EntityCounts`."""

    types: Sequence[str]
    right: np.ndarray
    found: np.ndarray
    gold: np.ndarray


def tagging_fields(
    counts: _EntityCounts,
    right_words: Sequence[np.ndarray],
    scores: Sequence[np.ndarray],
    entities: tuple[np.ndarray, np.ndarray],
    documents: Sequence[int],
) -> dict[str, Any]:
    """The fields of a `TaskReport` that follow from counts.

    Args:
        counts: Entities of each of N sentences, by type.
        right_words: Of each sentence bool [words], whether the tag is right.
        scores: Of each sentence float [words], the probability of the tag.
        entities: Of all entities found the score, float [E], and whether it is right.
        documents: int [N], numbers of the sentences' documents. Where there are several they are
            drawn anew for the intervals, as the sentences of one are alike; else sentences.
    """
    words = np.array([len(right) for right in right_words])
    right = np.array([part.sum() for part in right_words])
    parts = [counts.right.sum(1), counts.found.sum(1), counts.gold.sum(1), right, words]
    parts = np.stack(parts, 1).astype(np.float64)
    _, document = np.unique(documents, return_inverse=True)
    several = document.max() > 0
    if several:
        sums = np.zeros([document.max() + 1, parts.shape[1]])
        np.add.at(sums, document, parts)
        parts = sums
    totals = [[name, *_scores(*of)] for name, *of in zip(counts.types, *_sums(counts), strict=True)]
    totals.append(["all", *_scores(*(int(x.sum()) for x in _sums(counts)))])
    wrong_entities = ((counts.found + counts.gold - 2 * counts.right).sum(1)) > 0
    return {
        "task": "token-classification",
        "described": f"a tag for each word, entities of {len(counts.types)} types "
        f"({', '.join(counts.types)})",
        "examples": len(words),
        "unit": "sentences",
        "drawn": "documents" if several else "sentences",
        "intervals": {
            f"eval_{name}": bootstrap_interval(lambda sums, n=name: entity_score(n, sums), parts)
            for name in ("f1", "precision", "recall", "accuracy")
        },
        "outcomes": 1.0 - wrong_entities,
        "outcome": "all entities right",
        "lengths": words,
        "length_unit": "words",
        "calibrations": {
            "the entities found": measure_reliability(*entities),
            "the words' tags": measure_reliability(
                np.concatenate(scores), np.concatenate(right_words)
            ),
        },
        "tables": [
            ReportTable(
                "By type of entity",
                ["type", "precision", "recall", "F1", "entities", "found"],
                totals,
                "An entity is right if its type and all of its words are.",
            )
        ],
        "mistake_value": "probability of the wrong tags, summed",
        "limits": rare_names_limit(
            dict(zip(counts.types, counts.gold.sum(0), strict=True)), "entities"
        ),
    }


def entity_score(name: str, sums: np.ndarray) -> np.ndarray:
    """A score from sums [R, 5] of right, found and gold entities, right words and words."""
    right, found, gold, right_words, words = sums.T
    above, below = {
        "f1": (2 * right, found + gold),
        "precision": (right, found),
        "recall": (right, gold),
        "accuracy": (right_words, words),
    }[name]
    return above / np.maximum(below, 1)


def _sums(counts: _EntityCounts) -> list[np.ndarray]:
    return [counts.right.sum(0), counts.found.sum(0), counts.gold.sum(0)]


def _scores(right: int, found: int, gold: int) -> list[float | int]:
    """A row of the table."""
    sums = np.array([[right, found, gold, 0, 0]], np.float64)
    scores = [float(entity_score(name, sums)[0]) for name in ("precision", "recall", "f1")]
    return [*scores, int(gold), int(found)]
