"""The threshold for the empty answer, found, kept and taken up again."""

from types import SimpleNamespace

import pytest

from data.errors import DataError
from data.tasks.questions.scoring import Scoring
from data.tasks.questions.squad import Answer, Question

KNOWN = [
    Question("a", "?", "x y", (Answer("x", 0),), False, "f: 1"),
    Question("b", "?", "x y", (), True, "f: 2"),
]


def make(folder, threshold="auto", version_2=True, init_checkpoint=None):
    return Scoring(
        SimpleNamespace(
            output_dir=str(folder),
            null_score_diff_threshold=threshold,
            version_2_with_negative=version_2,
            characters=False,
        ),
        init_checkpoint,
    )


def test_threshold_kept_with_the_model(tmp_path):
    scoring = make(tmp_path)
    path = tmp_path / "null_score_diff_threshold.json"
    for threshold in (-1.2345678901234567, 0.0, 1e9):
        scoring.keep(threshold, "w")
        assert scoring.threshold() == threshold
    for content in ("", "{}", "[]", '{"null_score_diff_threshold": null}', "\xff"):
        path.write_text(content, "latin-1")
        with pytest.raises(DataError, match=r"threshold.json.*auto"):
            scoring.threshold()
    path.unlink()
    with pytest.raises(DataError, match=r"there is no null_score_diff_threshold\.json"):
        scoring.threshold()


def test_threshold_of_the_weights_that_answer(tmp_path):
    for name, threshold in (("first", 1.0), ("here", 2.0)):
        (tmp_path / name).mkdir()
        make(tmp_path / name).keep(threshold, name)
    scoring = make(tmp_path / "here", init_checkpoint=str(tmp_path / "first"))
    assert [scoring.threshold(weights=name) for name in ("first", "here")] == [1.0, 2.0]
    with pytest.raises(DataError, match="found for other weights, or other models together"):
        scoring.threshold(weights="here original")
    make(tmp_path / "here").keep(5.0, "first")  # by another file
    assert scoring.threshold(weights="first") == 5.0
    make(tmp_path / "here").keep(2.0, "here")
    # Of an earlier version, which doesn't say whose it is.
    (tmp_path / "first/null_score_diff_threshold.json").write_text(
        '{"null_score_diff_threshold": 3}'
    )
    assert [scoring.threshold(weights=name) for name in ("first", "here")] == [3.0, 2.0]


def test_which_threshold_holds(tmp_path):
    texts, odds = {"a": "x", "b": "y"}, {"a": -1.0, "b": 1.0}
    assert make(tmp_path, version_2=False).threshold(KNOWN, texts, odds) == 0.0
    fixed = make(tmp_path, "-2.5")
    assert fixed.threshold(KNOWN, texts, odds) == -2.5
    fixed.keep(-2.5, "w")
    assert not list(tmp_path.iterdir())
    scoring = make(tmp_path)
    assert -1 < scoring.threshold(KNOWN, texts, odds) < 1
    results = scoring.results(KNOWN, texts, odds, scoring.threshold(KNOWN, texts, odds))
    assert results["exact"] == results["f1"] == 100 and results["threshold"] == 0
    # Of questions whose answers aren't known, the kept one.
    unknown = [Question("c", "?", "x y", (), False, "f: 3")]
    assert [scoring.without_answers(some) for some in (KNOWN, [*KNOWN, *unknown])] == [0, 1]
    assert make(tmp_path, version_2=False).without_answers(KNOWN) == 1
    scoring.keep(0.5, "w")
    scoring.keep(0.7, None)  # by several models
    assert scoring.threshold(unknown, {"c": "x"}, {"c": 0.0}) == 0.5
    with pytest.raises(DataError, match="is zero; it has to be a number or auto"):
        make(tmp_path, "zero")
