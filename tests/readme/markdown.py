"""What a Markdown document holds: fenced blocks with their marks, inline code, links, headings."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SETUP = re.compile(r"^<!-- setup:\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block, or commands that prepare those below it.

    Attributes:
        language: As behind the opening fence; "setup" of a comment that prepares.
        text: What is in it.
        mark: The comment in the line above the fence, without its brackets; "" if there is none.
        line: Of the opening fence, from 1 on.
    """

    language: str
    text: str
    mark: str
    line: int


def documents() -> list[pathlib.Path]:
    """All documents for people, the project's own first."""
    folders = (ROOT / "data", ROOT / "modeling", ROOT / "tests")
    return [ROOT / "README.md", *sorted(path for f in folders for path in f.rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """The fenced blocks and setups, in order."""
    there = []
    for found in _FENCE.finditer(text):
        above = text[: found.start()].rstrip("\n").rpartition("\n")[2]
        directly = not text[: found.start()].endswith("\n\n")
        mark = re.fullmatch(r"<!-- (.*) -->", above) if directly else None
        line = text.count("\n", 0, found.start()) + 1
        there.append(Block(found[1], found[2], mark[1] if mark else "", line))
    for found in _SETUP.finditer(text):
        there.append(Block("setup", found[1], "", text.count("\n", 0, found.start()) + 1))
    return sorted(there, key=lambda block: block.line)


def prose(text: str) -> str:
    """Without fenced blocks and comments."""
    return _COMMENT.sub("", _FENCE.sub("", text))


def inline_code(text: str) -> list[str]:
    """What stands between single backticks."""
    return _CODE.findall(prose(text))


def links(text: str) -> list[str]:
    """Targets of links, those into the network left out."""
    targets = _LINK.findall(_CODE.sub("", prose(text)))
    return [target for target in targets if not re.match(r"\w+:", target)]


def anchors(text: str) -> set[str]:
    """What links may name behind "#", by GitHub's rule."""
    counts: dict[str, int] = {}
    there = set()
    for heading in _HEADING.findall(prose(text)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = counts.get(slug, 0)
        counts[slug] = number + 1
        there.add(f"{slug}-{number}" if number else slug)
    return there
