"""Answers from spans, and the files that hold them."""

import json
import math
import types
from collections import OrderedDict

import numpy as np
import pytest

from data.errors import DataError
from data.tasks.questions.answers import (
    NO_OTHER,
    AnsweredQuestion,
    AnswerFiles,
    _Candidate,
    read_answers,
    write_squad_json,
)
from data.tasks.questions.rows import QuestionSettings, make_question_rows
from data.tasks.questions.squad import Question
from data.tokenization import Tokenizer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "漢", "😀"]
QUESTIONS = [
    Question("1", "a", "a b 漢 😀 c", (), False, "f: 0"),
    Question("2", "", "d e f g h a b c", (), False, "f: 1"),
    Question("3", "b", "\u200b", (), False, "f: 2"),
]


@pytest.fixture(scope="module")
def rows():
    tokenizer = Tokenizer.from_vocab(VOCAB)
    made = make_question_rows(tokenizer, QUESTIONS, QuestionSettings(9, 3, 1), training=False)
    assert made.counts.tolist() == [1, 2, 1]
    return made


def merged(possible=((1, 1, 1), (1, 1, 0), (0, 0, 0)), null=(6.0, 3.5, 1.0)):
    """Spans of rows [CLS] a [SEP] a b 漢 😀 c [SEP], [CLS] [SEP] d … g [SEP], … (from g on)."""
    null = np.array(null, np.float32)
    return types.SimpleNamespace(
        start_logits=np.array([[3, 1, 1], [2, 2, -1e9], [-1e9] * 3], np.float32),
        end_logits=np.array([[2, 3, 0.5], [1, 0, -1e9], [-1e9] * 3], np.float32),
        rows=np.array([[0, 0, 0], [2, 1, 1], [3, 3, 3]]),
        starts=np.array([[5, 4, 3], [2, 4, 0], [0, 0, 0]], np.int32),
        ends=np.array([[6, 4, 7], [4, 5, 0], [0, 0, 0]], np.int32),
        possible=np.array(possible, bool),
        null_starts=null - 0.5,
        null_ends=np.full(3, 0.5, np.float32),
    )


def test_slices_of_contexts(rows):
    answered = list(read_answers(QUESTIONS, rows, merged(), version_2=False))
    texts = [[candidate.text for candidate in one.candidates] for one in answered]
    assert texts == [["漢 😀", "b", "a b 漢 😀 c"], ["g h a", "f g"], [""]]
    for one in answered:
        assert one.null_odds == 0 and one.text() == one.best_text == one.candidates[0].text
        for candidate in one.candidates:
            assert candidate.text == one.question.context[candidate.start : candidate.end]
    entries = answered[0].n_best()
    assert [list(entry) for entry in entries] == [
        ["text", "probability", "start_logit", "end_logit"]
    ] * 3
    shares = [math.exp(x) for x in (5.0, 4.0, 1.5)]
    for entry, share in zip(entries, shares, strict=True):
        assert entry["probability"] == pytest.approx(share / sum(shares), rel=1e-12)
    assert [entry["end_logit"] for entry in entries] == [2.0, 3.0, 0.5]
    assert answered[2].n_best()[0]["probability"] == 1.0


def test_the_empty_answer_among_others(rows):
    answered = list(read_answers(QUESTIONS, rows, merged(), version_2=True))
    texts = [[candidate.text for candidate in one.candidates] for one in answered]
    assert texts == [["", "漢 😀", "b", "a b 漢 😀 c"], ["", "g h a", "f g"], [""]]
    assert [one.null_odds for one in answered] == [1.0, 0.5, NO_OTHER]
    assert [one.best_text for one in answered] == ["漢 😀", "g h a", ""]
    # Above the threshold, not at it.
    assert [one.text(0.5) for one in answered] == ["", "g h a", ""]
    assert [one.text(1.0) for one in answered] == ["漢 😀", "g h a", ""]
    assert [one.text(-1.0) for one in answered] == ["", "", ""]
    shares = [entry["probability"] for entry in answered[1].n_best()]
    assert sum(shares) == pytest.approx(1, rel=1e-12)

    low = list(read_answers(QUESTIONS, rows, merged(null=(4.0, 2.5, 1.0)), version_2=True))
    texts = [[candidate.text for candidate in one.candidates] for one in low]
    assert texts[0] == ["漢 😀", "b", "", "a b 漢 😀 c"]  # behind an equal one
    assert texts[1] == ["g h a", "", "f g"]
    assert [one.null_odds for one in low] == [-1.0, -0.5, NO_OTHER]


