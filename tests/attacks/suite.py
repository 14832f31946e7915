"""Runs attacks in two workers, judges how each ended, and counts.

    failures = Suite(folder).run(cases)

An attack is a command of `tests.attacks.world` with something spoiled. The command has to end with
its exit code, and, where it refuses, with one paragraph that names the file or flag, with all files
as they were, nothing new but traces, in bounded time and memory.
"""

import collections
import dataclasses
import fnmatch
import hashlib
import itertools
import json
import math
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures

from tests.attacks import world
from tests.scripts import ROOT

SECONDS, REFUSAL_SECONDS = 60, 5
"""Of computing, that a command may take; who has to refuse may not even begin to train.

Where the command as it is, which does train, takes longer than the latter, refusing may take as
long: one machine has half the speed of another.
"""
TAKEN = "seconds_of_jobs.json"
"""In the world: what each job took as it is."""
MOST_BYTES = 1.2e9
"""That a command may hold: TensorFlow and the project take 0.35 of it, a graph as much again."""
ADDRESSES = 6 * 2**30
"""More than the worker's own, which a command may take before it is stopped."""
MOST_CHARACTERS = 4000
# How the files are called under which outputs come into being.
_PARTIAL = ("*.partial*", "*.tmp", "*temp-*", "*/.write-test-*")


@dataclasses.dataclass(frozen=True)
class Case:
    """An attack.

    Attributes:
        job: Which of `world.JOBS`.
        kind: A line of the table.
        flags: Added to the command's; the last of one name counts.
        spoil: File → what is done to it.
        says: What has to stand in the message, or in the log where it goes on: names of files and
            flags. Of alternatives between | one.
        code: Exit code.
        stdin: What the command reads from standard input.
        traces: Besides the job's: patterns of files that may be new or other than before.
        bytes: That it may hold.
        seconds: Of computing, that it may take; 0: what is said above.
    """

    job: str
    kind: str
    flags: tuple[str, ...] = ()
    spoil: Mapping[str, Callable[[pathlib.Path], None]] = dataclasses.field(default_factory=dict)
    says: tuple[str, ...] = ()
    code: int = 1
    stdin: str = ""
    traces: tuple[str, ...] = ()
    bytes: float = MOST_BYTES
    seconds: int = 0

    @property
    def name(self) -> str:
        spoiled = [f"{file} {how.__name__}" for file, how in self.spoil.items()]
        return f"{self.job}: {', '.join([*spoiled, *(flag[:60] for flag in self.flags)])}"


@dataclasses.dataclass
class Ended:
    """How a command ended.

    Attributes:
        problems: What is wrong with that; empty if nothing.
        status, seconds, bytes: See `tests.attacks.server`.
        said: Standard error.
    """

    case: Case
    problems: list[str]
    status: int | None
    seconds: float
    bytes: int
    said: str

    def __str__(self) -> str:
        problems = "".join(f"\n    {problem}" for problem in self.problems)
        return f"FAILED {self.case.kind}: {self.case.name}{problems}"


