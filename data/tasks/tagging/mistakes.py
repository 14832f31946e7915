"""What taggers get wrong: entities by type, types taken for others, the worst sentences."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.tasks.tagging.metrics import Tags
from data.tasks.tagging.schemes import OUTSIDE, Entity, decode_entities, split_tag


class EntityCounts(NamedTuple):
    """Entities of each sentence, by type.

    Attributes:
        types: T names, sorted.
        right, found, gold: int64 [N, T]; found in the predicted tags and right, found, in the
            right tags.
    """

    types: Sequence[str]
    right: np.ndarray
    found: np.ndarray
    gold: np.ndarray


def count_entities(gold: Tags, predicted: Tags) -> EntityCounts:
    """Counts; an entity is right if its type and all of its words are."""
    decoded = [list(map(_entities, tags)) for tags in (gold, predicted)]
    pairs = list(zip(*decoded, strict=True))
    types = sorted({entity.type for a, b in pairs for entity in a | b})

    def counts(entities: Sequence[set[Entity]]) -> np.ndarray:
        by_type = [Counter(entity.type for entity in some) for some in entities]
        return np.array([[c[t] for t in types] for c in by_type], np.int64).reshape(
            len(by_type), len(types)
        )

    both = [a & b for a, b in pairs]
    return EntityCounts(types, counts(both), counts(decoded[1]), counts(decoded[0]))


def tag_confusions(gold: Tags, predicted: Tags) -> tuple[list[str], np.ndarray]:
    """Which types of words are taken for which.

    Returns:
        O and the names of the types, and int64 [T, T]: a row per right type, a column per
        predicted one.
    """
    counts = Counter(
        (split_tag(a)[1] or OUTSIDE, split_tag(b)[1] or OUTSIDE)
        for right, answered in zip(gold, predicted, strict=True)
        for a, b in zip(right, answered, strict=True)
    )
    names = [OUTSIDE, *sorted({name for pair in counts for name in pair} - {OUTSIDE})]
    return names, np.array([[counts[a, b] for b in names] for a in names], np.int64)


def wrong_tags(words: Sequence[str], gold: Sequence[str], predicted: Sequence[str]) -> list[str]:
    """The words of a sentence that are tagged wrongly: "axis: B-ARGUMENT taken for O"."""
    triples = zip(words, gold, predicted, strict=True)
    return [f"{word}: {a} taken for {b}" for word, a, b in triples if a != b]


def worst_tagged(
    gold: Tags,
    predicted: Tags,
    limit: int,
    scores: Sequence[Sequence[float]] | None = None,
) -> list[tuple[int, float]]:
    """The sentences with most mistakes.

    Args:
        gold, predicted: Tags of every sentence.
        limit: How many at most.
        scores: Probabilities of the predicted tags; a mistake counts as much as the model was sure
            of it. None: all alike.

    Returns:
        Number of the sentence and the sum over its mistakes, the worst first, of equal ones the
        first in the file. Sentences without mistake aren't among them.
    """
    sums = []
    for number, (right, answered) in enumerate(zip(gold, predicted, strict=True)):
        sure = [1.0] * len(right) if scores is None else scores[number]
        value = sum(float(p) for a, b, p in zip(right, answered, sure, strict=True) if a != b)
        if value > 0:
            sums.append((number, value))
    return sorted(sums, key=lambda pair: -pair[1])[:limit]


def right_words(gold: Tags, predicted: Tags) -> list[np.ndarray]:
    """Of each sentence bool [words]: whether the tag is right."""
    pairs = zip(gold, predicted, strict=True)
    return [np.array([a == b for a, b in zip(*pair, strict=True)], bool) for pair in pairs]


def entity_scores(
    gold: Tags, predicted: Tags, scores: Sequence[Sequence[float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Of all entities found the score, float64 [E], that of the least sure word, and whether right.

    Args:
        gold, predicted: Tags of every sentence.
        scores: Probabilities of the predicted tags.
    """
    found = [
        (float(min(of_words[entity.start : entity.end])), entity in right)
        for right, tags, of_words in zip(map(_entities, gold), predicted, scores, strict=True)
        for entity in decode_entities(tags)
    ]
    return np.array([p for p, _ in found], np.float64), np.array([r for _, r in found], bool)


def listed_entities(words: Sequence[str], tags: Sequence[str]) -> str:
    """The entities of a sentence, for people: "PER Angela Merkel; LOC Bonn"."""
    entities = decode_entities(tags)
    return "; ".join(f"{e.type} {' '.join(words[e.start : e.end])}" for e in entities) or "none"


def _entities(tags: Sequence[str]) -> set[Entity]:
    return set(decode_entities(tags))
