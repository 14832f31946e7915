"""Exact match and F1 against the definitions, written plainly once more, and on real data."""

import collections
import json
import math
import random
import re
import string

import pytest

from data.errors import DataError
from data.tasks.questions.metrics import (
    best_threshold,
    evaluate_answers,
    normalize_answer,
    score_answer,
)
from data.tasks.questions.squad import Answer, Question, read_squad


def question(id, *answers, context="c"):
    given = tuple(Answer(text, 0) for text in answers)
    return Question(id, "?", context, given, not answers, f"f.json: {id}")


# The definitions: words are compared one at a time, thresholds are all tried.
def plain_form(text):
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    parts = re.split(r"\b(?:a|an|the)\b", text)
    return " ".join(" ".join(parts).split())


def plain_f1(prediction, answer, version_2):
    left, right = plain_form(prediction).split(), plain_form(answer).split()
    if version_2 and (left == [] or right == []):
        return 1.0 if left == right else 0.0
    same, rest = 0, list(right)
    for word in left:
        if word in rest:
            rest.remove(word)
            same += 1
    return 0.0 if same == 0 else 2 * same / (len(left) + len(right))


def plain_scores(prediction, answers, version_2):
    if version_2:
        answers = [answer for answer in answers if plain_form(answer)] or [""]
    exact = max(1.0 if plain_form(answer) == plain_form(prediction) else 0.0 for answer in answers)
    return exact, max(plain_f1(prediction, answer, version_2) for answer in answers)


def plain_evaluate(questions, predictions, odds, threshold):
    """SQuAD 2.0: exact and F1 in percent at a threshold."""
    sums = [0.0, 0.0]
    for q in questions:
        if odds[q.id] > threshold:
            scores = [float(not q.answers)] * 2
        else:
            scores = plain_scores(predictions[q.id], [a.text for a in q.answers], True)
        sums = [total + part for total, part in zip(sums, scores, strict=True)]
    return [100 * total / len(questions) for total in sums]


VOCABULARY = [
    "the",
    "The",
    "a",
    "an",
    "cat",
    "Cat",
    "dog,",
    "—",
    "...",
    "theme",
    "x-ray",
    "é",
    "1,5",
]


def texts(generator, most=5):
    return " ".join(generator.choices(VOCABULARY, k=generator.randint(0, most)))


def made_up(seed, size, ties):
    generator = random.Random(seed)
    questions, predictions, odds = [], {}, {}
    for number in range(size):
        answers = [texts(generator) for _ in range(generator.choice([0, 0, 1, 3]))]
        questions.append(question(f"q{number}", *answers))
        predictions[f"q{number}"] = generator.choice([texts(generator), *answers])
        value = generator.gauss(0, 3) + (0 if answers else 1)
        odds[f"q{number}"] = float(round(value)) if ties else value
    return questions, predictions, odds


def test_forms():
    for text, form in (
        ("The  Cat's, a\thouse!", "cats house"),
        ("theme of an (apple)", "theme of apple"),
        ("a-an", "aan"),  # punctuation goes first
        ("The the THE", ""),
        ("“The” End…", "“ ” end…"),  # only ASCII punctuation goes
        ("A\u00a0b", "b"),
    ):
        assert normalize_answer(text) == plain_form(text) == form


def test_scores_by_hand():
    assert score_answer("the cat sat", ["A cat", "dog"], version_2=False) == (0.0, 2 / 3)
    assert score_answer("cat cat", ["cat"], version_2=False) == (0.0, 2 / 3)
    assert score_answer("Cat!", ["dog", "the cat"], version_2=True) == (1.0, 1.0)
    # The versions differ where an answer normalises to nothing.
    assert score_answer("the", ["A"], version_2=False) == (1.0, 0.0)
    assert score_answer("the", ["A"], version_2=True) == (1.0, 1.0)
    assert (
        score_answer("", [], version_2=True)
        == score_answer("The", [], version_2=True)
        == (1.0, 1.0)
    )
    assert score_answer("cat", [], version_2=True) == (0.0, 0.0)
    assert score_answer("", ["a", "cat"], version_2=True) == (0.0, 0.0)
    assert score_answer("", ["a", "cat"], version_2=False) == (1.0, 0.0)