def test_spans_stay_in_the_order_of_their_float32_sums(rows):
    """A search in float32 calls these equal; an export and the files have to agree."""
    spans = merged(null=(-50.0, -50.0, -50.0))
    spans.start_logits[0] = [3.0, np.nextafter(np.float32(3), np.float32(4)), 1.0]
    spans.end_logits[0] = [16.0, 16.0, 0.5]
    sums = spans.start_logits[0] + spans.end_logits[0]
    wide = spans.start_logits[0].astype(float) + spans.end_logits[0]
    assert sums[0] == sums[1] and wide[0] < wide[1]
    for version_2 in (False, True):
        first = next(iter(read_answers(QUESTIONS, rows, spans, version_2)))
        assert first.candidates[0].text == first.best_text == "漢 😀"


def test_probabilities_of_large_logits():
    candidates = [_Candidate("a", 400.0, 400.0), _Candidate("b", 0.0, -800.0)]
    first, second = AnsweredQuestion(QUESTIONS[0], candidates).n_best()
    assert first["probability"] == 1.0 and second["probability"] == 0.0


def entries(number: int, odd: str = "") -> list[dict]:
    return [
        {"text": f"t{odd}{n}", "probability": 0.5, "start_logit": 1.25 * n, "end_logit": -1e-7}
        for n in range(number)
    ]


ADDED = [("9", entries(2), "nine", 0.25), ("10", entries(1, '"é\n😀'), "ten", -3.5)]


def fill(directory, added, version_2, threshold=0.0) -> dict[str, str]:
    with AnswerFiles(str(directory), version_2) as files:
        for one in added:
            files.add(*one)
        return files.finish(threshold)


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("added", [[], ADDED[:1], ADDED])
def test_files_are_written_as_the_originals(tmp_path, version_2, added):
    predictions = fill(tmp_path, added, version_2)
    texts = OrderedDict((key, text) for key, _, text, _ in added)
    if version_2 and added:
        texts["9"] = ""
    assert predictions == texts
    wanted = {
        "predictions.json": texts,
        "nbest_predictions.json": OrderedDict((key, best) for key, best, _, _ in added),
        "null_odds.json": OrderedDict((key, odds) for key, _, _, odds in added),
    }
    if not version_2:
        del wanted["null_odds.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(wanted)
    for name, values in wanted.items():
        # What the original release writes.
        assert (tmp_path / name).read_bytes() == (json.dumps(values, indent=4) + "\n").encode()


def test_thresholds(tmp_path):
    added = [(str(n), entries(1), f"text {n}", odds) for n, odds in enumerate((-2.0, 0.0, 1.5))]
    for threshold, kept in ((-3.0, 0), (-2.0, 1), (0.0, 2), (1.0, 2), (1.5, 3)):
        predictions = fill(tmp_path, added, True, threshold)
        assert list(predictions.values()) == [
            f"text {n}" if n < kept else "" for n in range(len(added))
        ]
        assert json.loads((tmp_path / "predictions.json").read_text()) == predictions
    assert len(set(fill(tmp_path, added, False, -9.0).values())) == 3


def test_nothing_half_written(tmp_path):
    fill(tmp_path, ADDED, True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(KeyboardInterrupt), AnswerFiles(str(tmp_path), True) as files:
        files.add("1", entries(3), "one", 0.0)
        raise KeyboardInterrupt
    with AnswerFiles(str(tmp_path), True) as files:
        files.add("1", entries(3), "one", 0.0)  # and never finished
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    fill(tmp_path, ADDED[:1], True, 1.0)
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"9": "nine"}


def test_folders_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/nbest_predictions.json.*can't be written"):
        fill(tmp_path / "file", ADDED, True)
    with pytest.raises(DataError, match="can't be written"):
        write_squad_json(str(tmp_path / "absent" / "x.json"), {})
