"""The default corpus: docstrings of the packages that every installation of this project has.

TensorFlow, Keras, NumPy and the standard library hold several megabytes of real English with
document structure. They are read from the installed source with `ast` (nothing is imported or
run), cleaned to prose, and given back as documents; no text travels with the project.

Look at some of it:

    python -c "from data.pretraining.corpus.docstrings import docstring_documents as d; \\
        print(*d(max_bytes=20000)[0].sentences, sep='\\n')"
"""

import ast
import gc
import importlib.util
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from absl import logging

from data.errors import DataError
from data.pretraining.corpus import Document
from data.pretraining.corpus.sentences import split_sentences

PACKAGES = ("tensorflow", "keras", "numpy")
MIN_CHARACTERS = 200
"""Shorter docstrings have no structure worth the name."""

_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "testing", "__pycache__"}
_SKIPPED_FOLDERS |= {"idlelib", "lib2to3", "turtledemo"}
_MAX_SENTENCE_COPIES = 2
# Parsing is the slow part. Files with less than this share of text in long strings hold 3 % of all
# docstrings, but take a third of the time.
_MIN_SHARE = 0.1
_LONG_STRING = re.compile(r'("""|\'\'\')(.*?)\1', re.DOTALL)
_RULE = re.compile(r"^\s*([=\-~^\"'`#*_+.])\1{2,}[\s=\-+]*$")
_TABLE = re.compile(r"^\s*(\+[-=]|\|.*\|\s*$|[=\-]{2,}\s+[=\-]{2,})|\S {3,}\S.* {3,}\S")
_FENCE = re.compile(r"^\s*(```|~~~)")
_DIRECTIVE = re.compile(r"^\s*(\.\.\s|:(param|type|returns?|rtype|raises)\b[^:]*:\s*$)|^\s*@\w+")
_ITEM = re.compile(r"^\s*(?:[*+•-]|\d{1,2}[.)])\s+")
_ARGUMENT = re.compile(r"^\s*[*`\w.,\[\] /]{1,60}(?:\([^)]*\))?\s?:(?:\s|$)")
_PARAMETER = re.compile(r"^\s*\*{0,2}\w+(?:, \*{0,2}\w+)*\s:(?:\s.*)?$")
_SECTION = re.compile(r"^\s*[A-Z][\w ]{0,40}:?\s*$")
_LINK = re.compile(r"\[([^\]]+)\]\((?:[^()]|\([^)]*\))*\)|`([^`<]+)<[^>]*>`_{1,2}")
_ROLE = re.compile(r":[\w:+-]+:`~?([^`]+)`")
_TICKS = re.compile(r"`+([^`]*)`+_{0,2}")
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,2})(\S(?:[^*]*\S)?)\1(?!\w)")
_URL = re.compile(r"<?https?://\S+>?|\[\d+\]_?")


def docstring_documents(max_bytes: int | None = None, seed: int = 12345) -> list[Document]:
    """Docstrings of modules, classes and functions, each cleaned to one document.

    Dropped are doctests, code blocks, tables, underlines and directives; kept are sentences
    that are mostly words. Of a sentence that many docstrings share (generated documentation),
    only the first two copies stay; equal documents stay once.

    Args:
        max_bytes: Stop at so many bytes of cleaned text (None: all, about 7 MB).
        seed: The order of files, and so which documents a limited corpus holds. The same seed
            on the same installation gives the same documents in the same order.

    Returns:
        Documents of two sentences at least; `source` is "file:line" of the docstring's owner.

    Raises:
        DataError: If no installed package has a readable source with docstrings.
    """
    copies: dict[bytes, int] = {}
    documents: list[Document] = []
    size = 0
    for _, _, path in source_files(seed):
        for node, docstring in documented_nodes(path):
            fresh = []
            for sentence in docstring_sentences(docstring):
                key = blake2b(sentence.encode("utf-8", "replace"), digest_size=8).digest()
                copies[key] = copies.get(key, 0) + 1
                if copies[key] <= _MAX_SENTENCE_COPIES:
                    fresh.append((sentence, copies[key] == 1))
            # A document with nothing of its own is a copy.
            if len(fresh) < 2 or not any(is_first for _, is_first in fresh):
                continue
            place = f"{path}:{node.body[0].lineno}"
            document = Document([sentence for sentence, _ in fresh], place)
            length = sum(len(s.encode("utf-8", "replace")) + 1 for s in document.sentences)
            if length < MIN_CHARACTERS:
                continue
            documents.append(document)
            size += length
            if max_bytes is not None and size >= max_bytes:
                return documents
    if not documents:
        raise DataError(
            "The default corpus is empty: no Python source with docstrings was found for"
            f" {', '.join(PACKAGES)} or the standard library. Give your own text instead, as"
            " files with one sentence per line and blank lines between documents."
        )
    logging.info("Default corpus: %d docstrings, %.1f MB.", len(documents), size / 1e6)
    return documents


