"""Random bytes through the exported tokenizer, see `fuzz_exported.py`."""

import pytest

from tests.data.tokenization.fuzz_exported import fuzz


@pytest.mark.slow
def test_random_bytes():
    fuzz(1000, seed=2, sampled=20)


@pytest.mark.slow
@pytest.mark.parametrize("count", [15_000, pytest.param(1_000_000, marks=pytest.mark.hours)])
def test_random_strings(count):
    fuzz(count, seed=1)
