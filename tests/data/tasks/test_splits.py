"""The first examples of a split, which the log says."""

import pytest

from data.tasks.splits import first_examples


@pytest.mark.parametrize("most", [0, 3, 4])
def test_all_of_them(most, caplog):
    assert first_examples("abc", most, "train") == ["a", "b", "c"]
    assert not caplog.text


@pytest.mark.parametrize(
    ("name", "flag"), [("train", "train"), ("dev", "eval"), ("dev_other", "eval")]
)
def test_the_first(name, flag, caplog):
    assert first_examples("abc", 2, name) == ["a", "b"]
    assert f"{name}: the first 2 of 3 examples (--max_{flag}_examples)" in caplog.text
