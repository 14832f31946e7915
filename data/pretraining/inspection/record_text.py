"""Pre-training records as text for people: pieces joined to words, predictions marked.

A prediction shows what stands at its place, then what was there and is to be predicted:

    [MASK→house]          "house" was masked
    [random: tree→house]  "tree" stands in its place
    [kept: house]         it stands there as it was

A mark is joined to the word before it if the piece that was there continues the word.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from data.errors import DataError
from data.pretraining.inspection import inspection
from data.pretraining.records import record_files, schema
from data.tokenization import vocabulary

WIDTH = 100
_INDENT = "     "
# Inside a mark until lines are broken: its borders, and the blanks at which it isn't to be broken.
_BEGIN, _END, _BLANK = "\x01", "\x02", "\x03"
_MARKED = re.compile(f"{_BEGIN}([^{_END}]*){_END}")


def show_records(
    files: Sequence[str],
    tokens: Sequence[str] | None = None,
    *,
    count: int = 3,
    chosen: Sequence[str] = (),
    width: int = WIDTH,
    color: bool = False,
) -> Iterator[str]:
    """Records as blocks of lines.

    Args:
        files: Paths of TFRecord files.
        tokens: The vocabulary; without it the ids are shown.
        count: Show so many, the first ones.
        chosen: Show these instead: "17" is the record of that number (counted from 0) of the first
            file, "train-3.tfrecord:17" of that file, which may also be named by the last part of
            its path.
        width: Of the lines.
        color: Whether the marks are coloured, for terminals.

    Raises:
        DataError: `chosen` isn't understood, or there is no such record. A damaged record is shown
            as far as possible.
    """
    spans = [(*_find(name, files), 1) for name in chosen] or [(path, 0, count) for path in files]
    left = count
    for path, skip, limit in spans:
        number = skip
        try:
            for _, batch in record_files.read_record_files(path, limit if chosen else left, skip):
                for record in batch:
                    yield show_record(f"{path}:{number}", record, tokens, width=width, color=color)
                    number += 1
        except record_files.DamagedRecordError as error:
            yield f"{path}:{number}  {error.text}"
            continue
        if chosen and number == skip:
            raise DataError(
                f"{path} has no record {skip}: it ends before. Records are counted from 0."
            )
        left -= number - skip
        if not chosen and left <= 0:
            return


def _find(name: str, files: Sequence[str]) -> tuple[str, int]:
    file, _, number = name.strip().rpartition(":")
    matches = [path for path in files if file in (path, path.rsplit("/", 1)[-1])] if file else files
    if not number.isascii() or not number.isdigit() or not matches:
        raise DataError(
            f"There is no record {name!r} to show. Give its number, counted from 0 in the first"
            f" file, or FILE:NUMBER, where the file is one of those named, such as {files[0]}:0."
        )
    return matches[0], int(number)


def show_record(
    name: str,
    record: bytes,
    tokens: Sequence[str] | None = None,
    *,
    width: int = WIDTH,
    color: bool = False,
) -> str:
    """A serialized record, which may be damaged, as lines: its name, what it is, its segments."""
    values, problem = schema.decode_records(record)
    if problem is None:
        specials = inspection.InspectedTokens.from_tokens(tokens) if tokens else None
        rows = {feature: value[None] for feature, value in values.items()}
        problem = inspection.record_problems(rows, specials).get(0)
    lines = [f"{name}  {_heading(values)}".rstrip()]
    if problem:
        lines.append(_wrap(f"{_INDENT}Damaged: it {problem}", width))
    segments = record_segments(values, tokens)
    lines += [
        _wrap(f"{_INDENT[:2]}{letter}  {text}", width)
        for letter, text in zip("AB", segments, strict=False)
    ]
    return _MARKED.sub("\x1b[1;33m\\1\x1b[0m" if color else r"\1", "\n".join(lines)).replace(
        _BLANK, " "
    )


def _wrap(line: str, width: int) -> str:
    return textwrap.fill(
        line,
        width,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def _heading(values: dict[str, np.ndarray]) -> str:
    parts = []
    if "input_mask" in values:
        mask = values["input_mask"]
        parts.append(f"{int((mask != 0).sum()):,} of {len(mask):,} pieces")
    if "masked_lm_weights" in values:
        number = int((values["masked_lm_weights"] != 0).sum())
        parts.append(f"{number} prediction{'s' * (number != 1)}")
    elif values:
        parts.append("not masked")
    label = values.get("next_sentence_labels", np.zeros(0))
    if len(label) == 1 and not np.any(values.get("segment_ids", 0)):
        parts.append("one segment")
    elif len(label) == 1:
        words = {0: "B follows A", 1: "B is random"}
        parts.append(f"{words.get(int(label[0]), 'no such label')} (label {label[0]})")
    return ", ".join(parts)


def record_segments(
    values: dict[str, np.ndarray], tokens: Sequence[str] | None = None
) -> list[str]:
    """The text of each segment, without [CLS], the last [SEP] of a segment and the padding.

    Args:
        values: Features of one record, [length] each. Any may be absent or shorter than it should
            be.
        tokens: The vocabulary; without it the ids are shown. An id outside of it is shown as <id>.

    Returns:
        One text, or two where there is a second segment; none without input_ids.
    """
    if "input_ids" not in values:
        return []
    ids = values["input_ids"]
    mask, in_b = np.ones(len(ids), bool), np.zeros(len(ids), bool)
    for marks, name in ((mask, "input_mask"), (in_b, "segment_ids")):
        known = values.get(name, np.zeros(0))[: len(ids)]
        marks[: len(known)] = known != 0
    labels = _labels(values)
    special = vocabulary.token_ids(tokens) if tokens else {}
    segments = []
    for member in (mask & ~in_b, mask & in_b):
        places = np.flatnonzero(member).tolist()
        if places and places[0] == 0 and 0 not in labels:
            places = places[1:]
        # Without a vocabulary the last one is [SEP] by its place.
        end = special.get(vocabulary.SEP, ids[places[-1]]) if places else None
        if places and ids[places[-1]] == end and places[-1] not in labels:
            places = places[:-1]
        if member.any():
            pieces = [(int(ids[i]), labels.get(i)) for i in places]
            segments.append(_join(pieces, tokens, special))
    return segments


def _labels(values: dict[str, np.ndarray]) -> dict[int, int]:
    """Place → label of the predictions."""
    columns = [values.get(f"masked_lm_{name}") for name in ("positions", "ids", "weights")]
    if any(column is None for column in columns):
        return {}
    return {int(at): int(label) for at, label, weight in zip(*columns, strict=False) if weight}


def _join(
    pieces: list[tuple[int, int | None]], tokens: Sequence[str] | None, special: dict[str, int]
) -> str:
    """Args: pieces: (what stands there, the label or None)."""

    def name(index: int) -> str:
        if tokens is None:
            return str(index)
        return tokens[index] if 0 <= index < len(tokens) and tokens[index] else f"<{index}>"

    text = ""
    for index, label in pieces:
        shown = name(index)
        original = shown if label is None else name(label)
        if label is not None:
            if index == label:
                mark = f"[kept: {shown}]"
            elif tokens is None or index == special[vocabulary.MASK]:
                mark = f"[{shown.strip('[]')}→{original}]"
            else:
                mark = f"[random: {shown}→{original}]"
            shown = _BEGIN + mark.replace(" ", _BLANK) + _END
        joined = bool(text) and original.startswith(vocabulary.CONTINUATION)
        if joined and label is None:
            shown = shown.removeprefix(vocabulary.CONTINUATION)
        text += shown if joined or not text else f" {shown}"
    return text
