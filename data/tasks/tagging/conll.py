"""Reading sentences of words with tags: the CoNLL tasks' column format, and JSON lines.

    sentences = read_conll_sentences("eng.train", TagFormat(), labelled=True)

A CoNLL file has a word per line, its columns separated by tabs or by blanks, and a blank line
behind each sentence; a line whose word is -DOCSTART- begins a document. JSON lines hold a sentence
per line, an object with a list of words and one of tags. A file may also hold a sentence per line,
its words, a tab and their tags, as many Chinese sets do.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from absl import logging

from data.errors import DataError, error_list, error_text
from data.files.bad_rows import BadRows, RowAttempt
from data.files.encodings import UTF8
from data.files.text_files import file_extension, json_file_rows, lines_of, read_text
from data.progress import counted
from data.tasks.tagging import schemes

DOCUMENT = "-DOCSTART-"
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_BEGINNING = "the sentence's beginning"
_SHOWN = 5  # places that a report names


@dataclasses.dataclass(frozen=True)
class TagFormat:
    """How files are to be read.

    Attributes:
        token_column, tag_column: In CoNLL files numbers from 0, or from -1 backwards; in JSON
            lines names. None: the first and the last, or "tokens" and "tags".
        document_column: In JSON lines the name of a field that says which document the sentence
            is of; consecutive lines with the same value are of one.
        scheme: Of the files, among `schemes.SCHEMES`, or "auto".
        model_scheme: What the tags are converted to, among `schemes.MODEL_SCHEMES`.
        encoding: Of files, as the flag --encoding says.
    """

    token_column: str | None = None
    tag_column: str | None = None
    document_column: str | None = None
    scheme: str = "auto"
    model_scheme: str = "iob2"
    encoding: str = UTF8


@dataclasses.dataclass(frozen=True)
class ConllSentence:
    """Words and, if known, their tags.

    Attributes:
        words: Any strings; an empty one is a word as well.
        tags: As many, or None.
        document: Number of the document in its file, from 0.
        source: "file:line" of the first word.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int
    source: str


def read_conll_sentences(
    path: str, format: TagFormat, labelled: bool, bad_rows: BadRows | None = None
) -> list[ConllSentence]:
    """The sentences of a file, with tags in the model's scheme.

    Tags that don't fit the scheme of the file are repaired as `schemes` says, which is logged
    with the first places.

    Args:
        path: JSON lines if it ends in .jsonl, .ndjson or .json; else a sentence per line if some
            line has as many tags behind its only tab as words before it, two at least, and no
            column is named; else the column format. All may be compressed.
        labelled: Whether there have to be tags; otherwise they are read where there are some.
        bad_rows: What becomes of bad sentences; by default the file is refused.

    Raises:
        DataError: The file can't be read, has no sentence, lacks a column, or holds what is no
            tag; names the line.
    """
    text = read_text(path, encoding=format.encoding)
    if file_extension(path) in _JSON_LINES:
        read = _json_lines
    else:
        named = format.token_column is not None or format.tag_column is not None
        read = _sentence_lines if not named and _has_sentence_lines(text) else _columns
    bad = (bad_rows or BadRows()).of(path, "sentences")
    sentences = list(read(path, text, format, labelled, bad.attempt))
    bad.finish(len(sentences))
    if not sentences:
        raise DataError(
            f"{path} holds no sentence; expected a word per line with columns, a sentence per line "
            f"with a tab before its tags, or with the ending .jsonl an object per line. Check that "
            f"the file was written completely."
        )
    # Places of the words, for messages, are needed until here only.
    sentences, places = zip(*sentences, strict=True)
    return _converted(path, sentences, places, format)


# A line of these words before a sentence tells of it.
_COMMENT = re.compile(r"# [^\t]* = [^\t]*|# id\s+\S+(\s+\S+=\S+)+|# new(doc|par)\b[^\t]*")


def number_of_conll_documents(sentences: Sequence[ConllSentence]) -> int:
    """Documents of one file."""
    return sentences[-1].document + 1 if sentences else 0


# ---- Columns ----


