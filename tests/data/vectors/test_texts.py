"""Lines to rows and back, whatever portions they are read in."""

import random
import re

import numpy as np
import pytest

from data.errors import DataError
from data.tokenization import Tokenizer
from data.tokenization.inputs import build_inputs
from data.vectors import texts as feature_extraction
from data.vectors.texts import VectorTextSettings, _pooled_words, _split_pair, read_vector_texts

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##a", "##b", "##c", "漢", "."]
LIMIT = 12
WORD = r"[^ \t\r\n\u3000\u2028]+"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    draw = random.Random(1)
    words = ["a", "abc", "ab.c", "é", "漢漢", "x", "\u200b", "\x0b", "ba"]

    def text(most):
        size = draw.randrange(most)
        return draw.choice(["", " ", "\u3000"]) + " ".join(draw.choices(words, k=size))

    some = ["", "  ", "|||", "a ||| b ||| c", "a |||", " ||| b", "a ||| \u200b", "\u200b ||| a"]
    some += [text(12) for _ in range(40)]
    return [*some, *(f"{text(9)} ||| {text(9)}" for _ in range(40)), "\u2028a\u2028", "a\r"]


@pytest.fixture
def path(tmp_path, lines):
    file = tmp_path / "input.txt"
    file.write_bytes("\n".join(lines).encode() + b"\n")
    return str(file)


def original_pair(line: str) -> tuple[str, str]:
    """As the original reads a line."""
    line = line.strip()
    match = re.match(r"^(.*) \|\|\| (.*)$", line)
    return (match.group(1), match.group(2)) if match else (line, "")


def test_pairs(lines):
    for line in lines:
        text_a, at_a, text_b, at_b = _split_pair(line)
        assert (text_a, text_b) == original_pair(line)
        assert line[at_a : at_a + len(text_a)] == text_a
        assert line[at_b : at_b + len(text_b)] == text_b
    assert _split_pair("a ||| b ||| c")[0] == "a ||| b"


@pytest.mark.parametrize("words", [None, "first"])
def test_rows_are_the_classifier_s(tokenizer, lines, path, words):
    chunks = list(read_vector_texts(path, tokenizer, VectorTextSettings(LIMIT, 0, words)))
    assert len(chunks) == 1 and len(chunks[0]) == len(lines)
    features = chunks[0].features
    pairs = [original_pair(line) for line in lines]
    texts = [[pair[side] for pair in pairs] for side in (0, 1)]
    wanted = {k: v.numpy() for k, v in build_inputs(tokenizer, *texts, LIMIT).items()}
    for row in range(len(lines)):
        ids = features.ids[slice(*features.splits[row : row + 2])]
        size = wanted["input_mask"][row].sum()
        assert ids.tolist() == wanted["input_ids"][row, :size].tolist()
        assert size - features.first_lengths[row] == wanted["segment_ids"][row].sum()


def every_row(path, tokenizer, settings, sizes=None):
    """All rows; a piece's vector is its number among all pieces, twice in two layers."""
    found, before = [], 0
    sizes = [] if sizes is None else sizes
    for chunk in read_vector_texts(path, tokenizer, settings):
        pieces = len(chunk.features.ids)
        numbers = np.arange(before, before + pieces, dtype=np.float32)
        vectors = numbers[:, None, None] + np.zeros((1, 2, 2), np.float32)
        found += chunk.rows(vectors)
        before += pieces
        sizes.append(pieces)
    return found


@pytest.mark.parametrize(
    ("words", "portion"), [(None, (50, 30)), ("max", (7, 0)), ("mean", (4096, 25))]
)
def test_portions_change_nothing(tokenizer, lines, path, monkeypatch, words, portion):
    whole = every_row(path, tokenizer, VectorTextSettings(LIMIT, 0, words))
    monkeypatch.setattr(feature_extraction, "_LINES_AT_ONCE", portion[0])
    settings = VectorTextSettings(LIMIT, portion[1], words)
    sizes = []
    some = every_row(path, tokenizer, settings, sizes)
    assert len(sizes) > 1 and (not portion[1] or max(sizes) <= portion[1])
    assert [row.index for row in some] == [*range(len(lines))] == [row.index for row in whole]
    for one, other in zip(some, whole, strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_array_equal(one.vectors, other.vectors)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.spans, other.spans)


