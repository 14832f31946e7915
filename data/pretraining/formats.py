"""What a corpus file's lines say: the formats, and how each becomes documents.

Three formats, told apart by the first line that isn't blank:

    plain          one sentence per line, an empty line between documents (the original
                   release's format); a line is empty if nothing is left after `str.strip()`
    WikiExtractor  `<doc id=… title=…>`, the title, paragraphs, `</doc>`; paragraphs are split
                   into sentences here, titles and headings are dropped (the paper, section 3.1,
                   takes only text passages and ignores lists, tables and headers)
    JSON lines     one object per line, a document each; its text stands in one field, where
                   newlines separate paragraphs, which are split into sentences here

Lines come numbered from 1 and stripped; opening, unpacking and decoding files is told in
`corpus.py`.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from data.errors import DataError
from data.pretraining.sentences import split_sentences

MAX_DOCUMENT_CHARACTERS = 64 * 2**20
"""A document is held in memory; beyond this size the blank lines are surely missing."""
TEXT_FIELD = "text"
"""Where the objects of JSON lines hold their text unless told otherwise."""

_DOC_OPEN = re.compile(r"<doc\b[^>]*>")
_TITLE = re.compile(r"""\btitle=(?:"([^"]*)"|'([^']*)')""")
_LIST_MARK = re.compile(r"^(?:BULLET::::)?[-*•·#]+\s*")
_TAG = re.compile(r"</?(?:br|ref|nowiki|templatestyles|section|li|ul|ol|h\d|b|i|span|div)\b[^>]*>")
_HEADING_WORDS, _HEADING_CHARACTERS = 6, 60
_SENTENCE_END = tuple('!?。！？；…”"»」』')
# The second catches an object spread over several lines, and an array of objects, which are then
# refused with a reason instead of being taken for prose.
_JSON = re.compile(r'\{\s*["}]|\{$|\[$|\[\s*\{\s*["}]')
_SHOWN_FIELDS = 10


@dataclass(slots=True)
class Document:
    """One document.

    Attributes:
        sentences: Its sentences in order, none blank, without surrounding white space.
        source: Where it starts, as "file:line", for messages.
    """

    sentences: list[str] = field(default_factory=list)
    source: str = ""


def parse(
    path: str, lines: Iterable[tuple[int, str]], first: str, text_field: str = TEXT_FIELD
) -> Iterator[Document]:
    """Streams the documents of one file.

    Args:
        path: For messages.
        lines: (number from 1, line without surrounding white space), from `first` on.
        first: The first line that isn't blank; it tells the format.
        text_field: The field of JSON lines that holds the text.

    Yields:
        Documents of at least one sentence.

    Raises:
        DataError: Naming file and line, for a document of more than `MAX_DOCUMENT_CHARACTERS`
            and for JSON lines that are broken or hold no string in `text_field`.
    """
    if _DOC_OPEN.match(first):
        return _read_wiki(path, lines)
    if _JSON.match(first):
        return _read_json(path, lines, text_field)
    return _read_plain(path, lines)


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


def _read_json(path: str, lines: Iterable[tuple[int, str]], text_field: str) -> Iterator[Document]:
    for number, line in lines:
        if not line:
            continue
        document, limit = Document(source=f"{path}:{number}"), _Limit()
        text = _text_of(line, text_field, document.source)
        limit.add(text, document)
        for paragraph in text.split("\n"):
            document.sentences.extend(split_sentences(paragraph.strip()))
        if document.sentences:
            yield document


def _text_of(line: str, text_field: str, source: str) -> str:
    """The text of one line of JSON lines; half a surrogate pair becomes U+FFFD."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{source}: this line isn't JSON ({error}). A file of JSON lines holds one whole"
            " object on every line; repair the line, or write the file anew with one object per"
            " line."
        ) from None
    if not isinstance(record, dict):
        raise DataError(
            f"{source}: this line holds {_kind(record)}, not an object. A file of JSON lines holds"
            f' one object on every line, such as {{"{text_field}": "…"}}.'
        )
    if text_field not in record:
        names = [repr(name) for name in record]
        more = f" and {len(names) - _SHOWN_FIELDS} more" if len(names) > _SHOWN_FIELDS else ""
        there = ", ".join(names[:_SHOWN_FIELDS]) + more if names else "none"
        raise DataError(
            f"{source}: the object has no field {text_field!r}; its fields: {there}. Name the one"
            " that holds the text with --text_field."
        )
    text = record[text_field]
    if not isinstance(text, str):
        raise DataError(
            f"{source}: the field {text_field!r} holds {_kind(text)}; a string was expected. Name"
            " the field that holds the text with --text_field, or leave this line out."
        )
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object")


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
