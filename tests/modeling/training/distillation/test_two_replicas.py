"""Two replicas teach as one device does."""

import pytest

from tests.scripts import succeed


@pytest.mark.slow
def test_two_replicas(tmp_path):
    program = "tests.modeling.training.distillation.two_replicas_taught"
    assert succeed("-m", program, tmp_path).splitlines()[-1] == "equal"
