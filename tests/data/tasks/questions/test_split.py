"""Articles stay whole, parts have the size asked for, and the seed tells the order."""

import pytest

from data.errors import DataError
from data.tasks.questions.split import split_articles
from data.tasks.questions.squad import Question, read_squad


def numbered(sizes, title="T{}"):
    return [
        Question(f"{a}-{n}", "?", "c", (), False, f"f: data[{a}].paragraphs[{n}].qas[0]",
                 title.format(a))
        for a, size in enumerate(sizes)
        for n in range(size)
    ]  # fmt: skip


@pytest.mark.parametrize("title", ["T{}", ""])
def test_articles_stay_whole(title):
    questions = numbered([5 + n % 7 for n in range(40)], title)
    rest, held = split_articles(questions, 0.25, seed=1)
    article = {q.id: q.id.split("-")[0] for q in questions}
    assert not {article[q.id] for q in rest} & {article[q.id] for q in held}
    assert sorted(rest + held, key=questions.index) == questions
    assert [q for q in questions if q in set(held)] == held
    # Off by half the largest article at most.
    assert abs(len(held) - 0.25 * len(questions)) <= 5.5
    again = split_articles(questions[::-1], 0.25, seed=1)
    assert again == (rest[::-1], held[::-1])
    assert split_articles(questions, 0.25, seed=2)[1] != held


def test_both_parts_have_articles():
    for fraction in (1e-9, 0.5, 1 - 1e-9):
        rest, held = split_articles(numbered([3, 100]), fraction, seed=0)
        assert {len(rest), len(held)} == {3, 100}
    # The title tells, not the place.
    same = numbered([3, 3], "one")
    with pytest.raises(DataError, match="6 questions of 1 article can't be split"):
        split_articles(same, 0.5, seed=0)
    for fraction in (0, 1, -0.5, float("nan")):
        with pytest.raises(DataError, match="above 0 and below 1"):
            split_articles(numbered([3, 3]), fraction, seed=0)


def test_a_real_file(shared_data):
    path = str(shared_data / "squad" / "dev-v2.0.json")
    questions = read_squad(path, version_2=True, training=False)
    rest, held = split_articles(questions, 0.5, seed=0)
    assert len(rest) + len(held) == 11_873 and abs(len(held) - 11_873 / 2) < 300
    assert not {q.title for q in rest} & {q.title for q in held}
