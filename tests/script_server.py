"""Runs Python commands in forks of one process that has imported TensorFlow: seconds less for each.

Started by `tests.scripts`. Reads one request a line from standard input, in JSON, and answers with
a line. {"arguments", "environment", "folder", "stdin", "stdout", "stderr"}, the last three names of
files, begins a command: its process id. {"process"}: its exit status, or null while it runs.
"""

from modeling import quiet  # noqa: F401  isort: skip

import atexit
import contextlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback

import keras  # noqa: F401
import matplotlib.backends.backend_agg
import matplotlib.figure
import matplotlib.font_manager
import matplotlib.ticker  # noqa: F401
import pyarrow  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.metrics  # noqa: F401


def command(arguments: list[str]) -> None:
    """What `python ARGUMENTS` does, in this process."""
    first, *rest = arguments
    if first in ("-m", "-c"):
        target, *rest = rest
    sys.argv = [first, *rest]
    if first == "-m":
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    elif first == "-c":
        exec(compile(target, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(first, run_name="__main__")


def child(request: dict) -> None:
    """Becomes the command; doesn't return."""
    os.setsid()
    # Shells have what they start in the background ignore Ctrl-C, and so would all commands here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, number, mode in (
        ("stdin", 0, os.O_RDONLY),
        ("stdout", 1, os.O_WRONLY),
        ("stderr", 2, os.O_WRONLY),
    ):
        os.dup2(os.open(request[name], mode), number)
    # Fresh ones: the parent's hold what it has read ahead.
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        setattr(sys, name, os.fdopen(number, mode, closefd=False, buffering=1))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"] or ".")
    status = 1
    try:
        command(request["arguments"])
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            status = end.code or 0
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        threading._shutdown()
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    sys.path.insert(0, os.getcwd())
    for line in sys.stdin:
        request = json.loads(line)
        if "process" in request:
            process, status = os.waitpid(request["process"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if process else None
        else:
            answer = os.fork()
            if not answer:
                child(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