def _columns(path: str, text: str, format: TagFormat, labelled: bool, attempt: RowAttempt):
    """(sentence, line numbers of its words) of a file in the CoNLL tasks' format."""
    lines = list(enumerate(_without_comments(lines_of(text)), 1))
    # A word may hold blanks if it's tabs that separate the columns, and in every line.
    tabs = all("\t" in line for _, line in lines if _is_word(line))
    token, tag, width = _number(format.token_column, 0, "token"), None, None

    def fields_of(number: int, line: str) -> list[str]:
        if tabs:
            fields = [field.strip(" ") for field in line.split("\t")]
        else:
            fields = re.split("[ \t]+", line.strip(" \t"))
        if width is not None and len(fields) != width:
            raise DataError(
                f"{path}:{number}: this line has {len(fields)} columns ({error_text(line)}), "
                f"but {width} was expected, as in the lines before it. A line holds a word "
                f"with its columns, separated by blanks or, in all lines, by tabs; correct it."
            )
        if tag is not None:
            schemes.check_tag(fields[tag], format.scheme, f"{path}:{number}")
        return fields

    document, used = 0, False
    read = counted(f"Reading {path}", "lines", lines)
    for of_words, group in itertools.groupby(read, key=lambda numbered: _is_word(numbered[1])):
        if not of_words:
            if used and any(_is_document(line) for _, line in group):
                document, used = document + 1, False
            continue
        group = list(group)
        if width is None:
            number, line = group[0]
            first = fields_of(number, line)
            tag, width = _tag_column(path, number, first, format, labelled), len(first)
        rows = attempt(lambda lines: [fields_of(*line) for line in lines], group)
        if rows is None:
            continue
        words = tuple(fields[token] for fields in rows)
        tags = None if tag is None else tuple(fields[tag] for fields in rows)
        yield ConllSentence(words, tags, document, f"{path}:{group[0][0]}"), [n for n, _ in group]
        used = True


def _without_comments(lines: Iterable[str]) -> Iterator[str]:
    """The lines, an empty one in place of what stands before a sentence as in CoNLL-U.

    That is "# key = value", "# newdoc" and "# id 17 domain=en". A word "#" has columns behind it,
    the last of them its tag.
    """
    before = ""
    for line in lines:
        if (not before.strip() or _is_document(before)) and _COMMENT.fullmatch(line):
            line = ""
        yield line
        before = line


def _is_document(line: str) -> bool:
    return line.lstrip(" \t").startswith(DOCUMENT) or DOCUMENT in line.split()


def _is_word(line: str) -> bool:
    return bool(line.strip(" \t")) and not _is_document(line)


def _tag_column(path, number, fields, format: TagFormat, labelled: bool) -> int | None:
    """Which column has the tags, from the first line; None if there are none."""
    width = len(fields)
    column = _number(format.tag_column, -1, "tag")
    token = _number(format.token_column, 0, "token")
    if not -width <= token < width:
        raise DataError(
            f"{path}:{number}: there is no column {token} of the words in this line, which has "
            f"{width} ({error_text(' '.join(fields))}). Name the words' column with "
            f"--token_column, counting from 0, or from -1 backwards."
        )
    token %= width
    if -width <= column < width and column % width != token:
        return column % width
    if not labelled:
        return None
    raise DataError(
        f"{path}:{number}: there is no column {column} with a tag in this line, which has "
        f"{width} ({error_text(' '.join(fields))}), the word in column {token}. Expected a word "
        f"and its tag in every line; name their columns with --token_column and --tag_column, "
        f"counting from 0, or from -1 backwards."
    )


def _number(column: str | None, default: int, name: str) -> int:
    try:
        return default if column is None else int(column)
    except ValueError:
        raise DataError(
            f"--{name}_column is {error_text(column)}; for files of columns it has to be a number, "
            f"counting from 0, or from -1 backwards. Names are for JSON lines (.jsonl)."
        ) from None


# ---- A sentence per line ----


def _has_sentence_lines(text: str) -> bool:
    """Whether some line holds several words, a tab, and as many tags."""
    for line in lines_of(text):
        words, tab, tags = line.partition("\t")
        tags = _between_blanks(tags)
        fits = tab and len(tags) == len(_between_blanks(words)) > 1
        if fits and all(schemes.is_tag(tag, "auto") for tag in tags):
            return True
    return False


def _between_blanks(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(" ")))


def _sentence_lines(path: str, text: str, format: TagFormat, labelled: bool, attempt: RowAttempt):
    """(sentence, line numbers of its words) of lines of words, a tab and their tags."""
    document, used = 0, False
    for number, line in enumerate(counted(f"Reading {path}", "lines", lines_of(text)), 1):
        if _is_document(line):
            document, used = document + used, False
        if not _is_word(line):
            continue
        source = f"{path}:{number}"
        row = attempt(_words_and_tags, source, line, format.scheme, labelled)
        if row is None:
            continue
        yield ConllSentence(*row, document, source), (number,) * len(row[0])
        used = True