class _Worker:
    """A process of `tests.attacks.server`."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.server"],
            cwd=ROOT,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process.stdout.readline()

    def run(
        self, arguments: Iterable[str], folder: pathlib.Path, stdin: str = "", seconds=SECONDS
    ) -> dict:
        """`python ARGUMENTS` in a folder; beside the server's answer "stdout" and "stderr"."""
        files = {name: folder.parent / f"{folder.name}.{name}" for name in _STREAMS}
        for name, path in files.items():
            path.write_text(stdin if name == "stdin" else "")
        first, *rest = arguments
        request = {
            "arguments": [str(ROOT / first) if first.endswith(".py") else first, *rest],
            "environment": dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            "folder": str(folder),
            "seconds": seconds,
            "bytes": ADDRESSES,
            **{name: str(path) for name, path in files.items()},
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer | {name: files[name].read_text(errors="replace") for name in _STREAMS[1:]}

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


_STREAMS = ("stdin", "stdout", "stderr")


class Suite:
    """Two workers and a world.

    Args:
        folder: For the cases; what is left in it are those that failed.
        world: For what they start from.
    """

    def __init__(self, folder: pathlib.Path, world: pathlib.Path, workers: int = 2):
        self.folder = folder
        self.world = world
        self._workers = [_Worker() for _ in range(workers)]
        self._numbers = itertools.count()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def build(self) -> list[Ended]:
        """Makes the world by running all jobs as they are; returns those that don't work."""
        self.world.mkdir(parents=True)
        world.write_files(self.world)
        made = self._workers[0].run(("-c", world.MAKE_MODEL), self.world)
        assert made["status"] == 0, made["stderr"]
        failures, left, taken = [], dict(world.JOBS), {}
        while left:
            ready = [
                name
                for name, job in left.items()
                if all((self.world / need.partition(":")[0]).exists() for need in job.needs)
            ]
            if not ready:
                break
            for name in ready:
                del left[name]
            ended = self.run(Case(name, "works", code=0) for name in ready)
            failures += [one for one in ended if one.problems]
            taken |= {one.case.job: one.seconds for one in ended}
        (self.world / TAKEN).write_text(json.dumps(taken))
        return failures

    def run(self, cases: Iterable[Case], show: Callable[[str], None] | None = None) -> list[Ended]:
        """How every case ended; failures are shown at once."""
        free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            free.put(worker)

        def attack(case: Case) -> Ended:
            worker = free.get()
            try:
                ended = self._attack(worker, case, self.folder / f"case{next(self._numbers)}")
                if show and ended.problems:
                    show(str(ended))
                return ended
            finally:
                free.put(worker)

        with futures.ThreadPoolExecutor(len(self._workers)) as pool:
            return list(pool.map(attack, cases))

    def prepare(self, case: Case, folder: pathlib.Path) -> None:
        """The files that a case starts from."""
        for need in world.JOBS[case.job].needs:
            name, _, here = need.partition(":")
            source, target = self.world / name, folder / (here or name)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        for name, spoil in case.spoil.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            spoil(folder / name)

    def _to_refuse(self, job: str) -> int:
        """Seconds that a refusal may take."""
        taken = json.loads((self.world / TAKEN).read_text())
        return max(REFUSAL_SECONDS, math.ceil(taken[job]))

    def _attack(self, worker: _Worker, case: Case, folder: pathlib.Path) -> Ended:
        job = world.JOBS[case.job]
        self.prepare(case, folder)
        before = contents(folder)
        seconds = case.seconds or (self._to_refuse(case.job) if case.code else SECONDS)
        result = worker.run((*job.arguments, *case.flags), folder, case.stdin, seconds)
        problems = judge(case, job, result, before, contents(folder))
        if (
            not problems
            and job.makes
            and case.kind == "works"
            and not (self.world / job.makes.partition(":")[2]).exists()
        ):
            here, _, name = job.makes.partition(":")
            shutil.copytree(folder / here, self.world / name)
        if not problems:
            shutil.rmtree(folder)
        return Ended(
            case, problems, result["status"], result["seconds"], result["bytes"], result["stderr"]
        )


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Checksums of all files, by name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def judge(case: Case, job: world.Job, result: dict, before: dict, after: dict) -> list[str]:
    """What is wrong with how a command ended."""
    problems = []
    if result["status"] != case.code:
        status = "late" if result["status"] is None else result["status"]
        problems.append(f"exit code {status}, not {case.code}")
    if "Traceback" in result["stderr"]:
        problems.append(f"a traceback: {result['stderr'].strip().splitlines()[-1][:200]}")
    if result["bytes"] > case.bytes:
        problems.append(f"{result['bytes'] / 1e6:.0f} MB")
    leftovers = _PARTIAL if case.code else (*_PARTIAL, "*.lock")
    partial = [name for name in after if any(fnmatch.fnmatch(name, p) for p in leftovers)]
    if partial:
        problems.append(f"left behind: {partial[:3]}")
    if case.code:
        message = refusal(result["stderr"])
        if not message:
            problems.append(f"not one paragraph: {result['stderr'][-200:]!r}")
        elif len(message) > MOST_CHARACTERS:
            problems.append(f"a message of {len(message)} characters")
        allowed = (*job.traces, *case.traces)
        changed = [
            name
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
            and not any(fnmatch.fnmatch(name, pattern) for pattern in (*allowed, *_PARTIAL))
        ]
        if changed:
            problems.append(f"written or removed: {changed[:5]}")
    else:
        message = result["stderr"] + result["stdout"]
    message = " ".join(message.split())
    # A flag may be named in words: "the window stride".
    named = message + message.replace(" ", "_")
    unsaid = [words for words in case.says if not any(word in named for word in words.split("|"))]
    if unsaid and (result["status"] == case.code):
        problems.append(f"doesn't say {unsaid}: {message[-400:]!r}")
    return problems


def refusal(stderr: str) -> str:
    """The one paragraph at the end, in one line; "" if that isn't how it ends."""
    _head, error, paragraph = stderr.rpartition("\nError: ")
    if error and "\n\n" not in paragraph.rstrip("\n"):
        return " ".join(paragraph.split())
    found = re.search(r"FATAL Flags parsing error:\s(.*)\nPass --helpshort", stderr, re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def table(ended: Iterable[Ended]) -> str:
    """Kinds, cases and failures."""
    kinds: dict[str, list[Ended]] = collections.defaultdict(list)
    for one in ended:
        kinds[one.case.kind].append(one)
    rows = [
        (
            kind,
            len(ones),
            len({world.JOBS[o.case.job].command for o in ones}),
            sum(bool(o.problems) for o in ones),
        )
        for kind, ones in kinds.items()
    ]
    rows.append(
        (
            "all",
            *(
                sum(row[n] for row in rows)
                if n != 2
                else len({j.command for j in world.JOBS.values()})
                for n in (1, 2, 3)
            ),
        )
    )
    width = max(len(row[0]) for row in rows)
    lines = [f"{'kind':{width}}  cases  commands  failures"]
    lines += [
        f"{kind:{width}}  {cases:5}  {commands:8}  {bad:8}" for kind, cases, commands, bad in rows
    ]
    return "\n".join(lines)
