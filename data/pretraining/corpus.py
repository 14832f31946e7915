"""Corpus files to documents, streaming, whatever the size.

Two formats, told apart by the first line that isn't blank, each plain or gzip-compressed (told
apart by the first two bytes):

    plain          one sentence per line, an empty line between documents (the original
                   release's format); a line is empty if nothing is left after `str.strip()`
    WikiExtractor  `<doc id=… title=…>`, the title, paragraphs, `</doc>`; paragraphs are split
                   into sentences here, titles and headings are dropped (the paper, section 3.1,
                   takes only text passages and ignores lists, tables and headers)

Documents never merge across files. Paths may be anything that `tf.io.gfile` opens.
"""

import gzip
import html
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

import tensorflow as tf

from data.errors import DataError
from data.pretraining.sentences import split_sentences

MAX_DOCUMENT_CHARACTERS = 64 * 2**20
"""A document is held in memory; beyond this size the blank lines are surely missing."""

_BLOCK_BYTES = 2**21
_DOC_OPEN = re.compile(r"<doc\b[^>]*>")
_TITLE = re.compile(r"""\btitle=(?:"([^"]*)"|'([^']*)')""")
_LIST_MARK = re.compile(r"^(?:BULLET::::)?[-*•·#]+\s*")
_TAG = re.compile(r"</?(?:br|ref|nowiki|templatestyles|section|li|ul|ol|h\d|b|i|span|div)\b[^>]*>")
_HEADING_WORDS, _HEADING_CHARACTERS = 6, 60
_SENTENCE_END = tuple('!?。！？；…”"»」』')


@dataclass(slots=True)
class Document:
    """One document.

    Attributes:
        sentences: Its sentences in order, none blank, without surrounding white space.
        source: Where it starts, as "file:line", for messages.
    """

    sentences: list[str] = field(default_factory=list)
    source: str = ""


def expand(patterns: str | Iterable[str]) -> list[str]:
    """Files that match a comma-separated list (or an iterable) of globs.

    Returns:
        Paths in the order of the patterns, sorted within each, none twice.

    Raises:
        DataError: If a pattern matches no file, or matches a folder only, or there is no pattern.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    files: dict[str, None] = {}
    for pattern in (p.strip() for p in patterns):
        if not pattern:
            continue
        matches = sorted(tf.io.gfile.glob(pattern))
        found = [path for path in matches if not tf.io.gfile.isdir(path)]
        if not found:
            what = "matches only folders" if matches else "matches no file"
            raise DataError(
                f"The file pattern {pattern!r} {what}. Give one file, a glob such as"
                " 'corpus/*.txt', or a comma-separated list of these."
            )
        files.update(dict.fromkeys(found))
    if not files:
        raise DataError("No input file was given: the list of file patterns is empty.")
    return list(files)


def read_documents(files: Sequence[str]) -> Iterator[Document]:
    """Streams the documents of `files`, in order.

    Args:
        files: Paths (not patterns, see `expand`).

    Yields:
        Documents of at least one sentence; empty ones (such as articles of a title only) are
        left out.

    Raises:
        DataError: Naming file and line, for bytes that aren't UTF-8, a file that isn't text, a
            damaged gzip file, or a document of more than `MAX_DOCUMENT_CHARACTERS`.
    """
    for path in files:
        lines = _lines(path)
        head = []
        for numbered in lines:
            head.append(numbered)
            if numbered[1]:
                break
        is_wiki = bool(head) and bool(_DOC_OPEN.match(head[-1][1]))
        read = _read_wiki if is_wiki else _read_plain
        yield from read(path, chain(head, lines))


def split_documents(
    documents: Iterable[Document], share: float
) -> tuple[list[Document], list[Document]]:
    """Splits documents into training and held-out ones by a stable hash of their text.

    A document's side depends on nothing but its own text and `share`, so copies of one text are
    always on the same side, on every machine and in every order.

    Args:
        documents: Any documents.
        share: Expected share of held-out documents, in (0, 1).

    Returns:
        (training documents, held-out documents), in their order. Unless there are fewer than
        four documents, each side has two at least (the number that next-sentence pairs need):
        documents nearest to the border change sides if necessary.
    """
    documents = list(documents)
    places = [_place(document) for document in documents]
    held_out = {i for i, place in enumerate(places) if place < share}
    if len(documents) >= 4:
        ranked = sorted(range(len(documents)), key=lambda i: (places[i], i))
        size = min(max(len(held_out), 2), len(documents) - 2)
        if size != len(held_out):
            held_out = set(ranked[:size])
    train = [d for i, d in enumerate(documents) if i not in held_out]
    return train, [d for i, d in enumerate(documents) if i in held_out]


def is_held_out(document: Document, share: float) -> bool:
    """Whether the stable hash of `document` puts it on the held-out side; for streams."""
    return _place(document) < share


def _place(document: Document) -> float:
    digest = blake2b(digest_size=8)
    for sentence in document.sentences:
        digest.update(sentence.encode("utf-8", "surrogatepass") + b"\n")
    return int.from_bytes(digest.digest(), "big") / 2**64


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, stripped line); only a newline ends a line, not U+2028."""
    number, rest = 1, []
    for block in _blocks(path):
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            continue
        text = _decode(b"".join([*rest, block[:end]]), path, number)
        rest = [block[end:]]
        for line in text.split("\n")[:-1]:
            yield number, line.strip()
            number += 1
    last = _decode(b"".join(rest), path, number)
    if last:
        yield number, last.strip()


