"""What a run was: flags, model, code, machine, time, memory and outcome, in run_summary.json.

    with RunSummary(output_dir, flags=given_run_flags(flag_values)) as summary:
        ...
        summary.attach(model=model, train_step=train_step, reporter=reporter)
        train(...)

The file holds one entry per session: a run that was interrupted and resumed has several. An entry
is written at the start and again at the end, however that comes; one whose `ended` is null is
still running or was killed. Nothing here makes a run fail: what can't be found out is null.
"""

import contextlib
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags as absl_flags
from absl import logging

from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.logs import duration_text
from modeling.training.engine.distribution import is_chief, num_workers
from modeling.training.engine.loop import EXIT_CODES
from modeling.training.engine.step import TrainStep
from modeling.training.runs.reporting import EVAL_ALONE, Reporter

FILE = "run_summary.json"
# Which the project's scripts don't define.
_LIBRARIES = {"absl", "tensorflow", "keras"}


class RunSummary:
    """One session of a run, as a context manager. One that ends before `attach` leaves no entry.

    `ended` becomes "finished"; "interrupted" after SystemExit with one of `loop.EXIT_CODES`, as
    training ends when it is told to stop, or after KeyboardInterrupt; "failed" after any other
    exception. Exceptions go on their way.

    Args:
        directory: The run's output folder; must exist.
        flags: See `given_run_flags`.

    Attributes:
        entry: What the file will say of this session; may be added to.
    """

    def __init__(self, directory: str, *, flags: Mapping[str, Mapping[str, Any]] | None = None):
        self.directory = directory
        self._train_step: TrainStep | None = None
        self._reporter: Reporter | None = None
        self._earlier = _earlier_sessions(join(directory, FILE))
        self._chief = False
        self._start = time.monotonic()
        self.entry: dict[str, Any] = {
            "ended": None,
            "error": None,
            "command": sys.argv,
            "started": _now(),
            "ended_at": None,
            "wall_seconds": None,
            "from_step": None,
            "to_step": None,
            "final": {},
            "parameters": None,
            "config": None,
            "flags": dict(sorted((flags or {}).items())),
            "git": _attempt(_git),
            "versions": _versions(),
            "hardware": _hardware(),
            "peak_memory_bytes": None,
            "gpu_peak_memory_bytes": None,
        }

    def __enter__(self) -> "RunSummary":
        return self

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """Entries of all sessions of the run, this one last."""
        return [*self._earlier, self.entry]

    @property
    def elapsed_seconds(self) -> float:
        """Of all sessions that ended, and of this one until now."""
        earlier = sum(entry.get("wall_seconds") or 0 for entry in self._earlier)
        return earlier + time.monotonic() - self._start

    @property
    def killed_sessions(self) -> int:
        """Of the earlier ones, those that nobody knows the end of."""
        return sum(entry.get("wall_seconds") is None for entry in self._earlier)

    def attach(
        self,
        *,
        model: keras.Model | None = None,
        train_step: TrainStep | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """Hands in what the summary is to tell of, and writes the entry for the first time.

        To be called in the strategy's scope, once the run has been started or resumed.

        Args:
            model: For configuration and number of parameters.
            train_step: For the steps done; those done by now belong to earlier sessions.
            reporter: For the last losses.
        """
        self._chief = _attempt(is_chief, True)
        self._train_step, self._reporter = train_step, reporter
        strategy = tf.distribute.get_strategy()
        self.entry["hardware"] |= {
            "replicas": _attempt(lambda: strategy.num_replicas_in_sync),
            "workers": _attempt(num_workers),
            "strategy": type(strategy).__name__,
            "tpu_cores": _attempt(lambda: len(tf.config.list_logical_devices("TPU"))),
        }
        if model is not None:
            self.entry["parameters"] = _attempt(lambda: int(model.count_params()))
            self.entry["config"] = _attempt(lambda: model.config.to_dict())
        self.entry["from_step"] = self.entry["to_step"] = self._step()
        self._save()

    def __exit__(self, kind, error, traceback) -> None:
        self.entry["ended"] = _ending(error)
        if self.entry["ended"] == "failed":
            self.entry["error"] = f"{kind.__name__}: {error}"
        wall_seconds = time.monotonic() - self._start
        self.entry |= {"ended_at": _now(), "wall_seconds": round(wall_seconds, 3)}
        self.entry["peak_memory_bytes"] = _attempt(_peak_memory)
        self.entry["gpu_peak_memory_bytes"] = _attempt(_gpu_peak_memory)
        self.entry["to_step"] = self._step()
        if self._reporter is not None:
            kinds = {"train": "train", "eval": "eval" if self._train_step else EVAL_ALONE}
            self.entry["final"] = {name: self._reporter.last(k) for name, k in kinds.items()}
        if self._save():
            logging.info("%s", self._line())

    def _step(self) -> int | None:
        if self._train_step is None:
            return None
        return _attempt(lambda: int(self._train_step.global_step.numpy()), self.entry["to_step"])

    def _save(self) -> bool:
        if not self._chief:
            return False
        try:
            text = json.dumps(_plain({"sessions": self.sessions}), indent=2)
            with staged(self.directory) as temporary:
                write_staged_text(join(temporary, FILE), text + "\n")
        except Exception as error:  # a summary is worth no run
            logging.warning("The run's summary can't be written: %s", error)
            return False
        return True

    def _line(self) -> str:
        entry, parts = self.entry, []
        if entry["from_step"] is not None:
            parts.append(f"steps {entry['from_step']} to {entry['to_step']}")
        if entry["parameters"]:
            parts.append(f"{entry['parameters']:,} parameters")
        parts.append(f"{entry['hardware'].get('replicas') or 1} replica(s)")
        if entry["peak_memory_bytes"]:
            parts.append(f"peak memory {entry['peak_memory_bytes'] / 2**30:.2f} GiB")
        gpus = entry["gpu_peak_memory_bytes"]
        if gpus:
            parts.append(f"of the GPUs {max(gpus) / 2**30:.2f} GiB")
        if entry["git"]:
            dirty = " with changes" if entry["git"]["dirty"] else ""
            parts.append(f"commit {entry['git']['commit'][:10]}{dirty}")
        parts.append(f"TensorFlow {entry['versions']['tensorflow']}")
        return (
            f"Run {entry['ended']} after {duration_text(entry['wall_seconds'])}: "
            f"{', '.join(parts)}; see {join(self.directory, FILE)}"
        )


def given_run_flags(flag_values: absl_flags.FlagValues) -> dict[str, dict[str, Any]]:
    """The flags of a script with their values, those of libraries left out.

    Args:
        flag_values: absl's, after parsing.

    Returns:
        Name → {"value": …, "given": whether it was set rather than left at its default}.
    """
    return {
        flag.name: {
            "value": flag.value,
            "given": bool(flag.present) or not flag.using_default_value,
        }
        for module, module_flags in flag_values.flags_by_module_dict().items()
        if module.partition(".")[0] not in _LIBRARIES
        for flag in module_flags
    }


def _attempt(function: Callable[[], Any], default: Any = None) -> Any:
    """What a function returns, or the default where this system has no answer."""
    try:
        return function()
    except Exception:
        return default


def _ending(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit) and error.code in EXIT_CODES.values():
        return "interrupted"
    return "failed"


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _earlier_sessions(path: str) -> list[dict]:
    if not tf.io.gfile.exists(path):
        return []
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            return list(json.load(file)["sessions"])
    except (ValueError, KeyError, TypeError, tf.errors.OpError):
        logging.warning("%s can't be read; it is written anew.", path)
        return []


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def code_commit() -> str:
    """What this code is of: a commit's first ten digits, + if files differ; "" if unknown."""
    checkout = _attempt(_git)
    return checkout["commit"][:10] + "+" * checkout["dirty"] if checkout else ""


def _git() -> dict[str, Any] | None:
    """Commit of the checkout that this code lies in; None if it lies in none of its own."""
    root = str(pathlib.Path(__file__).resolve().parents[3])
    # Variables such as GIT_DIR would lead to another repository.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "-C", root, *arguments]
        options = {"capture_output": True, "text": True, "timeout": 10, "check": True}
        return subprocess.run(command, env=environment, **options).stdout.strip()

    # A copy inside of another project's checkout isn't described by that project's commit.
    if os.path.realpath(git("rev-parse", "--show-toplevel")) != os.path.realpath(root):
        return None
    changed = git("--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}


def _versions() -> dict[str, str | None]:
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "tensorflow-text": _attempt(lambda: importlib.metadata.version("tensorflow-text")),
        "keras": keras.__version__,
        "numpy": np.__version__,
    }


def _hardware() -> dict[str, Any]:
    def cpu() -> str:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)[1]

    def cores() -> int | None:
        with contextlib.suppress(AttributeError):
            return len(os.sched_getaffinity(0))  # those that this process may use
        return os.cpu_count()

    def gpus() -> list[str]:
        details = tf.config.experimental.get_device_details
        devices = tf.config.list_physical_devices("GPU")
        return [details(device).get("device_name", device.name) for device in devices]

    return {
        "system": platform.platform(),
        "cpu": _attempt(cpu) or platform.processor() or platform.machine() or None,
        "cores": _attempt(cores),
        "memory_bytes": _attempt(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "gpus": _attempt(gpus, []),
    }


def _peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    # Not getrusage where it can be helped: its figure may be that of the process that started us.
    with contextlib.suppress(OSError, TypeError), open("/proc/self/status") as file:
        return int(re.search(r"^VmHWM:\s*(\d+) kB$", file.read(), re.MULTILINE)[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _gpu_peak_memory() -> list[int]:
    """Of each GPU, what TensorFlow had allocated at most, in bytes."""
    devices = tf.config.list_logical_devices("GPU")
    return [int(tf.config.experimental.get_memory_info(d.name)["peak"]) for d in devices]
