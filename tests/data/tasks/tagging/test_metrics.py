"""Scores by entity, against a counter written after conlleval's description."""

import random
from collections import Counter

import pytest

from data.errors import DataError
from data.tasks.tagging.metrics import evaluate_tags, report_by_type


def conlleval(gold, predicted):
    """(Counter of right, of gold, of found entities, by type; share of right tags).

    conlleval walks along both columns at once and keeps whether it is inside of a chunk that has
    been right so far; a chunk counts when both end together.
    """

    def parts(tag):
        return ("O", "") if tag == "O" else tuple(tag.split("-", 1))

    def ends(before, now):
        (letter, kind), (next_letter, next_kind) = before, now
        if letter in "BI" and next_letter in "BO":
            return True
        return letter != "O" and kind != next_kind

    def starts(before, now):
        (letter, kind), (next_letter, next_kind) = before, now
        if next_letter == "B" or (letter == "O" and next_letter == "I"):
            return True
        return next_letter != "O" and kind != next_kind

    right, there, found = Counter(), Counter(), Counter()
    tags_right = tags = 0
    for one, other in zip(gold, predicted, strict=True):
        inside, before, before_other = False, ("O", ""), ("O", "")
        for tag, guess in [*zip(one, other, strict=True), ("O", "O")]:
            now, now_other = parts(tag), parts(guess)
            if inside:
                end, end_other = ends(before, now), ends(before_other, now_other)
                if end and end_other and before[1] == before_other[1]:
                    inside = False
                    right[before[1]] += 1
                elif end != end_other or now[1] != now_other[1]:
                    inside = False
            start, start_other = starts(before, now), starts(before_other, now_other)
            if start and start_other and now[1] == now_other[1]:
                inside = True
            there[now[1]] += start
            found[now_other[1]] += start_other
            before, before_other = now, now_other
        tags += len(one)
        tags_right += sum(a == b for a, b in zip(one, other, strict=True))
    return right, there, found, tags_right / tags


def shares(right, there, found):
    precision = right / found if found else 0.0
    recall = right / there if there else 0.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def sequences(seed, count, same):
    """Gold and predicted tags in any order, valid or not."""
    draw = random.Random(seed)
    tags = ["O", "O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("PER", "LOC", "X-Y"))]
    gold = [draw.choices(tags, k=draw.randrange(1, 15)) for _ in range(count)]
    change = [[tag if draw.random() < same else draw.choice(tags) for tag in s] for s in gold]
    return gold, change


@pytest.mark.parametrize("seed", range(8))
def test_equals_conlleval(seed):
    gold, predicted = sequences(seed, 60, same=(0.3, 0.6, 0.9, 1.0)[seed % 4])
    right, there, found, accuracy = conlleval(gold, predicted)
    precision, recall, f1 = shares(right.total(), there.total(), found.total())
    results = evaluate_tags(gold, predicted)
    wanted = {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}
    assert results == pytest.approx(wanted, abs=1e-12)
    rows = {
        line.split()[0]: line.split()[1:]
        for line in report_by_type(gold, predicted).splitlines()[1:]
    }
    for kind in ("PER", "LOC", "X-Y"):
        counts = right[kind], there[kind], found[kind]
        texts = [f"{value:.4f}" for value in shares(*counts)]
        assert rows[kind] == [*texts, str(there[kind]), str(found[kind])]
    assert rows["all"][2:] == [f"{f1:.4f}", str(there.total()), str(found.total())]


def test_iob1_and_nothing():
    gold = [("I-PER", "B-PER", "O"), ("O",)]
    assert evaluate_tags(gold, gold)["f1"] == 1
    assert evaluate_tags(gold, [("I-PER", "I-PER", "O"), ("O",)])["f1"] == 0
    assert evaluate_tags([["O"]], [["O"]]) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}
    assert "all" in report_by_type([["O"]], [["O"]])
    with pytest.raises(DataError, match="no words"):
        evaluate_tags([[]], [[]])
