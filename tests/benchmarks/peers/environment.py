"""A virtual environment for each peer, made once, and the process of one that answers requests."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import venv
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[3]

REQUIREMENTS = {
    "keras_hub": ("tensorflow>=2.20,<2.22", "keras-hub"),
    "model_garden": ("tf-models-official",),
    "onnx_runtime": ("onnx", "onnxruntime", "safetensors", "sympy", "numpy"),
    "pytorch": ("torch", "transformers", "safetensors", "numpy"),
}
"""What the environment of a peer holds."""

_COMPLETE = "requirements.txt"


def python_of(peer: str, folder: str, pip_arguments: Sequence[str] = ()) -> str:
    """The interpreter of a peer's environment.

    Args:
        peer: One of `REQUIREMENTS`.
        folder: Holds an environment for each peer; made if absent.
        pip_arguments: For installing, such as another index.

    Raises:
        RuntimeError: Something can't be installed.
    """
    wanted = "\n".join(REQUIREMENTS[peer]) + "\n"
    place = pathlib.Path(folder).expanduser().absolute() / peer
    python = str(place / "bin" / "python")
    # Written last, so an environment that was interrupted is made again.
    complete = place / _COMPLETE
    if complete.is_file() and complete.read_text(encoding="utf-8") == wanted:
        return python
    print(f"Installing {', '.join(REQUIREMENTS[peer])} into {place} ...", file=sys.stderr)
    venv.EnvBuilder(clear=True, with_pip=True).create(place)
    command = [python, "-m", "pip", "install", "--quiet", *pip_arguments, *REQUIREMENTS[peer]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    complete.write_text(wanted, encoding="utf-8")
    return python


def use_processors(number: int) -> None:
    """Leaves this process so many processors; workers inherit that."""
    if hasattr(os, "sched_setaffinity"):  # which not every system has
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:number])


class Process:
    """A worker (see `tests.benchmarks.peers.worker`).

    Args:
        name: For messages.
        command: What to run, in the project's folder.
        threads: How many it may compute with.
    """

    def __init__(self, name: str, command: Sequence[str], threads: int):
        number = str(threads)
        variables = os.environ | {"OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}
        variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._name = name

    def ask(self, **request):
        """The answer's result.

        Raises:
            RuntimeError: The worker failed.
        """
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It says why, if it can.
        answer = json.loads(self._process.stdout.readline() or "{}")
        if "result" not in answer:
            raise RuntimeError(f"{self._name} failed: {answer.get('error', 'see above')}")
        return answer["result"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):  # it has died, and says so elsewhere
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
