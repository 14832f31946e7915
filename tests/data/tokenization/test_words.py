"""Words between white space and the pieces in them, against plain Python."""

import itertools
import random
import unicodedata

import tensorflow as tf

from data.tokenization import Tokenizer
from data.tokenization.words import separated_words

PIECES = [*"abcdef", "##a", "##b", "##c", "é", "漢", "."]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u1680", "\u2009", "\u2028", "\u202f", "\u3000"]
PARTS = [
    "a",
    "abc",
    "é",
    "e\u0301",
    "漢漢",
    ".",
    "x",
    "\u200b",
    "\x0b",
    "\x1c",
    "😀",
    "a.b",
    "\ufeff",
]


def is_space(character: str) -> bool:
    return character in "\t\n\r" or unicodedata.category(character) in ("Zs", "Zl", "Zp")


def words_of(text: str) -> list[tuple[int, int]]:
    """In characters."""
    found, begin = [], None
    for place, character in enumerate([*text, " "]):
        if is_space(character):
            if begin is not None:
                found.append((begin, place))
            begin = None
        elif begin is None:
            begin = place
    return found


def characters(text: str, place: int) -> int:
    return len(text.encode()[:place].decode())


def test_against_python():
    draw = random.Random(3)
    texts = ["", " ", "\u3000", "a", " a b ", "\u200b \u200b"]
    texts += [
        "".join(draw.choice([*SPACES, "", ""]) + draw.choice(PARTS) for _ in range(size))
        for size in range(60)
    ]
    tokenizer = Tokenizer.from_vocab(VOCAB)
    pieces = tokenizer.tokenize_with_offsets(texts)
    got = separated_words(tf.constant(texts), pieces.starts)
    pieceless = 0
    for row, text in enumerate(texts):
        words = words_of(text)
        spans = zip(got.starts[row].numpy(), got.ends[row].numpy(), strict=True)
        assert [(characters(text, a), characters(text, b)) for a, b in spans] == words
        starts = [characters(text, start) for start in pieces.starts[row].numpy()]
        expected = [
            next(n for n, (begin, end) in enumerate(words) if begin <= start < end)
            for start in starts
        ]
        assert got.numbers[row].numpy().tolist() == expected
        pieceless += len(words) > len(set(expected))
    assert pieceless > 10
    # Exactly the tokenizer's own borders: every word on its own has the same pieces.
    for row, text in enumerate(texts):
        alone = [tokenizer.tokenize(text[a:b]).numpy().tolist() for a, b in words_of(text)]
        assert [*itertools.chain(*alone)] == pieces.ids[row].numpy().tolist()


def test_no_texts_and_broken_bytes():
    empty = tf.ragged.constant([], tf.int32, ragged_rank=1)
    assert separated_words(tf.constant([], tf.string), empty).starts.nrows() == 0
    texts = tf.constant([b"\xff a\xc2", b"\xe3\x80 \xa0b"])
    tokenizer = Tokenizer.from_vocab(VOCAB)
    pieces = tokenizer.tokenize_with_offsets(texts)
    got = separated_words(texts, pieces.starts)
    assert got.starts.to_list() == [[0, 2], [0, 3]]
    assert got.numbers.to_list() == [[1], [1]]