def _words_and_tags(source: str, line: str, scheme: str, labelled: bool):
    """Words and tags, or None for these where a line that needs none has none."""
    words, _, tags = (_between_blanks(part) for part in line.partition("\t"))
    if not tags and not labelled:
        return words, None
    if len(words) != len(tags):
        raise DataError(
            f"{source}: {len(words)} words before the tab and {len(tags)} tags behind it "
            f"({error_text(line)}); every word needs one. A line of this file holds a sentence, "
            f"its words between blanks, a tab and their tags between blanks; correct it."
        )
    for tag in tags:
        schemes.check_tag(tag, scheme, source)
    return words, tags


# ---- JSON lines ----


def _json_lines(path: str, text: str, format: TagFormat, labelled: bool, attempt: RowAttempt):
    """(sentence, line numbers of its words) of JSON lines."""
    document, last, none_yet = 0, None, True
    for source, fields in json_file_rows(path, text, attempt):
        row = None if fields is None else attempt(_json_words, source, fields, format, labelled)
        if row is None:
            continue
        words, tags = row
        name = fields.get(format.document_column) if format.document_column else None
        document += bool(not none_yet and name != last)
        last, none_yet = name, False
        line = int(source.rpartition(":")[2])
        yield (
            ConllSentence(tuple(words), tags and tuple(tags), document, source),
            (line,) * len(words),
        )


def _json_words(source: str, fields: dict, format: TagFormat, labelled: bool):
    """Words and tags, or None for these."""
    token, tag = format.token_column or "tokens", format.tag_column or "tags"
    words = _strings(source, fields, token)
    tags = _strings(source, fields, tag) if labelled or tag in fields else None
    if tags is not None and len(tags) != len(words):
        raise DataError(
            f"{source}: {len(words)} words in {token!r}, but {len(tags)} tags in {tag!r}; "
            f"every word needs one. Correct the line."
        )
    for one in tags or ():
        schemes.check_tag(one, format.scheme, source)
    return words, tags


def _strings(source: str, fields: dict, name: str) -> list[str]:
    words = fields.get(name)
    if isinstance(words, list) and all(isinstance(item, str) for item in words):
        return words
    state = f"holds {error_text(words)}" if name in fields else "is missing"
    raise DataError(
        f"{source}: the field {name!r} {state}; expected a list of strings, one for each word. The "
        f"fields here are {error_list(fields)}; --token_column and --tag_column name others."
    )


# ---- Tags ----


def _converted(path, sentences, places, format: TagFormat) -> list[ConllSentence]:
    """With tags in the model's scheme; logs what had to be repaired."""
    tagged = [sentence.tags for sentence in sentences if sentence.tags is not None]
    if not tagged:
        return list(sentences)
    scheme = schemes.detect_scheme(tagged, path) if format.scheme == "auto" else format.scheme
    logging.info("%s: tags in %s", path, scheme.upper())
    wrong = [
        f"line {lines[place]}: {_misfit(sentence.tags, place, scheme)}"
        for sentence, lines in zip(sentences, places, strict=True)
        for place in schemes.misfitting_tags(sentence.tags or (), scheme)
    ]
    if wrong:
        logging.warning(
            f"{path}: {len(wrong)} of {sum(map(len, tagged))} tags can't stand where they do in "
            f"{scheme.upper()}. They are repaired by reading them as conlleval does: an entity "
            "begins at every tag that doesn't go on one of its type, and ends before the next that "
            f"doesn't. {'; '.join(wrong[:_SHOWN])}{'; and others' * (len(wrong) > _SHOWN)}. Look "
            "at these lines: correct them if words or tags were lost, or name another --scheme."
        )

    def converted(sentence: ConllSentence) -> ConllSentence:
        if sentence.tags is None:
            return sentence
        entities = schemes.decode_entities(sentence.tags)
        tags = schemes.encode_entities(entities, len(sentence.tags), format.model_scheme)
        return dataclasses.replace(sentence, tags=tuple(tags))

    return list(map(converted, sentences))


def _misfit(tags: Sequence[str], place: int, scheme: str) -> str:
    """What is wrong at a place, in words: what is before it, and what it breaks off."""
    text = f"{tags[place]} behind {tags[place - 1] if place else _BEGINNING}"
    begins_or_goes_on = {"B", "I"} if schemes.scheme_marks_ends(scheme) else set()
    if schemes.split_tag(tags[place])[0] not in begins_or_goes_on:
        return text
    if place + 1 == len(tags):
        return f"{text}, and the sentence ends inside the entity"
    if any(entity.end == place + 1 for entity in schemes.decode_entities(tags)):
        return f"{text}, and the entity breaks off before {tags[place + 1]}"
    return text
