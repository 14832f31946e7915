"""Windows over contexts against the original's rules, written out piece by piece."""

import random

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.tasks.questions.windows import check_question_lengths, make_windows
from data.tokenization import Tokenizer

WORDS = [*"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"), "漢", "é", "ᄒ", "##ᅡ", "##ᆫ", "?"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


def spans_of(length: int, most: int, stride: int) -> list[tuple[int, int]]:
    """(begin, size) of each window: the original's loop, but at least one window."""
    spans = []
    start = 0
    while start < length or not spans:
        size = min(length - start, most)
        spans.append((start, size))
        if start + size == length:
            break
        start += min(size, stride)
    return spans


def owner(spans: list[tuple[int, int]], piece: int) -> int:
    """The window that gives a piece the most context; the measure in hundredths."""
    best, best_measure = -1, -1
    for number, (begin, size) in enumerate(spans):
        if begin <= piece < begin + size:
            left, right = piece - begin, begin + size - 1 - piece
            measure = 100 * min(left, right) + size
            if measure > best_measure:
                best, best_measure = number, measure
    return best


def checked(tokenizer, questions, contexts, longest, stride, most_query):
    """Windows as NumPy after comparing them with the rules; the number of rows per question."""
    settings = {
        "max_seq_length": longest,
        "doc_stride": stride,
        "max_query_length": most_query,
    }
    made = make_windows(tokenizer, tf.constant(questions), tf.constant(contexts), **settings)
    row, counts = 0, []
    input_ids = made.input_ids.to_list()
    ranges = made.start_range.numpy()
    for number, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        query = tokenizer.tokenize(question).numpy().tolist()[:most_query]
        pieces = tokenizer.tokenize(context).numpy().tolist()
        first = len(query) + 2
        spans = spans_of(len(pieces), longest - first - 1, stride)
        counts.append(len(spans))
        owners = [owner(spans, piece) for piece in range(len(pieces))]
        got = [-1] * len(pieces)
        for window, (begin, size) in enumerate(spans):
            ids = [tokenizer.cls_id, *query, tokenizer.sep_id]
            ids += [*pieces[begin : begin + size], tokenizer.sep_id]
            assert input_ids[row] == ids
            assert made.first_lengths[row] == first
            assert made.begins[row] == begin
            start, end = ranges[row] - first
            assert 0 <= start <= end <= size
            for place in range(start, end):
                assert got[begin + place] == -1, "a piece counts in two rows"
                got[begin + place] = window
            row += 1
        assert got == owners, (len(pieces), spans)
        assert made.ids.to_list()[number] == pieces
    assert made.counts.numpy().tolist() == counts
    assert row == len(input_ids)
    return made, counts


@pytest.mark.parametrize(
    ("longest", "stride", "most_query"),
    [(12, 3, 4), (12, 1, 4), (20, 2, 3), (10, 100, 3), (8, 4, 4), (5, 1, 1), (24, 7, 6)],
)
def test_the_originals_windows(tokenizer, longest, stride, most_query):
    draw = random.Random(longest * 100 + stride)
    questions, contexts = [], []
    for length in [*range(30), *(draw.randrange(30, 60) for _ in range(8))]:
        questions.append("".join(draw.choices("abc? ", k=draw.randrange(0, 12))))
        contexts.append(" ".join(draw.choices([*"abcdefgh", "漢", "zz"], k=length)))
    _, counts = checked(tokenizer, questions, contexts, longest, stride, most_query)
    assert counts[0] == 1 and max(counts) > 2


def test_a_last_window_hardly_further_than_the_one_before(tokenizer):
    """0.01 · length decides then: the last row may have no more than the pieces of its own."""
    body = 381 - 1
    lengths = [body, *(body + 128 * windows + more for windows in (0, 1) for more in (1, 2, 3))]
    lengths += [body + 127, body + 128]
    contexts = ["a " * length for length in lengths]
    made, _ = checked(tokenizer, ["b"] * len(lengths), contexts, 384, 128, 64)
    assert np.diff(made.start_range.numpy()[2]) == 1  # of 381 pieces in two windows
    # Differences of lengths by 100 and 200: measures that are equal.
    lengths = [302 + more for more in range(1, 6)] + [302 + 100, 302 + 200, 303 + 200]
    contexts = ["a " * length for length in lengths]
    for stride in (101, 201, 202, 203, 302):
        checked(tokenizer, [""] * len(lengths), contexts, 305, stride, 4)


def test_nothing_to_read(tokenizer):
    contexts = ["", " \u200b\u0301 ", "a"]
    made, counts = checked(tokenizer, ["a b", "", ""], contexts, 12, 4, 4)
    assert counts == [1, 1, 1]
    assert made.start_range.numpy().tolist() == [[4, 4], [2, 2], [2, 3]]
    assert made.starts.to_list() == [[], [], [0]]
    none = make_windows(
        tokenizer,
        tf.constant([], tf.string),
        tf.constant([], tf.string),
        max_seq_length=12,
        doc_stride=4,
        max_query_length=4,
    )
    assert none.input_ids.to_list() == [] and none.start_range.shape == (0, 2)


def test_pieces_are_slices_of_the_source(tokenizer):
    contexts = ["ab é漢 😀 b", "x\u0301 한 a", "e\u0301a\u00a0b\u200bc?", ""]
    made, _ = checked(tokenizer, ["a", "漢 ?", "", "a"], contexts, 12, 2, 3)
    for number, context in enumerate(contexts):
        data = context.encode()
        places = (made.starts, made.ends, made.byte_starts, made.byte_ends, made.ids)
        tokens = []
        for start, end, byte_start, byte_end, piece in zip(
            *(ragged.to_list()[number] for ragged in places), strict=True
        ):
            text = context[start:end]
            assert text and data[byte_start:byte_end].decode() == text
            tokens.append((VOCAB[piece], text))
        if number == 0:
            assert tokens == [
                *(("a", "a"), ("##b", "b"), ("e", "é"), ("漢", "漢")),
                *(("[UNK]", "😀"), ("b", "b")),
            ]
        if number == 1:
            assert tokens[1:] == [("ᄒ", "한"), ("##ᅡ", "한"), ("##ᆫ", "한"), ("a", "a")]


def test_100_000_words(tokenizer):
    draw = random.Random(1)
    context = " ".join(draw.choices("abcdefgh", k=100_000))
    made = make_windows(
        tokenizer,
        tf.constant(["a b c"]),
        tf.constant([context]),
        max_seq_length=384,
        doc_stride=128,
        max_query_length=64,
    )
    spans = spans_of(100_000, 378, 128)
    assert made.counts.numpy().tolist() == [len(spans)]
    assert list(zip(made.begins.numpy(), made.input_ids.row_lengths() - 6, strict=True)) == spans
    covered = np.diff(made.start_range.numpy()).sum()
    assert covered == 100_000


@pytest.mark.parametrize(
    ("lengths", "told"),
    [((67, 64, 128), "68"), ((384, 0, 128), "max_query_length 0"), ((384, 64, 0), "doc_stride 0")],
)
def test_lengths_that_leave_no_room(lengths, told):
    with pytest.raises(DataError, match=told):
        check_question_lengths(*lengths)
    check_question_lengths(68, 64, 1)
