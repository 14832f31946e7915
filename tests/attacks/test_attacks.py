"""Every command refuses what can't be meant, in a sentence; and how that is judged."""

import collections

import pytest

from tests.attacks import suite, world
from tests.attacks.cases import ALL

ERROR = "12:00:00 Running.\n\nError: train.tsv:3: this row has 1\ncolumns.\n"


def some_of_each() -> list[suite.Case]:
    """A case of each kind for two of the commands that it is tried on, those with fewest so far."""
    chosen: list[suite.Case] = []
    taken: collections.Counter[str] = collections.Counter()
    for kind in dict.fromkeys(case.kind for case in ALL):
        by_command = {world.JOBS[case.job].command: case for case in ALL if case.kind == kind}
        commands = sorted(by_command, key=lambda command: taken[command])[:2]
        taken.update(commands)
        chosen += [by_command[command] for command in commands]
    return chosen


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "cases", [some_of_each(), pytest.param(ALL, marks=pytest.mark.hours)], ids=["of each", "all"]
)
def test_attacks(tmp_path, cases):
    """All take 4 minutes; `python -m tests.attacks.report` shows them as they go."""
    attacks = suite.Suite(tmp_path, tmp_path / "world")
    failures = attacks.build()
    assert not failures, "\n".join(map(str, failures))
    ended = attacks.run(cases)
    attacks.close()
    print(suite.table(ended))
    failures = [str(one) for one in ended if one.problems]
    assert not failures, "\n".join(failures)


def test_every_command_is_attacked():
    commands = {job.command for job in world.JOBS.values()}
    assert len(ALL) >= 400 and commands == {world.JOBS[case.job].command for case in ALL}
    assert len(commands) == 10
    names = [(case.kind, case.name) for case in ALL]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"status": 0}, "exit code 0"),
        ({"stderr": "FATAL Flags parsing error: flag train.tsv:3\nPass --helpshort"}, ""),
        ({"status": None}, "exit code late"),
        ({"bytes": 9e9}, "9000 MB"),
        ({"stderr": f"Traceback (most recent call last):\n  x\nKeyError\n{ERROR}"}, "a traceback"),
        ({"stderr": "KeyError: 5\n"}, "not one paragraph"),
        ({"stderr": f"{ERROR}\nAnd another.\n"}, "not one paragraph"),
        ({"stderr": ERROR + "x" * 5000}, "characters"),
        ({"stderr": ERROR.replace("train.tsv", "The file")}, "doesn't say"),
        ({"after": {"train.tsv": "1"}}, ""),
        ({"after": {"train.tsv": "2"}}, "written or removed: ['train.tsv']"),
        ({"after": {}}, "written or removed: ['train.tsv']"),
        ({"after": {"train.tsv": "1", "answers.tsv": "1"}}, "written or removed: ['answers.tsv']"),
        ({"after": {"train.tsv": "1", "out/metrics.jsonl": "1"}}, ""),
        ({"after": {"train.tsv": "1", "a.host-1-0123.partial": "1"}}, "left behind"),
    ],
)
def test_what_is_wrong_is_seen(change, problem):
    case = suite.Case("classifier", "files", says=("train.tsv|dev.tsv", ":3"))
    before = {"train.tsv": "1"}
    result = {"status": 1, "bytes": 1e8, "stdout": "", "stderr": ERROR, "after": before} | change
    problems = suite.judge(case, world.JOBS[case.job], result, before, result["after"])
    assert problem in " ".join(problems) and bool(problem) == bool(problems), problems
