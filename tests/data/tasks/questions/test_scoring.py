"""The threshold for the empty answer, found, kept and taken up again."""

from types import SimpleNamespace

import pytest

from data.errors import DataError
from data.tasks.questions.scoring import Scoring, with_answers
from data.tasks.questions.squad import Answer, Question

KNOWN = [
    Question("a", "?", "x y", (Answer("x", 0),), False, "f: 1"),
    Question("b", "?", "x y", (), True, "f: 2"),
]


def make(folder, threshold="auto", version_2=True):
    return Scoring(
        SimpleNamespace(
            output_dir=str(folder),
            null_score_diff_threshold=threshold,
            version_2_with_negative=version_2,
            characters=False,
        )
    )


def test_threshold_kept_with_the_model(tmp_path):
    scoring = make(tmp_path)
    path = tmp_path / "null_score_diff_threshold.json"
    for threshold in (-1.2345678901234567, 0.0, 1e9):
        scoring.keep(threshold)
        assert scoring.threshold() == threshold
    for content in ("", "{}", "[]", '{"null_score_diff_threshold": null}', "\xff"):
        path.write_text(content, "latin-1")
        with pytest.raises(DataError, match=r"threshold.json can't be read.*auto"):
            scoring.threshold()
    path.unlink()
    with pytest.raises(DataError, match="NotFoundError"):
        scoring.threshold()


def test_which_threshold_holds(tmp_path):
    texts, odds = {"a": "x", "b": "y"}, {"a": -1.0, "b": 1.0}
    assert make(tmp_path, version_2=False).threshold(KNOWN, texts, odds) == 0.0
    fixed = make(tmp_path, "-2.5")
    assert fixed.threshold(KNOWN, texts, odds) == -2.5
    fixed.keep(-2.5)
    assert not list(tmp_path.iterdir())
    scoring = make(tmp_path)
    assert -1 < scoring.threshold(KNOWN, texts, odds) < 1
    results = scoring.results(KNOWN, texts, odds, scoring.threshold(KNOWN, texts, odds))
    assert results["exact"] == results["f1"] == 100 and results["threshold"] == 0
    # Of questions whose answers aren't known, the kept one.
    unknown = [Question("c", "?", "x y", (), False, "f: 3")]
    assert with_answers(KNOWN) and not with_answers([*KNOWN, *unknown])
    scoring.keep(0.5)
    assert scoring.threshold(unknown, {"c": "x"}, {"c": 0.0}) == 0.5
    with pytest.raises(DataError, match="is zero; it has to be a number or auto"):
        make(tmp_path, "zero")
