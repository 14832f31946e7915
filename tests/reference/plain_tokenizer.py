"""The original's tokenization in plain Python, one character at a time, from its description.

Nothing here is shared with the tokenizer that it is held against, and nothing is fast. It needs
the Unicode 14 tables of Python 3.11, which the tokenizer is made to equal.
"""

import unicodedata

CJK = [
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
]
HAS_UNICODE_14 = unicodedata.unidata_version == "14.0.0"
MAX_CHARS_PER_WORD = 200
UNK = "[UNK]"


def is_punctuation(char: str) -> bool:
    ascii_symbol = 33 <= ord(char) <= 126 and not char.isalnum()
    return ascii_symbol or unicodedata.category(char).startswith("P")


def is_cjk(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in CJK)


def clean(char: str) -> str:
    """What a character becomes before words are split: itself, nothing, or set apart by blanks."""
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    if char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf"):
        return ""
    return f" {char} " if is_cjk(char) else char


def strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def split_punctuation(word: str) -> list[str]:
    return "".join(f" {char} " if is_punctuation(char) else char for char in word).split()


def fold(word: str, lower: bool, strip: bool | None = None) -> str:
    """A word lower-cased, without accents, both or neither; `strip` None: as `lower`."""
    word = word.lower() if lower else word
    return strip_accents(word) if (lower if strip is None else strip) else word


def plain_words(text: str, lower: bool, strip: bool | None = None) -> list[str]:
    """The basic tokenization."""
    words = []
    for word in "".join(clean(char) for char in text).split():
        words += split_punctuation(fold(word, lower, strip))
    return words


def plain_pieces(word: str, vocab: dict[str, int]) -> list[str]:
    """Greedy longest match; one [UNK] for what can't be matched or is too long."""
    if len(word) > MAX_CHARS_PER_WORD:
        return [UNK]
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab:
                pieces.append(piece)
                start = end
                break
        else:
            return [UNK]
    return pieces


def plain_ids(
    text: str, vocab: dict[str, int], lower: bool, strip: bool | None = None
) -> list[int]:
    words = plain_words(text, lower, strip)
    return [vocab[piece] for word in words for piece in plain_pieces(word, vocab)]


def plain_spans(
    text: str, vocab: dict[str, int], lower: bool, strip: bool | None = None
) -> list[tuple[str, int, int]]:
    """(piece, first byte, byte behind the last) by following each character on its way.

    A span goes from the first byte of the character that the piece's first character came from to
    the end of that of its last, and where accents are stripped over the nonspacing marks directly
    behind.
    """
    strip = lower if strip is None else strip
    spans = []
    for word in _words_of_characters(text):
        for part in _parts_of_word(_normalized(word, lower, strip)):
            letters = "".join(char for char, _, _ in part)
            pieces = plain_pieces(letters, vocab)
            if pieces == [UNK]:
                spans.append((UNK, part[0][1], part[-1][2]))
                continue
            start = 0
            for piece in pieces:
                size = len(piece) - (2 if start else 0)
                spans.append((piece, part[start][1], part[start + size - 1][2]))
                start += size
    return spans


Character = tuple[str, int, int, int]  # itself, first byte, end, end with the marks behind it


def _words_of_characters(text: str) -> list[list[Character]]:
    """The words before lower-casing, every character with its place."""
    place, placed = 0, []
    for char in text:
        size = len(char.encode())
        placed.append((char, place, place + size))
        place += size
    words: list[list[Character]] = [[]]
    for number, (char, start, end) in enumerate(placed):
        marked = end
        for follower, _, follower_end in placed[number + 1 :]:
            if unicodedata.category(follower) != "Mn":
                break
            marked = follower_end
        cleaned = clean(char)
        if not cleaned:
            continue
        if not cleaned.split():
            words.append([])
        elif cleaned != char:
            words += [[(char, start, end, marked)], []]
        else:
            words[-1].append((char, start, end, marked))
    return [word for word in words if word]


def _normalized(word: list[Character], lower: bool, strip: bool) -> list[tuple[str, int, int]]:
    # Lower-casing looks at the whole word, for the final sigma; but only lengths of 1 depend on it.
    folded = fold("".join(char for char, *_ in word), lower, strip=False)
    done, made = 0, []
    for char, start, end, marked in word:
        size = len(fold(char, lower, strip=False))
        kept = fold(folded[done : done + size], False, strip)
        done += size
        for index, letter in enumerate(kept):
            last = strip and index + 1 == len(kept)
            made.append((letter, start, marked if last else end))
    assert done == len(folded)
    return made


def _parts_of_word(word: list[tuple[str, int, int]]) -> list[list[tuple[str, int, int]]]:
    parts: list[list[tuple[str, int, int]]] = [[]]
    for character in word:
        if is_punctuation(character[0]):
            parts += [[character], []]
        elif character[0].isspace():
            parts.append([])
        else:
            parts[-1].append(character)
    return [part for part in parts if part]
