"""Runs attacks one after the other, each in a fork of this process, which has imported everything.

Started by `tests.attacks.suite`. Reads a request a line from standard input, in JSON: that of
`tests.script_server`, with "seconds" and "bytes", the most that the command may take; answers with
its exit status (null where it was killed for that), its seconds of computing and the most memory
that it held, in bytes.

This process has imported TensorFlow and the project, but has never computed anything: threads don't
survive a fork, and TensorFlow starts its own with the first computation.
"""

from tests.script_server import child  # isort: skip  (it imports TensorFlow)

import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import threading

import data
import modeling

# These define flags, which a process can do only once for one command.
COMMANDS = ("create_pretraining_data", "inspect_records", "learn_vocabulary")
COMMANDS += ("convert_checkpoint", "extract_features", "predict", "try_it")


def import_project() -> None:
    """Whatever the commands import, so that a fork has nothing left to do."""
    for package in (data, modeling):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.rpartition(".")[2] not in COMMANDS and "beam" not in found.name:
                importlib.import_module(found.name)


def run(request: dict) -> dict:
    process = os.fork()
    if not process:
        # Of addresses: what they begin with is TensorFlow's own.
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + request["bytes"],) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"],) * 2)
        child(request)
    # What waits without computing.
    timer = threading.Timer(10 * request["seconds"], os.kill, (process, signal.SIGKILL))
    timer.start()
    _, status, used = os.wait4(process, 0)
    timer.cancel()
    status = os.waitstatus_to_exitcode(status)
    return {
        "status": None if status == -signal.SIGKILL else status,
        "seconds": used.ru_utime + used.ru_stime,
        "bytes": used.ru_maxrss * 1024,
    }


def main() -> None:
    sys.path.insert(0, os.getcwd())
    import_project()
    threads = len(os.listdir("/proc/self/task"))
    print(json.dumps({"threads": threads}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
