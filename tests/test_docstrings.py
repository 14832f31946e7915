"""What docstrings and comments name is there: modules, attributes, files, arguments of examples."""

import ast
import functools
import io
import pathlib
import re
import tokenize

import pytest

from tests.scripts import ROOT

PACKAGES = ("data", "modeling")
SOURCES = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.py"), *(p for n in PACKAGES for p in (ROOT / n).rglob("*.py"))]
)
# What a name in backticks ends with if it is a file's: `metrics.jsonl`.
ENDINGS = ("py", "json", "jsonl", "txt", "tsv", "png", "ckpt", "index")
FILES = {path.name for path in ROOT.rglob("*.py") if ".venv" not in path.parts}


@functools.cache
def tree(path: pathlib.Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def documentation(path: pathlib.Path) -> list[str]:
    """Docstrings, of attributes too, and comments."""
    texts = [
        node.value.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    readline = io.StringIO((ROOT / path).read_text(encoding="utf-8")).readline
    comments = [t.string for t in tokenize.generate_tokens(readline) if t.type == tokenize.COMMENT]
    return [*texts, *comments]


@functools.cache
def modules() -> dict[str, pathlib.Path]:
    """Dotted name → file; of a package its `__init__.py`."""
    named = {path.with_suffix("").parts: path for path in SOURCES}
    return {".".join(n[:-1] if n[-1] == "__init__" else n): path for n, path in named.items()}


def members(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Name → definition of what a module or a class binds, attributes of instances too."""
    found: dict[str, ast.AST] = {}
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            found[statement.name] = statement
            if isinstance(statement, ast.FunctionDef):
                continue
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                found[alias.asname or alias.name.partition(".")[0]] = statement
        elif not isinstance(statement, ast.ClassDef):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.setdefault(node.id, node)
    return found


def members_of_class(node: ast.ClassDef) -> set[str]:
    stored = {
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    return members(node.body).keys() | stored


def holds(module: str, attributes: list[str]) -> bool:
    """Whether a module has an attribute, and that one, if it is a class, the next."""
    if not attributes:
        return True
    first, *rest = attributes
    found = members(tree(modules()[module]).body).get(first)
    if found is None:
        if f"{module}.{first}" in modules():
            return holds(f"{module}.{first}", rest)
        # `settings.seed` may mean an argument that has a module's name, and a class of it.
        classes = [n for n in tree(modules()[module]).body if isinstance(n, ast.ClassDef)]
        return any(first in members_of_class(node) for node in classes)
    return not rest or not isinstance(found, ast.ClassDef) or rest[0] in members_of_class(found)


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_names_in_backticks_are_there(package):
    """`modeling.…` and `data.…` whole; `module.name` in some module of that name."""
    wrong = []
    by_last = {}
    for module in modules():
        by_last.setdefault(module.rpartition(".")[2], []).append(module)
    for path in SOURCES:
        if (path.parts[0] if len(path.parts) > 1 else "") != package:
            continue
        for text in documentation(path):
            for dotted in re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`", text):
                first, *rest = dotted.split(".")
                if rest[-1] in ENDINGS:
                    continue
                if first in by_last and not any(holds(m, rest) for m in by_last[first]):
                    wrong.append(f"{path}: `{dotted}`")
    assert not wrong, "\n".join(wrong)


def test_files_are_there():
    wrong = [
        f"{path}: {name}"
        for path in SOURCES
        for text in documentation(path)
        for name in re.findall(r"[\w/]*\w\.py\b", text)
        if pathlib.Path(name).name not in FILES
    ]
    assert not wrong, "\n".join(wrong)


def examples(path: pathlib.Path) -> list[ast.Module]:
    """What can be parsed of the paragraphs of a module's docstring that aren't its first."""
    found = []
    for paragraph in (ast.get_docstring(tree(path)) or "").split("\n\n")[1:]:
        if re.search(r"\w\(", paragraph):
            try:
                found.append(ast.parse(re.sub(r"(?m)^    ", "", paragraph)))
            except SyntaxError:
                continue
    return found


def test_what_examples_call_is_there():
    """Functions, classes and keywords; other names may stand for anything that a reader has."""
    wrong, seen = [], 0
    nodes = [node for path in SOURCES for node in ast.walk(tree(path))]
    defined = {n.name for n in nodes if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    arguments = {n.arg for n in nodes if isinstance(n, ast.arg)}
    arguments |= {getattr(n.target, "id", "") for n in nodes if isinstance(n, ast.AnnAssign)}
    for path in SOURCES:
        calls = [n for e in examples(path) for n in ast.walk(e) if isinstance(n, ast.Call)]
        for call in calls:
            if ast.unparse(call.func).startswith("tf."):
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            # A plain word is a value that can be called, such as a model, or Python's own.
            missing = [name] if name not in defined and re.search("[A-Z_]", name) else []
            missing += [k.arg for k in call.keywords if k.arg and k.arg not in arguments]
            seen += 1
            wrong += [f"{path}: {name} in {ast.unparse(call)}" for name in missing]
    assert seen > 30
    assert not wrong, "\n".join(wrong)
