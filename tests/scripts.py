"""Runs the project's scripts and commands as a user would, for tests."""

import json
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


# Several command lines of one script in one process, since starting TensorFlow takes seconds.
_MANY = """
import importlib, json, sys
sys.path.insert(0, ".")
name, *lines = json.load(sys.stdin)
script = importlib.import_module(name)
from absl import flags
from absl.testing import flagsaver
from data.errors import DataError
from modeling.errors import ModelingError
messages = []
for line in lines:
    saved = flagsaver.save_flag_values()
    flags.FLAGS.unparse_flags()
    try:
        flags.FLAGS([name, *line])
        script.main([name])
        messages.append("")
    except (DataError, ModelingError, OSError) as error:
        messages.append(" ".join(str(error).split()))
    flagsaver.restore_flag_values(saved)
print("\\n" + json.dumps(messages))
"""


def messages(script: str, *lines: tuple, timeout: float = 300) -> list[str]:
    """What a script's `main` says to each of several command lines; "" where nothing is wrong."""
    result = subprocess.run(
        [sys.executable, "-c", _MANY],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        input=json.dumps([script.removesuffix(".py"), *([str(a) for a in line] for line in lines)]),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])
