"""The Unicode facts that the original's tokenization rests on, frozen at Unicode 14.0.

The original asks Python's `unicodedata`, so its tokens change with the Python version. Here the
table is a file, `unicode_14.txt`, so that every Python gives what the original gives on 3.11. It
is written by tests/data/tokenization/make_unicode_tables.py.
"""

import dataclasses
import functools
import pathlib
import unicodedata
from collections.abc import Iterable

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

Ranges = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class UnicodeTables:
    """Sets of code points as inclusive ranges, and what single characters become.

    Attributes:
        removed: Deleted before anything else: NUL, U+FFFD, Cc and Cf but for tab, LF and CR.
        space: Word separators: tab, LF, CR, Zs, and U+2028 and U+2029, on which Python's
            `str.split` splits although the original's own test does not know them.
        punctuation: ASCII that is neither letter, digit nor space, and categories P*.
        marks: Category Mn, deleted when accents are stripped.
        cased: Lu, Ll, Lt and the characters that Unicode calls cased beside them.
        case_ignorable: What the final-sigma rule looks past.
        lowered: {code point: `str.lower`} where that changes something.
        stripped: {code point: NFD without Mn} where that changes something and the code point is
            neither a mark nor a Hangul syllable.
    """

    removed: Ranges
    space: Ranges
    punctuation: Ranges
    marks: Ranges
    cased: Ranges
    case_ignorable: Ranges
    lowered: dict[int, str]
    stripped: dict[int, str]


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
        if name in ("lowered", "stripped"):
            pairs = (item.split(">") for item in items)
            fields[name] = {
                int(source, 16): "".join(chr(int(part, 16)) for part in target.split("+") if part)
                for source, target in pairs
            }
        else:
            ends = (item.split("-") for item in items)
            fields[name] = tuple((int(pair[0], 16), int(pair[-1], 16)) for pair in ends)
    return UnicodeTables(**fields)  # type: ignore[arg-type]
