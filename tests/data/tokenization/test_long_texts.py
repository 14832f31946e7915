"""Parts of long texts and windows over them, against plain Python."""

import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs, inputs, long_texts
from data.tokenization.inputs import pack_inputs, pack_piece_windows

CLS, SEP = 2, 3
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


def random_pieces(number: int, longest: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [
        [draw.randrange(5, 1000) for _ in range(draw.choice([0, 1, 2, draw.randrange(longest)]))]
        for _ in range(number)
    ]


def ragged(pieces: list[list[int]]) -> tf.RaggedTensor:
    return tf.ragged.constant(pieces, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)


def joined(a: list[int], b: list[int]) -> tuple[list[int], list[int]]:
    first = [CLS, *a, SEP]
    second = [*b, SEP] if b else []
    return first + second, [0] * len(first) + [1] * len(second)


def part(pieces: list[int], size: int, long_text: str) -> list[int]:
    if len(pieces) <= size or long_text == "head":
        return pieces[:size]
    if long_text == "tail":
        return pieces[len(pieces) - size :]
    head = (size + 3) // 4
    return pieces[:head] + pieces[len(pieces) - (size - head) :]


def truncated(a, b, max_seq_length, long_text):
    """The original's loop decides how many pieces stay."""
    limit = max_seq_length - (3 if b else 2)
    keep_a, keep_b = len(a), len(b)
    while keep_a + keep_b > limit:
        if keep_a > keep_b:
            keep_a -= 1
        else:
            keep_b -= 1
    return joined(part(a, keep_a, long_text), part(b, keep_b, long_text))


def windows(a, b, max_seq_length, stride, max_windows):
    limit = max_seq_length - (3 if b else 2)
    moving, fixed = (a, b) if len(a) > len(b) else (b, a)
    fixed = fixed[: limit // 2]
    body = limit - len(fixed)
    step = min(stride or body // 2 or 1, body)
    bodies = [moving[:body]]
    while (len(bodies) - 1) * step + body < len(moving) and len(bodies) < max_windows:
        begin = len(bodies) * step
        bodies.append(moving[begin : begin + body])
    return [joined(*((x, fixed) if len(a) > len(b) else (fixed, x))) for x in bodies]


@pytest.mark.parametrize("long_text", ["head", "tail", "head_tail"])
@pytest.mark.parametrize("max_seq_length", [4, 11, 24])
def test_parts(tokenizer, max_seq_length, long_text):
    texts_a, texts_b = random_pieces(150, 40, 1), random_pieces(150, 40, 2)
    options = {"max_seq_length": max_seq_length, "long_text": long_text}
    ids, segments = pack_inputs(tokenizer, ragged(texts_a), ragged(texts_b), **options)
    wanted = [truncated(a, b, **options) for a, b in zip(texts_a, texts_b, strict=True)]
    assert ids.to_list() == [row for row, _ in wanted]
    assert segments.to_list() == [row for _, row in wanted]
    ids, segments = pack_inputs(tokenizer, ragged(texts_a), **options)
    assert ids.to_list() == [truncated(a, [], **options)[0] for a in texts_a]
    assert not np.any(segments.values)


def test_head_tail_as_published(tokenizer):
    """Sun et al. 2019: the first 128 and the last 382 pieces of 512 less two."""
    text = list(range(10, 1010))
    ids, _ = pack_inputs(tokenizer, ragged([text]), max_seq_length=512, long_text="head_tail")
    assert ids.to_list() == [[CLS, *text[:128], *text[-382:], SEP]]


@pytest.mark.parametrize("stride", [0, 1, 5])
@pytest.mark.parametrize("max_seq_length", [8, 11, 24])
@pytest.mark.parametrize("max_windows", [3, 1000])
def test_windows(tokenizer, max_seq_length, stride, max_windows):
    texts_a, texts_b = random_pieces(100, 60, 3), random_pieces(100, 60, 4)
    texts_a[0], texts_b[0] = list(range(10, 40)), list(range(50, 80))  # equally long
    texts_a[1] = texts_b[1] = []
    options = {"max_seq_length": max_seq_length, "stride": stride, "max_windows": max_windows}
    for seconds in (texts_b, None):
        pieces_b = None if seconds is None else ragged(seconds)
        ids, segments, counts = pack_piece_windows(tokenizer, ragged(texts_a), pieces_b, **options)
        assert counts.dtype == tf.int64
        pairs = list(zip(texts_a, seconds or [[]] * len(texts_a), strict=True))
        wanted = [windows(a, b, **options) for a, b in pairs]
        assert counts.numpy().tolist() == [len(rows) for rows in wanted]
        assert ids.to_list() == [row for rows in wanted for row, _ in rows]
        assert segments.to_list() == [row for rows in wanted for _, row in rows]
        assert max(map(len, ids.to_list())) <= max_seq_length
        assert counts.numpy().max() <= max_windows
        if max_windows > 100:
            check_nothing_is_skipped(ids.to_list(), counts.numpy(), pairs)


def check_nothing_is_skipped(rows, counts, pairs):
    """Every piece of the longer text is in a window; no window is a part of the one before."""
    ends = np.cumsum(counts)
    for (a, b), begin, end in zip(pairs, ends - counts, ends, strict=True):
        longer = a if len(a) > len(b) else b
        seen = set().union(*(set(row) for row in rows[begin:end]))
        assert set(longer) <= seen
        for row, after in zip(rows[begin:end], rows[begin + 1 : end], strict=False):
            assert row[-2] == after[-2] or row != after


def test_model_inputs_with_windows(tokenizer):
    """[N, R, T]: what one text has more rows than another is empty."""
    texts = ["a b c d e f g h", "a", ""]
    inputs = build_inputs(tokenizer, texts, max_seq_length=6, long_text="windows", window_stride=2)
    ids = [[VOCAB.index(letter) for letter in text.split()] for text in texts]
    wanted = np.zeros([3, 3, 6], int)
    for number in range(3):
        row = [CLS, *ids[0][2 * number : 2 * number + 4], SEP]
        wanted[0, number] = row
    wanted[1, 0, :3] = [CLS, *ids[1], SEP]
    wanted[2, 0, :2] = [CLS, SEP]
    assert inputs["input_ids"].numpy().tolist() == wanted.tolist()
    assert inputs["input_mask"].numpy().tolist() == (wanted > 0).astype(int).tolist()
    assert not inputs["segment_ids"].numpy().any()
    one = build_inputs(
        tokenizer, texts[0], max_seq_length=6, long_text="windows", window_stride=2, max_windows=2
    )
    assert one["input_ids"].numpy().tolist() == wanted[0, :2].tolist()


def test_windows_of_short_texts_beside_a_long_one_are_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(inputs, "MOST_WINDOW_PLACES", 20 * 8 * 3)
    make = functools.partial(
        build_inputs, tokenizer, max_seq_length=8, long_text="windows", window_stride=4
    )
    short = ["a b"] * 19
    assert make([*short, "a b " * 6])["input_ids"].shape == (20, 3, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)windows.*20.*are filled up to"):
        make([*short, "a b " * 8])


def test_inputs_of_choices(tokenizer):
    """Each choice is the second text of a pair; an empty one is no row at all."""
    contexts, choices = ["a b", "c"], [["d", "e f g h a b c", "g"], ["h", "a a", ""]]
    built = build_choice_inputs(tokenizer, contexts, choices, 8)
    for number, context in enumerate(contexts):
        wanted = build_inputs(tokenizer, [context] * 3, choices[number], 8)
        if number == 1:
            wanted = {name: tf.concat([rows[:2], [[0] * 8]], 0) for name, rows in wanted.items()}
        for name, rows in wanted.items():
            assert built[name][number].numpy().tolist() == rows.numpy().tolist()
    long = "a b c d e f g h a c"
    for long_text in ("head", "tail", "head_tail"):
        built = build_choice_inputs(tokenizer, [long], [["b c", long]], 9, long_text=long_text)
        wanted = build_inputs(tokenizer, [long] * 2, ["b c", long], 9, long_text=long_text)
        for name, rows in wanted.items():
            assert built[name][0].numpy().tolist() == rows.numpy().tolist()
    short = build_choice_inputs(tokenizer, ["a"], [["b", "c"]], 8, pad_to="longest")
    assert short["input_ids"].shape == (1, 2, 5)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None] * 2)])
    def nothing(contexts, numbers):
        return build_choice_inputs(tokenizer, contexts, tf.strings.as_string(numbers), 8)

    assert nothing(tf.constant([], tf.string), tf.zeros([0, 4]))["input_ids"].shape == (0, 4, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("middle", 0, 16), "'middle'.*head, tail, head_tail, windows"),
        (("windows", 14, 16), "stride is 14.*from 1 to 13"),
        (("windows", -1, 16), "stride is -1"),
        (("windows", 0, 16, 0), "max_windows is 0"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        long_texts.check_long_text(*arguments)
