"""The demo of run_ner.py: its sentences, their tags, its baselines."""

import pytest

from data.demo import code_words, modules, scores
from data.tasks.tagging import conll
from tests.data.demo.packages import written_modules

SOURCE = '''
def pad(array, width, *, mode="constant"):
    """Pads `array` at both of its ends by {noun} and by some more {noun} of the caller.

    If `mode` is `None` or `'wrap'`, then `pad_all()` is called with {noun} by whoever pads.
    The `{library}.Tensor` that has {noun} of its own is given back as it was before.
    Here None is a word that nobody has marked and `mode` is one that somebody has.
    The value of `width + 1` is more than one word long, so that it is left out.
    There are {noun} without any mark at all, which nothing can be learned from.
    """
'''
NOUNS = ("rows", "columns", "lines", "marks", "axes", "tests", "weights", "parts", "grids", "days")


@pytest.fixture
def small(tmp_path, monkeypatch):
    sources = {f"numpy/m{n}.py": SOURCE.format(noun=w, library="m") for n, w in enumerate(NOUNS)}
    found = written_modules(tmp_path / "packages", sources)
    monkeypatch.setattr(modules, "installed_modules", lambda: found)
    return found


def test_tags_are_those_of_signature_and_marks(small):
    sentences = code_words.tagged_sentences(small[0])
    tagged = [
        {word: tag[2:] for word, tag in zip(s.words, s.tags, strict=True) if tag != "O"}
        for s in sentences
    ]
    assert tagged == [
        {"array": "ARGUMENT"},
        {"mode": "ARGUMENT", "None": "VALUE", "wrap": "VALUE", "pad_all": "NAME"},
        {"m.Tensor": "CLASS"},
    ]
    assert sentences[2].text.startswith("The m.Tensor that has rows of its own")
    assert not any(mark in s.text for s in sentences for mark in "`\ua7f7\ua7fa")


@pytest.mark.parametrize(
    "code, kind",
    [
        *(("axis", "ARGUMENT"), ("True", "VALUE"), ("-1", "VALUE"), ("'same'", "VALUE")),
        *(("int", "CLASS"), ("tf.Variable", "CLASS"), ("Dense()", "NAME"), ("np.float64", "NAME")),
        *(("x + y", None), ("f(x)", None), ("EPOCHS", "NAME")),
    ],
)
def test_kinds(code, kind):
    assert code_words._kind(code, {"axis"}) == kind


def test_files_baselines_and_reports(small, tmp_path):
    data = code_words.make_code_word_demo(str(tmp_path))
    read = {
        part: conll.read_conll_sentences(data.files[f"{part}_file"], conll.TagFormat(), True)
        for part in ("train", "dev", "test")
    }
    texts = {part: {" ".join(s.words) for s in sentences} for part, sentences in read.items()}
    assert not texts["train"] & texts["test"] and texts["train"] and texts["test"]
    assert len(data.groups) == len(read["test"]) == data.sizes["test"][0]
    totals = {name: float(scores.score_of_counts(c)) for name, c in data.baselines.items()}
    assert totals["majority (no code)"] == 0 < totals["most frequent tag of the word"] <= 1
    lines = [
        "\n".join(f"{w} x {t}" for w, t in zip(s.words, s.tags, strict=True)) for s in read["test"]
    ]
    (tmp_path / "predictions.txt").write_text("\n\n".join(lines) + "\n")
    assert scores.score_of_counts(data.score(str(tmp_path))) == 1
    lines[0] = lines[0].replace("B-", "I-")
    (tmp_path / "predictions.txt").write_text("\n\n".join(lines) + "\n")
    assert scores.score_of_counts(data.score(str(tmp_path))) < 1
    reports = data.reports(str(tmp_path))
    assert (
        "taken for I-" in reports["mistakes.txt"].split("\n")[1]
        and "ARGUMENT" in reports["confusion.txt"]
    )
