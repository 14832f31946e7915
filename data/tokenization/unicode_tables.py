"""The Unicode facts that the original's tokenization rests on, frozen at Unicode 14.0.

The original asks Python's `unicodedata`, so its tokens change with the Python version. Here the
table is a file, `unicode_14.txt`, so that every Python gives what the original gives on 3.11.
The file is written by

    python3.11 -m data.tokenization.unicode_tables
"""

import dataclasses
import functools
import os
import pathlib
import unicodedata
from collections.abc import Iterable

from data.files import atomic

UNICODE_VERSION = "14.0.0"
TABLE_FILE = pathlib.Path(__file__).with_name("unicode_14.txt")

# The original's own list; neither kana, Hangul nor extensions F and later are in it.
CJK_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)

# WordBreak properties MidLetter, MidNumLet and Single_Quote: characters that `str.lower` looks
# past when it decides whether a Greek sigma ends a word. `unicodedata` does not carry them.
_MID_WORD = (
    "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"
)

Ranges = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class UnicodeTables:
    """Sets of code points as inclusive ranges, and the folding of single characters.

    Attributes:
        removed: Deleted before anything else: NUL, U+FFFD, Cc and Cf but for tab, LF and CR.
        space: Word separators: tab, LF, CR, Zs, and U+2028 and U+2029, on which Python's
            `str.split` splits although the original's own test does not know them.
        punctuation: ASCII that is neither letter, digit nor space, and categories P*.
        marks: Category Mn, deleted when lower-casing.
        cased: Lu, Ll, Lt and the characters that Unicode calls cased beside them.
        case_ignorable: What the final-sigma rule looks past.
        folded: {code point: `str.lower`, then NFD, then without Mn} where that changes something
            and the code point is not a Hangul syllable.
    """

    removed: Ranges
    space: Ranges
    punctuation: Ranges
    marks: Ranges
    cased: Ranges
    case_ignorable: Ranges
    folded: dict[int, str]


def code_points(ranges: Ranges) -> Iterable[int]:
    """Every code point of inclusive ranges, ascending."""
    for first, last in ranges:
        yield from range(first, last + 1)


def regex_class(ranges: Ranges) -> str:
    """The inside of an RE2 character class that matches exactly `ranges`."""
    return "".join(
        f"\\x{{{first:X}}}" + (f"-\\x{{{last:X}}}" if last > first else "")
        for first, last in ranges
    )


def strip_marks(text: str) -> str:
    """NFD without nonspacing marks, by the running Python's tables."""
    return "".join(
        char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn"
    )


@functools.lru_cache(maxsize=1)
def load_tables() -> UnicodeTables:
    """Reads `unicode_14.txt`."""
    fields: dict[str, object] = {}
    for line in TABLE_FILE.read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            continue
        name, *items = line.split(" ")
        if name == "folded":
            pairs = (item.split(">") for item in items)
            fields[name] = {
                int(source, 16): "".join(chr(int(part, 16)) for part in target.split("+") if part)
                for source, target in pairs
            }
        else:
            ends = (item.split("-") for item in items)
            fields[name] = tuple((int(pair[0], 16), int(pair[-1], 16)) for pair in ends)
    return UnicodeTables(**fields)  # type: ignore[arg-type]


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

    folded = {}
    for char in every:
        target = strip_marks(char.lower())
        hangul = 0xAC00 <= ord(char) <= 0xD7A3
        if target != char and category[char] not in {"Mn", "Cs"} and not hangul:
            folded[ord(char)] = target
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
        folded=folded,
    )


def write_tables(tables: UnicodeTables, path: os.PathLike) -> None:
    """Writes one line per field: name, then ranges or `source>target+target` in hexadecimal."""
    lines = [f"# Unicode {UNICODE_VERSION}; written by data/tokenization/unicode_tables.py"]
    for field in dataclasses.fields(tables):
        value = getattr(tables, field.name)
        if field.name == "folded":
            items = [
                f"{source:X}>{'+'.join(f'{ord(char):X}' for char in target)}"
                for source, target in sorted(value.items())
            ]
        else:
            items = [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in value]
        lines.append(" ".join([field.name, *items]))
    atomic.write_text(os.fspath(path), "\n".join(lines) + "\n")


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
