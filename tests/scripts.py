"""Runs the project's scripts and commands as a user would, for tests."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

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


class Script:
    """`python ARGUMENTS` in the project's folder, begun.

    It runs in a fork of a process that has imported TensorFlow and nothing of the project.

    Args:
        arguments: Of the command line.
        stdin: What it reads from standard input.
        environment: Variables besides those of this process.
        folder: Where it runs; default: the project's folder.
    """

    def __init__(
        self,
        *arguments,
        stdin: str = "",
        environment: dict[str, str] | None = None,
        folder: str = "",
    ):
        self.arguments = [str(argument) for argument in arguments]
        self.returncode: int | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._files = {
            name: pathlib.Path(self._folder.name, name) for name in ("stdin", "stdout", "stderr")
        }
        for name, path in self._files.items():
            path.write_text(stdin if name == "stdin" else "")
        variables = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | (environment or {})
        request = {"arguments": self.arguments, "environment": variables, "folder": folder}
        self.pid = _ask(request | {name: str(path) for name, path in self._files.items()})

    def poll(self) -> int | None:
        """The exit status, minus the signal's number if one ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = _ask({"process": self.pid})
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def read(self, name: str) -> str:
        """What it has written to "stdout" or "stderr" so far."""
        return self._files[name].read_text(errors="replace")

    def wait(self, timeout: float = 300) -> subprocess.CompletedProcess:
        """Its end; what takes longer is killed, with TimeoutExpired."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                os.killpg(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(self.arguments, timeout, self.read("stdout"))
            time.sleep(0.005)
        output = [self.read(name) for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess(self.arguments, self.returncode, *output)


def _ask(request: dict):
    server = _server()
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def run(*arguments, timeout: float = 300, stdin: str = "") -> subprocess.CompletedProcess:
    """`python ARGUMENTS` to its end, see `Script`; its output is in .stdout and .stderr."""
    return Script(*arguments, stdin=stdin).wait(timeout)


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


# What every client of an export begins and ends with; `answer` is the test's.
_CLIENT = """
import json, sys
import tensorflow as tf, tensorflow_text
{program}
with open(sys.argv[2]) as file:
    asked = json.load(file)
answered = answer(tf.saved_model.load(sys.argv[1]), asked)
assert not [m for m in sys.modules if m.split(".")[0] in ("modeling", "data")]
with open(sys.argv[3], "w") as file:
    json.dump(answered, file)
"""


def served(
    program: str,
    export: pathlib.Path,
    asked,
    folder: pathlib.Path,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
):
    """What a SavedModel answers in a fresh process that can't see the project.

    Args:
        program: Python that defines `answer(loaded, asked)`; both sides fit into JSON.
        export: The SavedModel.
        asked: Questions.
        folder: For files.
        python: Of an environment with TensorFlow and TF Text.
        environment: Variables besides those of this process.
    """
    files = [folder / name for name in ("client.py", "asked.json", "answered.json")]
    files[0].write_text(_CLIENT.replace("{program}", program))
    files[1].write_text(json.dumps(asked))
    subprocess.run(
        [python, files[0], export, *files[1:]],
        cwd=folder,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""} | (environment or {}),
        check=True,
        timeout=300,
    )
    return json.loads(files[2].read_text())
