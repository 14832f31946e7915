"""Random bytes through the exported tokenizer, see `fuzz_exported.py`."""

import pytest

from tests.data.tokenization.fuzz_exported import fuzz


@pytest.mark.slow
def test_random_bytes():
    fuzz(6000, seed=2, sampled=20)


@pytest.mark.slow
def test_a_million_random_strings():
    fuzz(1_000_000, seed=1)
