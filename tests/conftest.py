"""Fixtures that every test may use."""

import os
import pathlib

import pytest
from absl import logging

# As the scripts run, so that tests see what users are told.
logging.set_verbosity(logging.INFO)

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("BERT_SHARED_DIR", ROOT.parent / "shared"))


def _folder(name: str) -> pathlib.Path:
    path = SHARED / name
    if not path.is_dir():
        message = f"{path} is absent (set BERT_SHARED_DIR to the folder that holds {name}/)"
        if os.environ.get("CI"):
            pytest.fail(message + "; in CI it must be there")
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def golden() -> pathlib.Path:
    """The folder of numbers printed by the original release under TensorFlow 1.15."""
    return _folder("golden")


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real public data sets."""
    return _folder("data")
