"""The house as DESIGN says: who imports whom, how large a room and a file may be, one name each."""

import ast
import collections
import functools
import os
import re
import subprocess

import pytest

from tests.scripts import ROOT

MOST_FILES = 12
MOST_LINES = 400
COMMANDS = {
    *("create_pretraining_data", "inspect_records", "learn_vocabulary"),
    *("convert_checkpoint", "extract_features", "predict", "try_it"),
    "pretrained",  # no command, but stands above all rooms as they do
}


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Tree of every file of the two packages and of the scripts, by path."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    paths = [path for path in listed if not path.startswith("tests/") and (ROOT / path).exists()]
    return {path: ast.parse((ROOT / path).read_text()) for path in paths}


def is_command(path: str) -> bool:
    return path.count("/") == 1 and path.split("/")[1].removesuffix(".py") in COMMANDS


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: str, top_level: bool = False) -> set[str]:
    """Modules of the project that a file imports."""
    modules = {module_of(other) for other in sources()}
    nodes = sources()[path].body if top_level else ast.walk(sources()[path])
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules else node.module)
    return found & modules


def test_the_two_packages_do_not_know_each_other():
    for path in sources():
        if path.startswith(("data/", "modeling/")) and not is_command(path):
            other = "modeling" if path.startswith("data/") else "data"
            wrong = [name for name in imports(path) if name.split(".")[0] == other]
            assert not wrong, (path, wrong)


def test_nothing_imports_scripts_and_commands():
    for path in sources():
        for name in imports(path):
            assert not name.startswith("run_"), path
            assert name.rpartition(".")[2] not in COMMANDS or name.count(".") > 1, (path, name)


@pytest.mark.parametrize("rooms", [False, True])
def test_no_circles(rooms):
    """Between files, and between the rooms of one level."""
    arrows = collections.defaultdict(set)
    for path in sources():
        name = module_of(path)
        # Commands stand at the top of the two packages, and above all rooms.
        for other in set() if is_command(path) else imports(path, top_level=True) - {name}:
            ends = [name, other]
            if rooms:
                packages = {module_of(p) for p in sources() if p.endswith("__init__.py")}
                ends = [end if end in packages else end.rpartition(".")[0] for end in ends]
            # A room and the rooms inside of it are one room here.
            if ends[0] != ends[1] and not (
                rooms and any(a.startswith(b + ".") for a, b in (ends, ends[::-1]))
            ):
                arrows[ends[0]].add(ends[1])
    done, path = set(), []

    def visit(name):
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name not in done:
            path.append(name)
            for other in sorted(arrows[name]):
                visit(other)
            path.pop()
            done.add(name)

    for name in sorted(arrows):
        visit(name)


def test_rooms_and_files_can_be_overlooked():
    # Commands stand above the rooms, one beside the other, as the scripts do.
    rooms = collections.Counter(
        os.path.dirname(path)
        for path in sources()
        if not path.endswith("__init__.py") and not is_command(path)
    )
    assert {room: count for room, count in rooms.items() if count > MOST_FILES} == {}
    lines = {path: (ROOT / path).read_text().count("\n") for path in sources()}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_public_classes_have_names_of_their_own():
    places = collections.defaultdict(list)
    for path, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_only_scripts_and_commands_read_flags():
    for path in sources():
        text = (ROOT / path).read_text()
        if "/" in path and not is_command(path):
            assert not re.search(r"\bFLAGS\b", text), path


def test_every_file_says_what_it_is_for():
    for path, tree in sources().items():
        assert ast.get_docstring(tree), path
