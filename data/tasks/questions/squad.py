"""Question answering files in SQuAD's JSON format: questions, contexts and answers.

Read are SQuAD 1.1 and 2.0, and what was published in or converted to the same nesting: XQuAD,
CMRC 2018 (the SQuAD-style release), TriviaQA, one document per paragraph:

    {"data": [{"title": …, "paragraphs": [{"context": …, "qas": [
        {"id": …, "question": …, "answers": [{"text": …, "answer_start": …}],
         "is_impossible": false}]}]}]}

Titles and is_impossible may be absent, other keys aren't read. Files are UTF-8, and may be packed
by gzip, bzip2, xz or zstd. Offsets count Unicode code points. In messages places are written as in
"dev.json: data[3].paragraphs[2].qas[1]", counting from 0.

Training needs to know where an answer is. If the context doesn't hold the text at answer_start,
it is looked for again, in this order:

1.  at answer_start, but with any white space where the answer has some: line breaks, no-break
    spaces or doubled blanks are often lost from one of the two when a context is cleaned;
2.  anywhere in the context, as it is written;
3.  anywhere, with any white space.

What is found at one place only is taken (in its context's spelling); what is found nowhere or at
several places isn't, and a question without an answer left is dropped. Both are logged.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from absl import logging

from data.errors import DataError, error_list, error_text, json_error
from data.files.bad_rows import BadRows, FileRows
from data.files.text_files import loads, read_text
from data.progress import counted

_SHOWN = 5
_BLANK = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
# What may be out of place in training files.
_MOVED = "answers aren't at their answer_start as written and were found"
_LOST = "answers aren't at their answer_start, and nowhere else or at several places: left out"
_DROPPED = "questions of {} dropped, as no answer could be placed"
_IGNORED = "questions are marked as unanswerable: their answers aren't used"
_Sources = dict[str, list[str]]
_CALLED = {list: "an array", str: "a text", bool: "true or false", int: "an integer"}


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        text: As in the file; of questions to train on always the context's characters from start.
        start: Offset into the context in Unicode code points. Checked for training only, -1 if
            the file gives none.
    """

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
        id: Unique in its file.
        question: Its text.
        context: Where its answer is.
        answers: For training those whose place is known, at least one unless is_impossible; the
            first is the one to train on. For evaluation as in the file: any of them is right, and
            there are none if the question is unanswerable, or if the file doesn't tell.
        is_impossible: Whether the context doesn't hold the answer: the file says so, or there is
            no such key and an empty list of answers, in a file that has answers elsewhere.
        source: Where it was read, for messages.
        title: The article's, "" if it has none.
        paragraph: Number of the context in its file.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool
    source: str
    title: str = ""
    paragraph: int = 0


def read_squad(
    path: str,
    *,
    version_2: bool | None = None,
    training: bool,
    max_contexts: int = 0,
    bad_rows: BadRows | None = None,
) -> list[Question]:
    """Reads a file, questions in its order.

    Args:
        path: Anything that `tf.io.gfile` opens.
        version_2: Whether questions may be unanswerable. If not, a file with such questions is
            refused for training and warned about otherwise; if so, one without is warned about.
            None: as the file is.
        training: Whether answers are needed and have to be where the file says, see above.
            Otherwise they may be absent, and only their texts count.
        max_contexts: Where the same question is asked about several contexts, as in TriviaQA,
            only the first so many are kept; 0: all. Questions are the same if their texts are.
        bad_rows: What becomes of bad questions (of an empty context all are); by default the file
            is refused. What is wrong above the level of questions always refuses it.

    Raises:
        DataError: Names the file and the place in it: broken JSON (line and column), keys that
            are missing or of a wrong type, empty contexts, questions or answers, an id that
            occurs twice, no question at all; for training also questions without answers that
            aren't marked as unanswerable, unanswerable ones if not version_2, or nothing left.
    """
    oddities: _Sources = {_MOVED: [], _LOST: [], _DROPPED: [], _IGNORED: []}
    questions: list[Question] = []
    places: dict[str, str] = {}
    asked: Counter[str] = Counter()
    left_out = 0
    bad = (bad_rows or BadRows()).of(path, "questions")
    articles, number = _load(path)
    found = _questions(path, articles, training, oddities, bad)
    for question in counted(f"Reading {path}", "questions", found, number):
        if bad.attempt(_remember, question, places) is None:
            continue
        asked[question.question] += 1
        if max_contexts and asked[question.question] > max_contexts:
            left_out += 1
            continue
        questions.append(_located(question, oddities) if training else question)
    bad.finish(len(places))
    if not (training or any(q.answers for q in questions) or _marks_impossible(articles)):
        # Empty lists of answers throughout are in place of those that aren't known.
        questions = [dataclasses.replace(q, is_impossible=False) for q in questions]
    if not questions:
        raise DataError(
            f"{path} has no questions, its lists 'data', 'paragraphs' or 'qas' being empty. Check"
            " that it is the right file and that writing it came to its end."
        )
    _check_version(path, questions, version_2, training)
    if left_out:
        which = f"asked before about {max_contexts} other contexts"
        logging.info("%s: %d of %d questions left out, %s", path, left_out, len(places), which)
    for what, sources in oddities.items():
        what = what.format(len(questions))
        if sources:
            # The path needn't be repeated with every place.
            shown = error_list((source.removeprefix(f"{path}: ") for source in sources), _SHOWN)
            logging.warning("%s: %d %s: %s", path, len(sources), what, shown)
        for source in sources:
            logging.debug("%s %s", source, what)
    questions = [q for q in questions if q.answers or q.is_impossible or not training]
    if not questions:
        raise DataError(
            f"{path}: none of its questions can be trained on, as no answer is where answer_start"
            " says or at one other place of its context only. Check that the contexts are those"
            " that the answers were taken from, and that answer_start counts characters."
        )
    return questions


