"""A virtual environment for each peer, made once, and the process of one that answers requests."""

import contextlib
import fcntl
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
    "model_garden": ("tf-keras==2.20.*", "gin-config", "pyyaml", "scipy"),
    "onnx_runtime": ("onnx", "onnxruntime", "safetensors", "sympy", "numpy"),
    "pytorch": ("torch", "transformers", "safetensors", "numpy"),
    # The pairs whose servers exports are promised for. TF Text for 2.12 wants TensorFlow Hub; the
    # rest is what pip would find in several minutes.
    "tensorflow-2.12": (
        *("tensorflow-cpu==2.12.1", "tensorflow-hub==0.13.0", "jax==0.4.38", "jaxlib==0.4.38"),
        *("ml_dtypes==0.5.4", "scipy==1.15.3", "protobuf==4.25.9", "grpcio==1.74.0"),
        *("typing_extensions==4.5.0", "google-auth==2.63.0", "cryptography==50.0.2"),
        "setuptools==80.9.0",  # for its pkg_resources, which TensorFlow Hub imports
    ),
    "tensorflow-2.17": ("tensorflow-cpu==2.17.1",),
    "tensorflow-2.20": ("tensorflow-cpu==2.20.0",),
    "transformers4": (  # the last that has TensorFlow's classes
        *("transformers==4.57.6", "tensorflow==2.20.*", "tf-keras==2.20.*", "torch==2.13.0"),
    ),
}
"""What the environment of a peer holds."""
ALONE = {
    "model_garden": ("tf-models-official==2.20.*",),
    # It asks for TensorFlow's other package, the one for GPUs.
    "tensorflow-2.12": ("tensorflow-text==2.12.1",),
    "tensorflow-2.17": ("tensorflow-text==2.17.0",),
    "tensorflow-2.20": ("tensorflow-text==2.20.1",),
}
"""What it holds besides, installed without what that asks for."""

_COMPLETE = "requirements.txt"


def python_of(peer: str, folder: str, pip_arguments: Sequence[str] = ()) -> str:
    """The interpreter of a peer's environment.

    Args:
        peer: One of `REQUIREMENTS`.
        folder: Holds an environment for each peer; made if absent.
        pip_arguments: For installing, such as another index; uv knows pip's.

    Raises:
        RuntimeError: Something can't be installed.
    """
    wanted = "\n".join((*REQUIREMENTS[peer], *ALONE.get(peer, ()))) + "\n"
    place = pathlib.Path(folder).expanduser().absolute() / peer
    python = str(place / "bin" / "python")
    complete = place / _COMPLETE
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_name(f"{peer}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several processes ask for the same one
        # Written last, so an environment that was interrupted is made again.
        if not complete.is_file() or complete.read_text(encoding="utf-8") != wanted:
            print(f"Installing {', '.join(wanted.split())} into {place} ...", file=sys.stderr)
            install = _installer(peer, python)
            venv.EnvBuilder(clear=True, with_pip=install[0] == python).create(place)
            _run(*install, *pip_arguments, *REQUIREMENTS[peer])
            if peer in ALONE:
                _run(*install, "--no-deps", *pip_arguments, *ALONE[peer])
            complete.write_text(wanted, encoding="utf-8")
    return python


def _installer(peer: str, python: str) -> list[str]:
    """A command that installs: uv, which is several times as fast as pip.

    Of PyTorch uv takes the build for GPUs, of gigabytes; pip, what it is configured for.
    """
    if any(name.partition("==")[0] == "torch" for name in REQUIREMENTS[peer]):
        return [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    return [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


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