@pytest.mark.parametrize("version_2", [False, True])
def test_scores_by_the_definition(version_2):
    generator = random.Random(5)
    for _ in range(3000):
        answers = [texts(generator) for _ in range(generator.randint(1 - version_2, 3))]
        prediction = generator.choice([texts(generator), *answers])
        expected = plain_scores(prediction, answers, version_2)
        assert score_answer(prediction, answers, version_2=version_2) == pytest.approx(
            expected, abs=1e-12
        )


def test_version_1(caplog):
    questions = [question("p", "cat", "the dog"), question("q", "cat sat"), question("r", "x")]
    results = evaluate_answers(questions, {"p": "Dog", "q": "cat", "other": "x"}, version_2=False)
    assert results == pytest.approx({"exact_match": 100 / 3, "f1": 100 * (1 + 2 / 3) / 3})
    assert list(results) == ["exact_match", "f1"]
    assert "1 of 3 questions have no prediction, such as those with the ids 'r'" in caplog.text
    with pytest.raises(DataError, match=r"f\.json: s: .*--version_2_with_negative"):
        evaluate_answers([*questions, question("s")], {"s": ""}, version_2=False)


def test_version_2_by_hand():
    questions = [question("p", "cat"), question("q"), question("r", "dog barks"), question("s")]
    predictions = {"p": "cat", "q": "x", "r": "dog", "s": "y"}
    results = evaluate_answers(questions, predictions, version_2=True)
    names = ["exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total",
             "NoAns_exact", "NoAns_f1", "NoAns_total"]  # fmt: skip
    assert list(results) == names
    values = [25.0, 25 * (1 + 2 / 3), 4, 50.0, 50 * (1 + 2 / 3), 2, 0.0, 0.0, 2]
    assert results == pytest.approx(dict(zip(names, values, strict=True)))
    odds = {"p": -2.0, "q": 3.0, "r": 1.0, "s": 0.5, "other": -9.0}
    results = evaluate_answers(questions, predictions, odds, threshold=0.5, version_2=True)
    # Odds equal to the threshold aren't above it: s is answered.
    assert [results[name] for name in names[:3]] == [50.0, 50.0, 4]
    best = {name: value for name, value in results.items() if name.startswith("best")}
    # Answered are p (2 + 1), s (-1), r (+0 or 2/3), q (-1).
    assert best == {
        "best_exact": 75.0, "best_exact_thresh": -2.0, "best_f1": 75.0, "best_f1_thresh": -2.0,
    }  # fmt: skip
    assert best_threshold(questions, predictions, odds) == -0.75
    # Only questions with answers, or only without.
    results = evaluate_answers(questions[::2], predictions, odds, version_2=True)
    assert "HasAns_f1" in results and "NoAns_f1" not in results
    assert results["best_f1_thresh"] == 1.0 and results["best_exact_thresh"] == -2.0
    assert best_threshold(questions[::2], predictions, odds) == 2.0
    results = evaluate_answers(questions[1::2], predictions, odds, threshold=0, version_2=True)
    assert "HasAns_f1" not in results and results["NoAns_exact"] == 100.0
    assert (results["best_f1"], results["best_f1_thresh"]) == (100.0, 0.0)
    assert best_threshold(questions[1::2], predictions, odds) == -0.5


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_version_2_by_the_definition(seed, ties):
    questions, predictions, odds = made_up(seed, 120, ties)
    for threshold in (-100.0, 0.0, 1.25, 100.0):
        results = evaluate_answers(questions, predictions, odds, threshold, version_2=True)
        expected = plain_evaluate(questions, predictions, odds, threshold)
        assert [results["exact"], results["f1"]] == pytest.approx(expected)
        for prefix, part in (
            ("HasAns_", [q for q in questions if q.answers]),
            ("NoAns_", [q for q in questions if not q.answers]),
        ):
            expected = [*plain_evaluate(part, predictions, odds, threshold), len(part)]
            found = [results[prefix + name] for name in ("exact", "f1", "total")]
            assert found == pytest.approx(expected)
    every = [-math.inf, *sorted(set(odds.values()))]
    tried = [plain_evaluate(questions, predictions, odds, threshold) for threshold in every]
    for column, name in enumerate(("exact", "f1")):
        best = max(scores[column] for scores in tried)
        chosen = best_threshold(questions, predictions, odds, measure=name)
        at = plain_evaluate(questions, predictions, odds, chosen)[column]
        assert at == pytest.approx(best) and chosen not in odds.values()
        score_, where = official_best(questions, predictions, odds, column)
        assert results[f"best_{name}"] == pytest.approx(score_)
        assert results[f"best_{name}_thresh"] == where