def _decode(data: bytes, path: str, number: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start)
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1)
        raise DataError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} at byte {column} of the line isn't"
            " valid UTF-8. Corpus files must be UTF-8 text; convert the file, for instance with"
            " 'iconv -f latin1 -t utf-8', or leave it out."
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _blocks(path: str) -> Iterator[bytes]:
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except tf.errors.OpError as error:
            raise DataError(f"{path} can't be read: {error.message}.") from None
        stream = gzip.GzipFile(fileobj=file, mode="rb") if compressed else file
        first = True
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(
                    f"{path} is a damaged or truncated gzip file ({error}). Restore it or leave"
                    " it out."
                ) from None
            if not block:
                return
            if first and b"\0" in block:
                line = 1 + block.count(b"\n", 0, block.index(b"\0"))
                raise DataError(
                    f"{path}:{line}: found a zero byte, so this is a binary file or UTF-16."
                    " Corpus files must be UTF-8 text (plain or gzip); convert it or leave it out."
                )
            first = False
            yield block


class _Limit:
    """Counts the characters of the current document and refuses endless ones."""

    def __init__(self) -> None:
        self.characters = 0

    def add(self, text: str, document: Document) -> None:
        self.characters += len(text)
        if self.characters > MAX_DOCUMENT_CHARACTERS:
            raise DataError(
                f"{document.source}: the document that starts here has more than"
                f" {MAX_DOCUMENT_CHARACTERS:,} characters. Documents are separated by blank lines"
                " (or <doc> tags); put a blank line between the documents of this file."
            )


def _read_plain(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[Document]:
    document, limit = Document(), _Limit()
    for number, line in lines:
        if line:
            if not document.sentences:
                document.source = f"{path}:{number}"
            document.sentences.append(line)
            limit.add(line, document)
        elif document.sentences:
            yield document
            document, limit = Document(), _Limit()
    if document.sentences:
        yield document


def _read_wiki(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[Document]:
    document, limit, title = Document(), _Limit(), ""
    for number, line in lines:
        if not line:
            continue
        opening = _DOC_OPEN.match(line)
        if opening or line == "</doc>":
            if document.sentences:
                yield document
            document, limit, title = Document(source=f"{path}:{number}"), _Limit(), ""
            if opening and (named := _TITLE.search(line)):
                title = html.unescape(named[1] or named[2] or "").strip()
            continue
        text = _clean_wiki_line(line)
        if title and text == title:
            title = ""
            continue
        if text and not _is_heading(text):
            sentences = split_sentences(text)
            document.sentences.extend(s for s in sentences if any(map(str.isalnum, s)))
            limit.add(text, document)
    if document.sentences:
        yield document


def _clean_wiki_line(line: str) -> str:
    if "&" in line:
        line = html.unescape(line)
    if "<" in line:
        line = _TAG.sub(" ", line)
    return _LIST_MARK.sub("", line).strip()


def _is_heading(line: str) -> bool:
    """Whether a line of WikiExtractor is a heading, a caption or a bare list item.

    WikiExtractor writes headings as lines that end in a full stop or in nothing, so they can
    only be told by their shortness; a real paragraph of so few words is rare.
    """
    if len(line) > _HEADING_CHARACTERS or line.endswith(_SENTENCE_END):
        return False
    return len(line.split()) <= _HEADING_WORDS