def test_long_lines_make_smaller_portions(tokenizer, path, monkeypatch):
    monkeypatch.setattr(feature_extraction, "_CHARACTERS_AT_ONCE", 100)
    assert len(list(read_vector_texts(path, tokenizer, VectorTextSettings(LIMIT)))) > 5


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_words(tokenizer, lines, path, pooling):
    """Words and their pieces by another route: every word tokenised on its own."""
    rows = every_row(path, tokenizer, VectorTextSettings(LIMIT, 0, pooling))
    pieces = every_row(path, tokenizer, VectorTextSettings(LIMIT))
    found = {word for line in lines for word in re.findall(WORD, line)}
    size_of = dict(zip(found, tokenizer.tokenize([*found]).row_lengths().numpy(), strict=True))
    pieceless = cut = 0
    for line, row, of_pieces in zip(lines, rows, pieces, strict=True):
        # How many pieces of A and of B are in the row.
        tokens = of_pieces.tokens[1:-1]
        border = tokens.index("[SEP]") if "[SEP]" in tokens else len(tokens)
        left = [border, len(tokens) - border - 1]
        numbers = iter(of_pieces.vectors[1:, 0, 0])
        expected = []
        text_a, at_a, text_b, at_b = _split_pair(line)
        for side, (text, at) in enumerate([(text_a, at_a), (text_b, at_b)]):
            for match in re.finditer(WORD, text):
                size = size_of[match[0]]
                own = [next(numbers) for _ in range(max(min(size, left[side]), 0))]
                left[side] -= size
                pieceless, cut = pieceless + (size == 0), cut + (len(own) < size)
                if own:
                    reduced = {"first": own[0], "mean": np.mean(own), "max": max(own)}[pooling]
                    expected.append((match[0], at + match.start(), at + match.end(), reduced))
            next(numbers, None)  # [SEP]
        assert row.tokens == [word for word, *_ in expected]
        assert row.spans.tolist() == [[begin, end] for _, begin, end, _ in expected]
        assert [line[begin:end] for begin, end in row.spans] == row.tokens
        np.testing.assert_allclose(row.vectors[:, 1, 1], [value for *_, value in expected])
    assert pieceless > 20 and cut > 20


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_words_of_length_one(tokenizer, tmp_path, pooling):
    """Of the words' vectors as they are without, layer by layer; one of zeros stays."""
    (tmp_path / "lines").write_text("abc ab a\n")
    vectors = np.random.default_rng(0).normal(size=(8, 2, 3)).astype(np.float32)
    vectors[6] = 0
    rows = []
    for normalize in (False, True):
        settings = VectorTextSettings(LIMIT, 0, pooling, normalize)
        chunk = next(read_vector_texts(str(tmp_path / "lines"), tokenizer, settings))
        rows += [row.vectors for row in chunk.rows(vectors)]
    plain, scaled = rows
    lengths = np.linalg.norm(plain, axis=-1, keepdims=True)
    np.testing.assert_allclose(scaled * lengths, plain, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(scaled[:2], axis=-1), 1, rtol=1e-6)
    assert not scaled[2].any()


def test_pooled_words_without_words():
    assert _pooled_words(np.zeros((0, 2, 3)), np.zeros(0, int), "mean").shape == (0, 2, 3)


def test_whole_lines(tokenizer, lines, path):
    chunk = next(read_vector_texts(path, tokenizer, VectorTextSettings(LIMIT)))
    vectors = np.arange(len(lines), dtype=np.float32).reshape(-1, 1, 1)
    rows = list(chunk.rows(vectors))
    assert [row.vectors.item() for row in rows] == [*range(len(lines))]
    assert {row.tokens for row in rows} == {None}


def test_bad_input(tokenizer, tmp_path):
    def read(path, *settings):
        return list(read_vector_texts(str(path), tokenizer, VectorTextSettings(*settings)))

    with pytest.raises(DataError, match="absent"):
        read(tmp_path / "absent", LIMIT)
    (tmp_path / "latin1").write_bytes(b"a\nb\nna\xefve\n")
    with pytest.raises(DataError, match="latin1:3"):
        read(tmp_path / "latin1", LIMIT)
    (tmp_path / "empty").write_bytes(b"")
    assert read(tmp_path / "empty", LIMIT) == []
    with pytest.raises(DataError, match="at least 3"):
        VectorTextSettings(2)
    with pytest.raises(DataError, match="sum"):
        VectorTextSettings(LIMIT, 0, "sum")