def official_best(questions, predictions, odds, column):
    """Question by question, in the odds' order; equal ones in the file's."""
    current = best = sum(not q.answers for q in questions)
    threshold = 0.0
    for q in sorted(questions, key=lambda q: odds[q.id]):
        if q.answers:
            texts_ = [a.text for a in q.answers]
            current += plain_scores(predictions[q.id], texts_, True)[column]
        elif predictions[q.id]:
            current -= 1
        if current > best + 1e-12:
            best, threshold = current, odds[q.id]
    return 100 * best / len(questions), threshold


def test_thresholds_that_are_near_or_far():
    questions = [question("p", "x"), question("q")]
    predictions = {"p": "x", "q": "x"}
    low, high = 1.0, math.nextafter(1.0, 2.0)
    assert best_threshold(questions, predictions, {"p": low, "q": high}) == low
    for odds in ({"p": -math.inf, "q": math.inf}, {"p": -1e308, "q": 1e308}):
        assert best_threshold(questions, predictions, odds) == 0.0
        results = evaluate_answers(questions, predictions, odds, 0.0, version_2=True)
        assert results["exact"] == results["best_exact"] == 100.0


def test_what_is_refused():
    questions = [question("p", "x"), question("q")]
    with pytest.raises(DataError, match=r"f\.json: q: 1 of 2 questions have no prediction"):
        evaluate_answers(questions, {"p": "x"}, version_2=True)
    for odds, match in (({"p": 1.0}, "'q' are missing"), ({"p": math.nan}, "'p' are no number")):
        with pytest.raises(DataError, match=match):
            evaluate_answers(questions, {"p": "x", "q": ""}, odds, version_2=True)
    for version_2 in (False, True):
        with pytest.raises(DataError, match="no questions to evaluate"):
            evaluate_answers([], {}, version_2=version_2)


def test_characters():
    """Numbers by hand from CMRC 2018's definition."""

    def both(prediction, *answers):
        return score_answer(prediction, answers, version_2=False, characters=True)

    assert both("《史记》", "史记") == (1.0, 1.0)
    assert both("司马迁", "司马光", "司马迁") == (1.0, 1.0)
    # The longest run, not all characters in common: 北京 of 4 and 5.
    assert both("在北京市", "北京大市长") == (
        0.0,
        pytest.approx(2 * (2 / 4) * (2 / 5) / 0.9),
    )
    assert both("京北", "北京") == (0.0, 0.5)
    # Words other than Chinese are compared whole.
    assert both("1998年", "1999年") == (0.0, 0.5)
    assert both("BERT-Base模型", "bertbase 模型") == (0.0, 1.0)
    assert both("3.5万,", "3.5万") == (0.0, pytest.approx(0.8))
    assert both("New York", "new  york") == (0.0, 1.0)
    assert both("", "北京") == both("。", "北京") == (0.0, 0.0)
    questions = [question("p", "北京"), question("q", "上海"), question("r", "x")]
    results = evaluate_answers(
        questions, {"p": "北京", "q": "海"}, version_2=False, characters=True
    )
    assert results == pytest.approx({"exact_match": 100 / 3, "f1": 100 * (1 + 2 / 3) / 3})
    empty = evaluate_answers([question("p")], {"p": ""}, version_2=True, characters=True)
    assert empty["exact"] == empty["f1"] == 100.0


def longest_run(left, right):
    runs = [left[a:b] for a in range(len(left)) for b in range(a + 1, len(left) + 1)]
    return max((len(run) for run in runs if run in right), default=0)


