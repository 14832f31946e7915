"""Mistakes of taggers, by examples, and against seqeval's counts."""

import numpy as np
import pytest

from data.tasks.tagging import metrics, mistakes
from modeling.training.reports.tagging import entity_score, tagging_fields

GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "O"], ["B-LOC", "O"]]
ANSWERED = [["B-PER", "O", "O", "B-LOC"], ["O", "B-PER"], ["B-PER", "O"]]
SCORES = [[0.9, 0.6, 0.8, 0.7], [0.9, 0.5], [0.95, 0.9]]


def test_entities_by_type():
    counts = mistakes.count_entities(GOLD, ANSWERED)
    assert list(counts.types) == ["LOC", "PER"]
    assert counts.right.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert counts.found.tolist() == [[1, 1], [0, 1], [0, 1]]
    assert counts.gold.tolist() == [[1, 1], [0, 0], [1, 0]]


def test_scores_are_seqevals_on_any_tags():
    draw = np.random.default_rng(0)
    names = ["O", "B-A", "I-A", "B-B", "I-B"]
    gold, answered = ([list(draw.choice(names, 6)) for _ in range(200)] for _ in range(2))
    counts = mistakes.count_entities(gold, answered)
    right = sum(part.sum() for part in mistakes.right_words(gold, answered))
    sums = [counts.right.sum(), counts.found.sum(), counts.gold.sum(), right, 1200]
    expected = metrics.evaluate_tags(gold, answered)
    for name in metrics.NAMES:
        assert entity_score(name, np.array([sums], float))[0] == pytest.approx(expected[name])


def test_types_of_words():
    names, matrix = mistakes.tag_confusions(GOLD, ANSWERED)
    assert names == ["O", "LOC", "PER"]
    assert matrix.tolist() == [[3, 0, 1], [0, 1, 1], [1, 0, 1]]


def test_the_worst_sentences_come_first():
    assert mistakes.worst_tagged(GOLD, ANSWERED, 9) == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert mistakes.worst_tagged(GOLD, ANSWERED, 2, SCORES) == [(2, 0.95), (0, 0.6)]
    assert mistakes.worst_tagged(GOLD, GOLD, 9, SCORES) == []
    assert mistakes.wrong_tags("abcd", GOLD[0], ANSWERED[0]) == ["b: I-PER taken for O"]
    assert mistakes.listed_entities(["Angela", "M.", "in", "Bonn"], GOLD[0]) == (
        "PER Angela M.; LOC Bonn"
    )
    assert mistakes.listed_entities(["in"], ["O"]) == "none"


def test_entities_are_as_sure_as_their_least_sure_word():
    confidence, right = mistakes.entity_scores(GOLD, GOLD, SCORES)
    assert confidence.tolist() == [0.6, 0.7, 0.95] and right.all()
    assert mistakes.entity_scores(GOLD, ANSWERED, SCORES)[1].tolist() == [False, True, False, False]


def test_no_entity_at_all():
    nothing = [["O", "O"], ["O"]]
    counts = mistakes.count_entities(nothing, nothing)
    assert counts.right.shape == (2, 0)
    scores = [np.ones(2), np.ones(1)]
    entities = mistakes.entity_scores(nothing, nothing, scores)
    right = mistakes.right_words(nothing, nothing)
    fields = tagging_fields(counts, right, scores, entities, [0, 1])
    assert fields["intervals"]["eval_f1"] == (0, 0) and fields["drawn"] == "documents"
    assert fields["intervals"]["eval_accuracy"] == (1, 1)
