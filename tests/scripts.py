"""Runs the project's scripts and commands as a user would, for tests."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*arguments, timeout: float = 300) -> subprocess.CompletedProcess:
    """`python ARGUMENTS` in the project's folder; its output is in .stdout and .stderr."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def succeed(*arguments, timeout: float = 300) -> str:
    """Standard output and error of a run that has to end well."""
    result = run(*arguments, timeout=timeout)
    text = result.stdout + result.stderr
    assert result.returncode == 0, text[-4000:]
    return text


def fail(*arguments, timeout: float = 300) -> str:
    """The error message of a run that has to end with one paragraph and no traceback."""
    result = run(*arguments, timeout=timeout)
    assert result.returncode not in (0, None), result.stdout[-2000:]
    assert "Traceback" not in result.stderr, result.stderr[-4000:]
    return " ".join(result.stderr.split("Error:")[-1].split())
