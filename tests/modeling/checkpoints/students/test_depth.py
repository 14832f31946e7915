"""Which layers a student begins with."""

import itertools

import pytest

from modeling.checkpoints.students.depth import evenly_spaced_layers, student_layers
from modeling.errors import ModelingError


def test_layers_as_they_are_given():
    assert student_layers(["0", "2", " 4"], 5) == [0, 2, 4]
    assert student_layers(["3"], 4) == [3]


@pytest.mark.parametrize(
    "items, message",
    [
        ([], "--student_layers is empty"),
        (["0", "6"], "has 6 layers and no layer 6"),
        (["2", "0"], "where 0 follows 2"),
        (["1", "1"], "where 1 follows 1"),
        (["0", "-1"], "'-1' is no whole number"),
        (["0", "two"], "'two' is no whole number"),
        (["0", ""], "'' is no whole number"),
        (["²"], "'²' is no whole number"),
    ],
)
def test_what_is_no_list_of_layers_is_refused(items, message):
    with pytest.raises(ModelingError, match="counted from 0 to 5") as caught:
        student_layers(items, 6)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "count, of, layers",
    [
        (6, 12, [0, 2, 4, 7, 9, 11]),  # DistilBERT's
        (3, 6, [0, 3, 5]),
        (4, 12, [0, 4, 7, 11]),
        (2, 12, [0, 11]),
        (1, 12, [0]),
        (5, 5, [0, 1, 2, 3, 4]),
    ],
)
def test_evenly_spaced(count, of, layers):
    assert evenly_spaced_layers(count, of) == layers


def test_so_many_layers_as_there_are():
    for of in range(1, 30):
        for count in range(1, of + 1):
            layers = evenly_spaced_layers(count, of)
            assert student_layers([str(layer) for layer in layers], of) == layers
            gaps = [b - a for a, b in itertools.pairwise(layers)]
            assert len(layers) == count and max(gaps, default=0) - min(gaps, default=0) <= 1
    for count in (-1, 0, 7):
        with pytest.raises(ModelingError, match=f"{count}, but the teacher has 6 layers"):
            evenly_spaced_layers(count, 6)
