"""Every script and command that writes: two starts never mix, and killed owners are succeeded."""

import subprocess
import sys

import pytest

from tests.scripts import ROOT
from tests.test_house import COMMANDS

# What stands among the commands and writes nothing.
READERS = {"pretrained", "try_it"}


def table(*arguments) -> str:
    command = [sys.executable, "-m", "tests.runs.one_writer", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs", "kills"), [(3, 1), pytest.param(20, 10, marks=pytest.mark.hours)]
)
def test_all_writers(pairs, kills):
    """20 pairs take 2 minutes, most of them waiting; `python -m tests.runs.one_writer` more."""
    text = table(f"--pairs={pairs}", f"--kills={kills}")
    scripts = {"run_pretraining", "run_classifier", "run_squad", "run_ner", "export"}
    for name in scripts | COMMANDS - READERS:
        assert f"\n{name} " in text


@pytest.mark.slow
def test_a_pair_and_a_kill():
    """Of one script and one command; a command is of another module than its lock."""
    table("--pairs=1", "--kills=1", "--writer=ta")