def _marks_impossible(articles: object) -> bool:
    """Whether anything that was read of a file says that it is unanswerable."""
    if isinstance(articles, dict):
        return articles.get("is_impossible") is True or any(
            _marks_impossible(articles.get(name)) for name in ("paragraphs", "qas")
        )
    return isinstance(articles, list) and any(map(_marks_impossible, articles))


def _locate(context: str, text: str, start: int) -> tuple[int, int] | None:
    """First and last (exclusive) offset of an answer, not blank, in its context.

    It should be at start; if it isn't, or start is below 0, it is looked for as the module says.

    Returns:
        None if it is nowhere, or not at start and at several places.
    """
    if start >= 0 and context.startswith(text, start):
        return start, start + len(text)
    loose = re.compile(r"\s+".join(map(re.escape, text.split())))
    if 0 <= start < len(context):
        # White space before the answer may be longer or shorter than its own.
        blank = _BLANK.match(context, start)
        match = loose.match(context, blank.end())
        if match:
            return match.span()
    first = context.find(text)
    if first >= 0:
        # From the next character on, as occurrences may overlap.
        only = context.find(text, first + 1) < 0
        return (first, first + len(text)) if only else None
    match = loose.search(context)
    if match is None or loose.search(context, match.start() + 1):
        return None
    return match.span()


def _load(path: str) -> tuple[list[object], int]:
    """The list of articles, and about how many questions they have."""
    text = read_text(path)
    try:
        content = loads(text)
    except (ValueError, RecursionError) as error:
        place, near = path, ""
        if isinstance(error, json.JSONDecodeError):
            place += f":{error.lineno}:{error.colno}"
            line = text.split("\n")[error.lineno - 1]
            near = f", near {error_text(line[max(0, error.colno - 21) : error.colno + 39])}"
        raise DataError(
            f"{place}: the file isn't JSON ({json_error(error)}){near}. A file in SQuAD's"
            " format is one JSON object, not one per line; repair it, or download it again if it"
            " isn't complete."
        ) from None
    # A quotation mark within a text is escaped, so that nearly all of these are keys.
    return _field(_object(content, path), "data", list, path), text.count('"question"')


def _remember(question: Question, places: dict[str, str]) -> bool:
    """Notes where its id is from; True. Raises DataError if another has it."""
    if question.id in places:
        raise DataError(
            f"{question.source}: the id {error_text(question.id)} occurs twice, the first time"
            f" at {places[question.id]}. Predictions are told apart by it; give every question"
            " an id of its own, or remove one of the two if they are the same."
        )
    places[question.id] = question.source
    return True


def _questions(
    path: str, articles: list[object], training: bool, oddities: _Sources, bad: FileRows
) -> Iterator[Question]:
    number = 0
    for place, article in _objects(articles, f"{path}: data"):
        title = _text(_field(article, "title", str, place)) if "title" in article else ""
        paragraphs = _field(article, "paragraphs", list, place)
        for within, paragraph in _objects(paragraphs, f"{place}.paragraphs"):
            qas = _field(paragraph, "qas", list, within)
            context = bad.attempt(_context, paragraph, within, size=max(len(qas), 1))
            for place, qa in enumerate(qas if context is not None else ()):
                source = f"{within}.qas[{place}]"
                fixed = (training, oddities, context, title, number)
                question = bad.attempt(_question, qa, source, *fixed)
                if question is not None:
                    yield question
            number += 1