def docstring_sentences(docstring: str) -> list[str]:
    """Sentences of one docstring, cleaned of code, markup and layout."""
    sentences = []
    for paragraph in _paragraphs(inspect.cleandoc(docstring).expandtabs(4).split("\n")):
        text = _plain(paragraph)
        sentences.extend(s for s in split_sentences(text) if _is_prose(s))
    return sentences


def source_files(seed: int, packages: Sequence[str] = PACKAGES) -> list[tuple[str, str, str]]:
    """Python files of installed packages and of the standard library, tests left out.

    Args:
        seed: Of their order, which doesn't depend on where they are installed.
        packages: Those that aren't installed are left out.

    Returns:
        The package's name ("python" for the standard library), the file's place in it and its
        path, for each.
    """
    roots = {}
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            roots[package] = next(iter(spec.submodule_search_locations))
    roots["python"] = sysconfig.get_paths()["stdlib"]
    files = []
    for name, root in roots.items():
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = sorted(f for f in subfolders if f not in _SKIPPED_FOLDERS)
            relative = os.path.relpath(folder, root)
            for file in names:
                if file.endswith(".py"):
                    key = f"{seed}/{name}/{relative}/{file}".encode("utf-8", "replace")
                    digest = blake2b(key, digest_size=16).digest()
                    place = os.path.normpath(os.path.join(relative, file))
                    files.append((digest, (name, place, os.path.join(folder, file))))
    return [file for _, file in sorted(files)]


def documented_nodes(path: str) -> list[tuple[ast.AST, str]]:
    """Modules, classes and functions of a file with their docstrings, as they are written.

    Left out are docstrings of up to MIN_CHARACTERS, and files with next to none or that can't be
    parsed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            source = file.read()
    except (OSError, UnicodeDecodeError):
        return []
    blocks = (len(match[2]) for match in _LONG_STRING.finditer(source))
    if sum(size for size in blocks if size > MIN_CHARACTERS) < _MIN_SHARE * len(source) + 1:
        return []
    # Syntax trees are millions of objects without cycles: the collector would cost a third.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return list(_walk(tree))
    except (SyntaxError, ValueError, RecursionError):
        return []
    finally:
        if collecting:
            gc.enable()


def _walk(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
            and len(first.value.value) > MIN_CHARACTERS
        ):
            yield node, first.value.value
    for name in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt | ast.excepthandler) and not isinstance(child, ast.Expr):
                yield from _walk(child)


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Joins the lines of a docstring into paragraphs; code and layout are left out."""
    current: list[str] = []

    def finished() -> Iterator[str]:
        if current:
            yield " ".join(current)
            current.clear()

    skip_to_blank = False
    fence = False
    literal_indent: int | None = None
    base_indent = 0
    for number, line in enumerate(lines):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if _FENCE.match(line):
            fence = not fence
            text = ""
        elif fence:
            continue
        if literal_indent is not None and text:
            if indent > literal_indent:
                continue
            literal_indent = None
        if not text:
            skip_to_blank = False
            yield from finished()
            continue
        if text.startswith((">>>", "$ ", "In [")):
            skip_to_blank = True
        if skip_to_blank:
            continue
        rule = _RULE.match(line) or _PARAMETER.match(line)
        underlined = number + 1 < len(lines) and _RULE.match(lines[number + 1])
        if rule or underlined or _TABLE.search(line) or _DIRECTIVE.match(line):
            skip_to_blank = bool(_DIRECTIVE.match(line)) and not rule
            yield from finished()
            continue
        starts_item = _ITEM.match(line) or _ARGUMENT.match(line) or indent < base_indent
        if starts_item or _SECTION.match(line):
            yield from finished()
        if not current:
            base_indent = indent
        if not (_SECTION.match(line) and (text.endswith(":") or len(text.split()) == 1)):
            current.append(_ITEM.sub("", text))
        if text.endswith("::"):
            literal_indent = indent
    yield from finished()


def _plain(paragraph: str) -> str:
    text = paragraph.replace("::", ":") if paragraph.endswith("::") else paragraph
    text = _LINK.sub(lambda m: m[1] or m[2], text)
    text = _ROLE.sub(r"\1", text)
    text = _TICKS.sub(r"\1", text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(_URL.sub("", text).split())


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    if len(words) < 4:
        return False
    letters = sum(map(str.isalpha, sentence))
    plain = sum(word.strip(".,;:()'\"!?").isalpha() for word in words)
    return letters >= 0.7 * (len(sentence) - len(words) + 1) and plain >= 0.6 * len(words)
