"""A request's memory and time grow as its text does, for every signature that takes one."""

import pytest

from tests.benchmarks import request_bounds

SIZES = (500_000, 4_000_000)


@pytest.mark.slow
@pytest.mark.hours
def test_linear_growth(tmp_path):
    """Of what squares, eight times the text would take 64 times as much; some 75 CPU seconds.

    Taggers refuse the larger one, after tokenization; slices of 201 letters are what squared there.
    On a machine with much else to do memory took up to 11 times as much, and time 17 times.
    """
    exports = request_bounds.make_exports(tmp_path)
    kinds = ("words", "one word", "words of 201 letters")
    rows = request_bounds.measure(exports, request_bounds.REQUESTS, kinds, SIZES, 14)
    assert not [row for row in rows if "died" in row]
    for small, large in zip(rows[::2], rows[1::2], strict=True):
        assert large["memory"] < 16 * max(small["memory"], 30), (small, large)
        assert large["seconds"] < 24 * max(small["seconds"], 0.1), (small, large)
        assert large["memory"] < 1000, large
