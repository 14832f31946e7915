"""Numbers that were found for weights are used for these alone."""

import pytest

from data.errors import DataError
from data.tasks.kept import keep_numbers, kept_numbers

FILE = "numbers.json"


def kept(folder, weights, earlier=None):
    return kept_numbers(str(folder), None, FILE, ("a",), "Do it again.", weights, earlier)


def test_for_these_weights_alone(tmp_path):
    assert kept(tmp_path, "w1") is None
    keep_numbers(str(tmp_path), FILE, {"a": 2}, "w1")
    assert kept(tmp_path, "w1") == kept(tmp_path, None) == [2]
    with pytest.raises(DataError, match=r"found for other weights.* Do it again\."):
        kept(tmp_path, "w2")


def test_what_an_earlier_version_told_less_of(tmp_path):
    keep_numbers(str(tmp_path), FILE, {"a": 2}, "w1")
    assert kept(tmp_path, "w1 n_best_size=5", earlier="w1") == [2]
    with pytest.raises(DataError, match="or otherwise"):
        kept(tmp_path, "w2 n_best_size=5", earlier="w2")
    keep_numbers(str(tmp_path), FILE, {"a": 3}, "w1 n_best_size=5")
    assert kept(tmp_path, "w1 n_best_size=5", earlier="w1") == [3]
    with pytest.raises(DataError, match="or otherwise"):
        kept(tmp_path, "w1 n_best_size=3", earlier="w1")