def _context(paragraph: dict[str, object], place: str) -> str:
    context = _text(_field(paragraph, "context", str, place))
    if not context.strip():
        raise DataError(
            f"{place}: the context is empty, and answers are looked for in it. Add the"
            " text or remove the paragraph."
        )
    return context


def _question(
    qa: object,
    place: str,
    training: bool,
    oddities: _Sources,
    context: str,
    title: str,
    paragraph: int,
) -> Question:
    qa = _object(qa, place)
    # Predictions are JSON too, where keys are strings.
    name = str(qa["id"]) if type(qa.get("id")) is int else _text(_field(qa, "id", str, place))
    text = _text(_field(qa, "question", str, place))
    if not text.strip():
        raise DataError(f"{place}: the question is empty. Add its text or remove it.")
    marked = "is_impossible" in qa
    impossible = _field(qa, "is_impossible", bool, place) if marked else False
    listed = _field(qa, "answers", list, place) if training or "answers" in qa else []
    answers = tuple(
        _answer(answer, where, training)
        for where, answer in _objects(listed, f"{place}.answers")
        # Some files mark what is unanswerable by an empty answer besides.
        if not (impossible and answer.get("text") == "")
    )
    if training and marked and not impossible and not answers:
        raise DataError(
            f"{place}: there is no answer, and is_impossible is false. Add one or make that true."
        )
    if impossible and answers and training:
        # So does the original release.
        oddities[_IGNORED].append(place)
        answers = ()
    if not marked and "answers" in qa and not answers:
        impossible = True
    return Question(name, text, context, answers, impossible, place, title, paragraph)


def _answer(answer: dict[str, object], place: str, training: bool) -> Answer:
    text = _text(_field(answer, "text", str, place))
    if not text.strip():
        raise DataError(
            f"{place}: the answer's text is empty. Add it or remove the answer; a question"
            " without an answer has an empty list of them, and is_impossible true."
        )
    if training or answer.get("answer_start") is not None:
        return Answer(text, _field(answer, "answer_start", int, place))
    return Answer(text, -1)


def _located(question: Question, oddities: _Sources) -> Question:
    """The question with those of its answers that are in its context, from where they are."""
    answers = []
    for number, answer in enumerate(question.answers):
        span = _locate(question.context, answer.text, answer.start)
        place = f"{question.source}.answers[{number}]"
        if span is None:
            oddities[_LOST].append(place)
            continue
        located = Answer(question.context[slice(*span)], span[0])
        if located != answer:
            oddities[_MOVED].append(place)
        answers.append(located)
    if question.answers and not answers:
        oddities[_DROPPED].append(question.source)
    return dataclasses.replace(question, answers=tuple(answers))


def _check_version(
    path: str, questions: Sequence[Question], version_2: bool | None, training: bool
) -> None:
    impossible = [question for question in questions if question.is_impossible]
    if version_2 is False and impossible:
        message = (
            f"{impossible[0].source}: this question is unanswerable, one of {len(impossible)} among"
            f" {len(questions)} in the file, which is SQuAD 2.0's; without"
            " --version_2_with_negative every question has an answer. "
        )
        if training:
            raise DataError(message + "Use that flag, or remove those questions from the file.")
        logging.warning("%sThey can be predicted on, but not evaluated.", message)
    if version_2 and all(question.answers for question in questions):
        logging.warning(
            f"{path}: all {len(questions)} questions are answerable, as in SQuAD 1.1, though"
            " --version_2_with_negative is set: when to give no answer can't be learned from them,"
            " nor a threshold chosen."
        )


def _objects(values: list[object], place: str) -> Iterator[tuple[str, dict[str, object]]]:
    for number, value in enumerate(values):
        yield f"{place}[{number}]", _object(value, f"{place}[{number}]")


def _object(value: object, place: str) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise DataError(
        f"{place}: expected an object, found {error_text(value)}. Correct the file; its nesting"
        " should be data, paragraphs, qas, answers, all but the objects in them being arrays."
    )


def _field(fields: dict[str, object], name: str, kind: type, place: str) -> object:
    if name not in fields:
        raise DataError(
            f"{place}: the key {name!r} is missing; there are"
            f" {error_list(map(error_text, fields)) or 'none'}. SQuAD's format needs it here, as"
            f" {_CALLED[kind]}; add it, or convert the file."
        )
    value = fields[name]
    # bool is an int to isinstance.
    if type(value) is not kind:
        raise DataError(
            f"{place}: expected {_CALLED[kind]} as {name!r}, found {error_text(value)}; correct it."
        )
    return value


def _text(text: str) -> str:
    """Half surrogate pairs, which JSON may hold and UTF-8 can't, become U+FFFD: no offset moves."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
