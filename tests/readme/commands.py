"""Which flags a script or command takes, read from its source, and which ones a text gives it."""

import ast
import functools
import pathlib
import re
import shlex

from tests.readme.markdown import ROOT

# Every program has them, by absl.
COMMON = {"help", "helpfull", "verbosity"}


def source_of(name: str) -> pathlib.Path:
    """The file behind "run_squad.py" or, of a module, "data.learn_vocabulary"."""
    return ROOT / (name if name.endswith(".py") else name.replace(".", "/") + ".py")


@functools.cache
def flags_of(path: pathlib.Path) -> frozenset[str]:
    """The flags of a script or command: its own, and those of the functions that it calls for it.

    These are called define_…, here and in the modules that are imported. A file of tests/ also has
    the flags of the files of tests/ that it imports, as its machinery is there.
    """
    tree = _tree(path)
    found = _defined(tree) | _called(path, tree)
    if ROOT / "tests" in path.parents:
        modules = {source for source, _ in _imports(path).values()}
        of_tests = {source for source in modules if ROOT / "tests" in source.parents}
        found = found.union(*(_defined(_tree(source)) for source in of_tests))
    return frozenset(found | COMMON)


@functools.cache
def all_flags() -> dict[str, frozenset[str]]:
    """Every flag that is defined anywhere below a folder or in a script of the project."""
    places = {"tests": ROOT.glob("tests/**/*.py")}
    places["product"] = [
        *ROOT.glob("run_*.py"),
        *(path for folder in ("data", "modeling") for path in ROOT.glob(f"{folder}/**/*.py")),
    ]
    return {
        name: frozenset().union(*(_defined(_tree(path)) for path in paths))
        for name, paths in places.items()
    }


@functools.cache
def messages() -> str:
    """Every text in the sources, a line each; what is put in later is cut out."""
    found = []
    for path in (
        *ROOT.glob("run_*.py"),
        *ROOT.glob("data/**/*.py"),
        *ROOT.glob("modeling/**/*.py"),
    ):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += re.split(r"%[.\d]*[a-z]", node.value)
    return "\n".join(found)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands of Python in lines of bash: (script or module, names of the flags given)."""
    found = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        for index, word in enumerate(words):
            if not re.fullmatch(r"(.*/)?python3?", word):
                continue
            rest = words[index + 1 :]
            end = next((i for i, w in enumerate(rest) if set(w) <= set("|&;<>()")), len(rest))
            rest = rest[:end]
            name = rest[1] if rest[:1] == ["-m"] else rest[0] if rest else ""
            if name.split(".")[0] in ("data", "modeling", "tests") or name.endswith(".py"):
                given = [re.match(r"--(\w+)", w) for w in rest]
                found.append((name, [match[1] for match in given if match]))
    return found


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _defined(tree: ast.AST) -> set[str]:
    """The names in calls of flags.DEFINE_… and of argparse's add_argument."""
    found = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        if node.func.attr.startswith("DEFINE_") and node.args:
            found.add(name)
        elif node.func.attr == "add_argument" and name.startswith("--"):
            found.add(name[2:])
    return found


def _called(path: pathlib.Path, tree: ast.AST) -> set[str]:
    """The flags of all functions define_… that are called in a tree of a file."""
    imports, found = _imports(path), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function, module = node.func, path
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            name = function.attr
            module = imports.get(function.value.id, (path, ""))[0]
        elif isinstance(function, ast.Name):
            module, name = imports.get(function.id, (path, function.id))
        else:
            continue
        if name.lstrip("_").startswith("define_") and module.exists():
            for body in ast.walk(_tree(module)):
                if isinstance(body, ast.FunctionDef) and body.name == name:
                    found |= _defined(body) | (set() if body is tree else _called(module, body))
    return found


@functools.cache
def _imports(path: pathlib.Path) -> dict[str, tuple[pathlib.Path, str]]:
    """What the project's modules are called in a file: name → (file, name in it, if it is one)."""
    found = {}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = source_of(f"{node.module}.{alias.name}")
                inside = source_of(node.module)
                if module.exists():
                    found[alias.asname or alias.name] = (module, "")
                elif inside.exists():
                    found[alias.asname or alias.name] = (inside, alias.name)
    return found
