"""Writes the table of `data.tokenization.unicode_tables`, from a Python that has Unicode 14.0:

python3.11 -m tests.data.tokenization.make_unicode_tables
"""

import dataclasses
import pathlib
import unicodedata
from collections.abc import Iterable

from data.tokenization.unicode_tables import (
    TABLE_FILE,
    UNICODE_VERSION,
    Ranges,
    UnicodeTables,
    strip_marks,
)

# WordBreak properties MidLetter, MidNumLet and Single_Quote: characters that `str.lower` looks
# past when it decides whether a Greek sigma ends a word. `unicodedata` does not carry them.
_MID_WORD = (
    "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"
)


def build_tables() -> UnicodeTables:
    """Computes the tables from the running Python, which has to carry Unicode 14.0."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise RuntimeError(
            f"This Python has Unicode {unicodedata.unidata_version}, the tables are Unicode "
            f"{UNICODE_VERSION}: run it under Python 3.11."
        )
    every = [chr(code) for code in range(0x110000)]
    category = {char: unicodedata.category(char) for char in every}

    def is_cased(char: str) -> bool:
        # Python offers no such test: a capital sigma turns final exactly after a cased
        # character that is not case-ignorable. Those that are both are never asked for.
        return f"{char}\u03a3".lower()[-1] == "\u03c2"

    def is_ignorable(char: str) -> bool:
        return category[char] in {"Mn", "Me", "Cf", "Lm", "Sk"} or char in _MID_WORD

    def ascii_punctuation(char: str) -> bool:
        return "!" <= char <= "~" and not char.isalnum()

    lowered = {ord(char): char.lower() for char in every if char != char.lower()}
    stripped = {}
    for char in every:
        target = strip_marks(char)
        hangul = 0xAC00 <= ord(char) <= 0xD7A3
        if target != char and category[char] not in {"Mn", "Cs"} and not hangul:
            stripped[ord(char)] = target
    return UnicodeTables(
        removed=_ranges(
            ord(char)
            for char in every
            if char == "\ufffd" or (category[char] in {"Cc", "Cf"} and char not in "\t\n\r")
        ),
        space=_ranges(
            ord(char) for char in every if char in "\t\n\r\u2028\u2029" or category[char] == "Zs"
        ),
        punctuation=_ranges(
            ord(char) for char in every if ascii_punctuation(char) or category[char][0] == "P"
        ),
        marks=_ranges(ord(char) for char in every if category[char] == "Mn"),
        cased=_ranges(ord(char) for char in every if is_cased(char)),
        case_ignorable=_ranges(ord(char) for char in every if is_ignorable(char)),
        lowered=lowered,
        stripped=stripped,
    )


def write_tables(tables: UnicodeTables, path: pathlib.Path) -> None:
    """Writes one line per field: name, then ranges or `source>target+target` in hexadecimal."""
    lines = [f"# Unicode {UNICODE_VERSION}; written by make_unicode_tables.py"]
    for field in dataclasses.fields(tables):
        value = getattr(tables, field.name)
        if field.name in ("lowered", "stripped"):
            items = [
                f"{source:X}>{'+'.join(f'{ord(char):X}' for char in target)}"
                for source, target in sorted(value.items())
            ]
        else:
            items = [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in value]
        lines.append(" ".join([field.name, *items]))
    path.write_text("\n".join(lines) + "\n")


def _ranges(codes: Iterable[int]) -> Ranges:
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return tuple((first, last) for first, last in ranges)


if __name__ == "__main__":
    write_tables(build_tables(), TABLE_FILE)