def test_characters_by_the_definition():
    generator = random.Random(3)
    for _ in range(2000):
        left, right = (
            "".join(generator.choices("中文字的，", k=generator.randint(1, 9))) for _ in "ab"
        )
        bare, bare_right = left.replace("，", ""), right.replace("，", "")
        same = longest_run(bare, bare_right)
        f1 = 2 * same / (len(bare) + len(bare_right)) if same else 0.0
        expected = (float(bare == bare_right), pytest.approx(f1))
        assert score_answer(left, [right], version_2=False, characters=True) == expected


def test_real_version_1(shared_data):
    questions = read_squad(str(shared_data / "squad/dev-v1.1.json"), training=False)
    first = {q.id: q.answers[0].text for q in questions}
    assert evaluate_answers(questions, first, version_2=False) == {
        "exact_match": 100.0,
        "f1": 100.0,
    }
    # Two words of the context: nothing to do with the answers, everything between 0 and 1.
    words = {q.id: " ".join(q.context.split()[:2]) for q in questions}
    sums = collections.Counter()
    for q in questions:
        exact, f1 = plain_scores(words[q.id], [a.text for a in q.answers], False)
        sums.update(exact_match=exact, f1=f1)
    expected = {name: 100 * total / 10_570 for name, total in sums.items()}
    assert evaluate_answers(questions, words, version_2=False) == pytest.approx(expected)
    assert 0 < expected["exact_match"] < expected["f1"] < 20


def test_real_version_2(shared_data):
    questions = read_squad(str(shared_data / "squad/dev-v2.0.json"), training=False)
    first = {q.id: q.answers[0].text if q.answers else "" for q in questions}
    results = evaluate_answers(questions, first, version_2=True)
    assert results["exact"] == results["f1"] == results["HasAns_f1"] == results["NoAns_f1"] == 100
    empty = evaluate_answers(questions, dict.fromkeys(first, ""), version_2=True)
    # The share of unanswerable questions: 50.07 %, as published.
    assert empty["exact"] == empty["f1"] == 100 * 5945 / 11_873
    assert (empty["HasAns_exact"], empty["NoAns_exact"]) == (0.0, 100.0)
    assert (empty["total"], empty["HasAns_total"], empty["NoAns_total"]) == (11_873, 5_928, 5_945)
    # Always the same answer, right odds: the threshold finds what is unanswerable.
    always = {q.id: text or "x" for q, text in zip(questions, first.values(), strict=True)}
    odds = {q.id: 5.0 if not q.answers else -1.0 for q in questions}
    results = evaluate_answers(questions, always, odds, -2.0, version_2=True)
    assert results["exact"] == empty["exact"]
    assert (results["best_f1"], results["best_f1_thresh"]) == (100.0, -1.0)
    chosen = best_threshold(questions, always, odds)
    assert (
        chosen == 2.0
        and evaluate_answers(questions, always, odds, chosen, version_2=True)["f1"] == 100
    )


def test_golden_predictions(golden):
    """What the original release predicted is scored as by the definition, thresholds included."""
    for name, version_2 in (("v1", False), ("v2", True)):
        questions = read_squad(str(golden / f"squad/synth_{name}.json"), training=False)
        folder = golden / f"squad/pred_{name}"
        predictions = json.loads((folder / "predictions.json").read_text("utf-8"))
        if not version_2:
            results = evaluate_answers(questions, predictions, version_2=False)
            scored = [plain_scores(predictions[q.id], [a.text for a in q.answers], False)
                      for q in questions]  # fmt: skip
            expected = [100 * sum(column) / len(scored) for column in zip(*scored, strict=True)]
            assert list(results.values()) == pytest.approx(expected)
            continue
        odds = json.loads((folder / "null_odds.json").read_text("utf-8"))
        results = evaluate_answers(questions, predictions, odds, 0.0, version_2=True)
        expected = plain_evaluate(questions, predictions, odds, 0.0)
        assert [results["exact"], results["f1"]] == pytest.approx(expected)
        assert results["best_f1"] == pytest.approx(
            official_best(questions, predictions, odds, 1)[0]
        )
        # The predictions have the threshold 0 applied already.
        assert evaluate_answers(questions, predictions, version_2=True)["f1"] == results["f1"]
