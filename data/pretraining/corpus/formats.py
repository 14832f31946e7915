"""What a corpus file's lines say: the formats, and how each becomes documents.

Three formats of text, told apart by the first line that isn't blank:

    plain          one sentence per line, an empty line between documents (the original
                   release's format); a line is empty if nothing is left after `str.strip()`
    WikiExtractor  `<doc id=… title=…>`, the title, paragraphs, `</doc>`; paragraphs are split
                   into sentences here, titles and headings are dropped (the paper, section 3.1,
                   takes only text passages and ignores lists, tables and headers)
    JSON lines     one object per line, a document each; its text stands in one field, where
                   newlines separate paragraphs, which are split into sentences here

A range of a file's bytes owns the documents that start in it, so that the ranges share all
documents out wherever they cut. A document starts

    plain          with the blank line directly before it (seen from the middle of a file, nothing
                   else tells that a line is the first of a document), or with the file
    WikiExtractor  with its `<doc …>` line; text after a `</doc>`, with that line
    JSON lines     with its line

Reading lines is told in `data/files/lines.py`, Parquet in `data/files/parquet.py`.
"""

import html
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from data.errors import DataError, error_list, json_error
from data.files.lines import Lines
from data.pretraining.corpus.sentences import split_sentences

MAX_DOCUMENT_CHARACTERS = 64 * 2**20
"""A document is held in memory; beyond this size the blank lines are surely missing."""
TEXT_FIELD = "text"
"""Where JSON lines (a field) and Parquet (a column) hold their text unless told otherwise."""

_DOC_OPEN = re.compile(r"<doc\b[^>]*>")
# A title may hold quotation marks as they are; it ends before another attribute or the tag's end.
_TITLE = re.compile(r"""\btitle=(["'])(.*?)\1(?=\s+\w+=["']|\s*>$)""")
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
        source: Where it starts, for messages: "file:line", "file:byte N" where only a range of
            the file was read, or "file: row N" (Parquet, N counting from 1).
    """

    sentences: list[str] = field(default_factory=list)
    source: str = ""


def corpus_format(first: str) -> str:
    """The format of a file by its first line that isn't blank: "plain", "wiki" or "json"."""
    if _DOC_OPEN.match(first):
        return "wiki"
    return "json" if _JSON.match(first) else "plain"


def parse_documents(
    lines: Lines,
    format: str,
    begin: int = 0,
    end: int | None = None,
    text_field: str = TEXT_FIELD,
) -> Iterator[Document]:
    """Streams the documents that start in a range of a file, see `sources.CorpusSource`.

    Args:
        lines: The file's stripped lines from byte `begin` on.
        format: What `corpus_format` said.
        begin, end: The range in bytes of text, `end` not included; None: the end of the file.
        text_field: The field of JSON lines that holds the text.

    Raises:
        DataError: Naming file and line, for a document of more than `MAX_DOCUMENT_CHARACTERS`
            and for JSON lines that are broken or hold no string in `text_field`.
    """
    limit = math.inf if end is None else end
    if limit <= begin:
        return iter(())
    if format == "wiki":
        return _read_wiki(lines, begin, limit)
    if format == "json":
        return _read_json(lines, limit, text_field)
    return _read_plain(lines, begin, limit)


def corpus_document(text: str, source: str) -> Document:
    """The document of a text whose newlines separate paragraphs; maybe without a sentence.

    Raises DataError for a text of more than `MAX_DOCUMENT_CHARACTERS`.
    """
    if len(text) > MAX_DOCUMENT_CHARACTERS:
        raise _too_long(source)
    document = Document(source=source)
    for paragraph in text.split("\n"):
        document.sentences.extend(split_sentences(paragraph.strip()))
    return document


def _too_long(place: str) -> DataError:
    return DataError(
        f"{place}: the document that starts here has more than {MAX_DOCUMENT_CHARACTERS:,}"
        " characters. Documents are separated by blank lines (or <doc> tags, or are a line of"
        " JSON or a row each); separate the documents of this file."
    )


class _Growing:
    """The current document of a file of plain text or WikiExtractor's; refuses endless ones."""

    def __init__(self, lines: Lines):
        self._lines = lines
        self.start_anew()

    def start_anew(self) -> None:
        self.document = Document()
        self._number = self._characters = 0

    def add(self, sentences: list[str], start: int, number: int, characters: int) -> None:
        if not self._number:
            self._number = number
            self.document.source = self._lines.source(start, number)
        self.document.sentences.extend(sentences)
        self._characters += characters
        if self._characters > MAX_DOCUMENT_CHARACTERS:
            raise _too_long(self._lines.place(self._number))


def _read_plain(lines: Lines, begin: int, end: float) -> Iterator[Document]:
    growing, inside = _Growing(lines), begin == 0
    for start, number, line in lines:
        if line and inside:
            growing.add([line], start, number, len(line))
            continue
        if growing.document.sentences:
            yield growing.document
            growing.start_anew()
        if start >= end:
            return
        inside = inside or not line
    if growing.document.sentences:
        yield growing.document


def _read_wiki(lines: Lines, begin: int, end: float) -> Iterator[Document]:
    growing, title, inside = _Growing(lines), "", begin == 0
    for start, number, line in lines:
        opening = _DOC_OPEN.match(line)
        if opening or line == "</doc>":
            if growing.document.sentences:
                yield growing.document
            if start >= end:
                return
            growing.start_anew()
            # The document's place is its tag's.
            growing.add([], start, number, 0)
            named = _TITLE.search(line) if opening else None
            title = html.unescape(named[2]).strip() if named else ""
            inside = True
        elif not inside:
            if start >= end:
                return
        elif title and html.unescape(line) == title:
            title = ""
        else:
            text = _clean_wiki_line(line)
            if text and not _is_heading(text):
                sentences = split_sentences(text)
                proper = [s for s in sentences if any(map(str.isalnum, s))]
                growing.add(proper, start, number, len(text))
    if growing.document.sentences:
        yield growing.document


def _read_json(lines: Lines, end: float, text_field: str) -> Iterator[Document]:
    for start, number, line in lines:
        if start >= end:
            return
        if not line:
            continue
        try:
            text = _text_of(line, text_field)
        except DataError as error:
            raise DataError(f"{lines.place(number)}: {error}") from None
        if len(text) > MAX_DOCUMENT_CHARACTERS:
            raise _too_long(lines.place(number))
        document = corpus_document(text, lines.source(start, number))
        if document.sentences:
            yield document


def _text_of(line: str, text_field: str) -> str:
    """The text of one line of JSON lines; half a surrogate pair becomes U+FFFD."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"this line isn't JSON ({json_error(error)}). A file of JSON lines holds one whole"
            " object on every line; repair the line, or write the file anew with one object per"
            " line."
        ) from None
    if not isinstance(record, dict):
        raise DataError(
            f"this line holds {_kind(record)}, not an object. A file of JSON lines holds one object"
            f' on every line, such as {{"{text_field}": "…"}}.'
        )
    if text_field not in record:
        known = error_list(map(repr, record), _SHOWN_FIELDS) or "none"
        raise DataError(
            f"the object has no field {text_field!r}; its fields: {known}. Name the one that holds"
            " the text with --text_field."
        )
    text = record[text_field]
    if not isinstance(text, str):
        raise DataError(
            f"the field {text_field!r} holds {_kind(text)}; a string was expected. Name the field"
            " that holds the text with --text_field, or leave this line out."
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
