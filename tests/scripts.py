"""Runs the project's scripts and commands as a user would, for tests."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent


@functools.cache
def _server() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.script_server"],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(*arguments, timeout: float = 300, stdin: str = "") -> subprocess.CompletedProcess:
    """`python ARGUMENTS` in the project's folder; its output is in .stdout and .stderr.

    It runs in a fork of a process that has imported TensorFlow and nothing of the project.
    """
    arguments = [str(argument) for argument in arguments]
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        files = {name: pathlib.Path(folder, name) for name in ("stdin", "stdout", "stderr")}
        for name, path in files.items():
            path.write_text(stdin if name == "stdin" else "")
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        request = {"arguments": arguments, "environment": environment}
        request |= {name: str(path) for name, path in files.items()}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        process = int(server.stdout.readline())
        late = threading.Timer(timeout, os.killpg, (process, signal.SIGKILL))
        late.start()
        status = int(server.stdout.readline())
        if late.finished.is_set():
            raise subprocess.TimeoutExpired(arguments, timeout, files["stdout"].read_bytes())
        late.cancel()
        output = [files[name].read_text(errors="replace") for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess(arguments, status, *output)


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
    lines = [[str(argument) for argument in line] for line in lines]
    asked = json.dumps([script.removesuffix(".py"), *lines])
    result = run("-c", _MANY, timeout=timeout, stdin=asked)
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])
