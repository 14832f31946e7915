"""The demo of run_squad.py: its questions, where their answers are, its baselines."""

import json

import pytest

from data.demo import arguments, modules, scores
from tests.data.demo.packages import written_modules

GOOGLE = '''
def fold(values, steps=3):
    """Folds {noun} that lie one above the other until only some of the {noun} are left.

    What it does to them is said here at length, since a docstring must be long enough.

    Args:
        values: The {noun} that are to be folded. There may be many.
        steps (int): How often the {noun}
            are folded before they are given back.

    Returns:
        All of the {noun} that are left. Some may be empty.

    Raises:
        ValueError: If there are no {noun} to fold.
    """
'''
NUMPY = '''
def bend(points, angle):
    """
    Bends {noun} that stand beside each other until all of them point to the other side.

    Parameters
    ----------
    points : array_like
        The places of the {noun} on the plane. They aren't changed.
    angle : float, optional
        How far the {noun} are bent to one side.

    Returns
    -------
    bent : ndarray
        The places where the {noun} end.

    Notes
    -----
    This is no part: nobody asks about it, whatever it says.
    """
'''
NOUNS = ("rows", "columns", "lines", "marks", "axes", "tests", "weights", "parts", "grids", "days")


@pytest.fixture
def small(tmp_path, monkeypatch):
    sources = {}
    for number, noun in enumerate(NOUNS):
        sources[f"keras/m{number}.py"] = GOOGLE.format(noun=noun)
        sources[f"numpy/m{number}.py"] = NUMPY.format(noun=noun)
        sources[f"scipy/m{number}.py"] = NUMPY.format(noun=noun)  # a copy
    found = written_modules(tmp_path / "packages", sources)
    monkeypatch.setattr(modules, "installed_modules", lambda: found)
    return found


def test_questions_of_both_styles(small):
    found = {q.question: q.text for m in small[:2] for q in arguments.module_questions(m)}
    assert found == {
        "What is values of fold?": "The rows that are to be folded",
        "What is steps of fold?": "How often the rows are folded before they are given back",
        "What does fold return?": "All of the rows that are left",
        "When does fold raise ValueError?": "If there are no rows to fold",
        "What is points of bend?": "The places of the rows on the plane",
        "What is angle of bend?": "How far the rows are bent to one side",
        "What does bend return?": "The places where the rows end",
    }


def test_files_and_baselines(small, tmp_path):
    data = arguments.make_argument_demo(str(tmp_path))
    asked = {}
    for part in modules.PARTS:
        content = json.loads((tmp_path / f"{part}.json").read_text())["data"]
        paragraphs = [(article["title"], p) for article in content for p in article["paragraphs"]]
        for title, paragraph in paragraphs:
            assert modules.part_of_module(title) == part
            (question,) = paragraph["qas"]
            (answer,) = question["answers"]
            start, text = answer["answer_start"], answer["text"]
            assert paragraph["context"][start : start + len(text)] == text
        asked[part] = [(p["context"], p["qas"][0]["answers"][0]["text"]) for _, p in paragraphs]
    for place in (0, 1):
        texts = [{pair[place] for pair in asked[part]} for part in ("train", "test")]
        assert all(texts) and not texts[0] & texts[1]
    answers = [text for part in modules.PARTS for _, text in asked[part]]
    assert len(answers) == len(set(answers))
    assert len(data.groups) == len(asked["test"]) == data.sizes["test"][0]
    # The whole form is in each of the modules: a linear model learns it from one.
    values = {name: scores.score_of_counts(c) for name, c in data.baselines.items()}
    assert values["bag of pairs of words"] > values["first sentence"] > 0
    right = {f"test {n}": text for n, (_, text) in enumerate(asked["test"])}
    (tmp_path / "predictions.json").write_text(json.dumps(right))
    assert scores.score_of_counts(data.score(str(tmp_path))) == 1
    assert data.reports(str(tmp_path)) == {"mistakes.txt": ""}
    (tmp_path / "predictions.json").write_text(json.dumps(dict.fromkeys(right, "?")))
    assert "answered: ?" in data.reports(str(tmp_path))["mistakes.txt"]
