"""Rows with the places of answers, decoded back to their texts."""

import logging as python_logging
import random

import numpy as np
import pytest

from data.batching import Batching, batches
from data.errors import DataError
from data.tasks.questions.rows import QuestionSettings, make_question_rows, training_question_rows
from data.tasks.questions.squad import Answer, Question
from data.tokenization import Tokenizer

WORDS = ["ab", "##c", *"abcdefgh", *(f"##{letter}" for letter in "abdefgh"), "漢", "ᄒ", "##ᅡ", "##ᆫ"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, ".", ","]
SETTINGS = QuestionSettings(16, 4, 5)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


def question(context: str, start: int, text: str, impossible: bool = False, asked="a b"):
    answers = () if impossible else (Answer(text, start),)
    return Question("x", asked, context, answers, impossible, f"f.json: {start}")


def of_words(draw: random.Random, words: int, impossible: bool = False) -> Question:
    """A context of random words, some of them the answer."""
    context, places = "", []
    for _ in range(words):
        word = draw.choice(["ab", "abc", "fed", "漢", "é", "e\u0301", "한", "😀", "x"])
        places.append((len(context), len(context) + len(word)))
        context += word + draw.choice([" ", " ", ", ", "\u00a0", "  "])
    first = draw.randrange(words)
    last = min(words - 1, first + draw.randrange(4))
    start, end = places[first][0], places[last][1]
    asked = "a " * draw.randrange(0, 9)
    return question(context, start, context[start:end], impossible, asked)


def decoded(rows, questions) -> list[list[str | None]]:
    """Text of each label, row by row of each question; None for 0, 0."""
    texts, row = [], 0
    for one, count in zip(questions, rows.counts, strict=True):
        texts.append([])
        for number in range(row, row + count):
            start, end = rows.features.label_ids[number]
            if (start, end) == (0, 0):
                texts[-1].append(None)
                continue
            length = rows.features.splits[number + 1] - rows.features.splits[number]
            assert rows.features.first_lengths[number] <= start <= end < length - 1
            begin, stop = rows.characters(*(np.array([n]) for n in (number, start, end)))
            texts[-1].append(one.context[begin[0] : stop[0]])
        row += count
    return texts


@pytest.mark.parametrize(
    "settings", [SETTINGS, QuestionSettings(11, 1, 5), QuestionSettings(12, 20, 3)]
)
def test_labels_decode_to_the_answers(tokenizer, settings):
    draw = random.Random(7)
    questions = [of_words(draw, draw.randrange(1, 30), n % 9 == 0) for n in range(140)]
    rows = make_question_rows(tokenizer, questions, settings, training=True)
    assert rows.features.label_ids.dtype == np.int32
    assert (rows.found == [not one.is_impossible for one in questions]).all()
    row = with_answer = 0
    for number, (one, texts) in enumerate(zip(questions, decoded(rows, questions), strict=True)):
        query = min(len(one.question.split()), settings.max_query_length)
        body = settings.max_seq_length - 3 - query
        part = slice(rows.splits[number], rows.splits[number + 1])
        starts, ends = rows.starts[part], rows.ends[part]
        inside = np.zeros(len(starts), bool)
        if one.answers:
            answer = one.answers[0]
            inside = (starts < answer.start + len(answer.text)) & (ends > answer.start)
        places = np.flatnonzero(inside)
        for window, text in enumerate(texts):
            begin = rows.offsets[row] + rows.features.first_lengths[row]
            assert begin == window * min(body, settings.doc_stride)
            holds = len(places) and places[0] >= begin and places[-1] < begin + body
            assert text == (answer.text if holds else None)
            with_answer += text is not None
            row += 1
    assert row == len(rows.offsets) and with_answer > 50

    # Without training there are no labels, and all else is the same.
    plain = make_question_rows(tokenizer, questions, settings, training=False)
    assert not plain.features.label_ids.any()
    for name in ("counts", "offsets", "splits", "starts", "ends"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(rows, name))
    np.testing.assert_array_equal(plain.features.ids, rows.features.ids)


@pytest.mark.parametrize(
    ("context", "text", "whole"),
    [
        ("fed abc.", "abc", "abc"),
        ("fed abc.", "ab", "ab"),  # its pieces are ab and ##c
        ("fed abc.", "bc", "abc"),  # its first piece is ab
        ("fed .abc d", " .", "."),
        ("a 한 b", "한", "한"),
        ("a e\u0301 b", "e", "e\u0301"),
        ("a zz b", "z", "zz"),  # unknown as a whole
    ],
)
def test_answers_within_words(tokenizer, context, text, whole):
    one = question(context, context.index(text), text)
    rows = make_question_rows(tokenizer, [one], SETTINGS, training=True)
    assert decoded(rows, [one]) == [[whole]]


def test_answers_without_pieces(tokenizer, caplog):
    nothing = [question("ab \u200b\u200b c", 3, "\u200b"), question("ab \u200b c", 2, " \u200b")]
    there = [question("ab c", 0, "ab"), question("ab", 0, "", impossible=True)]
    mixed = [nothing[0], there[0], nothing[1], there[1]]
    rows = make_question_rows(tokenizer, mixed, SETTINGS, training=True)
    assert rows.found.tolist() == [False, True, False, False]
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        kept = training_question_rows(tokenizer, mixed, SETTINGS)
    assert "2 of 4 questions" in caplog.text and "f.json: 3, f.json: 2" in caplog.text
    wanted = training_question_rows(tokenizer, there, SETTINGS)
    for name in ("ids", "splits", "first_lengths", "row_splits", "label_ids"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(wanted, name))
    assert kept.label_ids.tolist() == [[4, 4], [0, 0]]
    with pytest.raises(DataError, match=r"f.json: 3.*2 questions"):
        training_question_rows(tokenizer, nothing, SETTINGS)


def test_contexts_without_pieces(tokenizer):
    questions = [question(text, -1, "", impossible=True) for text in ("\u200b", "\u200b \u0301")]
    rows = make_question_rows(tokenizer, questions, SETTINGS, training=False)
    assert rows.counts.tolist() == [1, 1] and not len(rows.starts)
    zero = np.zeros((2, 3), np.int32)
    starts, ends = rows.characters(zero, zero, zero)
    assert not starts.any() and not ends.any() and starts.shape == ends.shape == (2, 3)
    # Among others they're one row each, which can't lead into their neighbours.
    mixed = make_question_rows(
        tokenizer, [questions[0], question("ab", 0, "ab")], SETTINGS, training=True
    )
    assert mixed.features.label_ids.tolist() == [[0, 0], [4, 4]]
    assert mixed.features.extra["start_range"].tolist() == [[4, 4], [4, 5]]


def test_batches_have_what_the_search_needs(tokenizer):
    draw = random.Random(3)
    rows = make_question_rows(
        tokenizer, [of_words(draw, 20) for _ in range(6)], SETTINGS, training=True
    )
    seen = 0
    for batch in batches(rows.features, Batching(5, (8, 16)), training=False):
        index = batch["index"].numpy()
        wanted = rows.features.label_ids, rows.features.extra["start_range"]
        for name, values in zip(("label_ids", "start_range"), wanted, strict=True):
            np.testing.assert_array_equal(batch[name], values[index])
        segments = batch["segment_ids"].numpy()
        assert segments.shape == batch["input_ids"].shape
        length = np.diff(rows.features.splits)[index]
        np.testing.assert_array_equal(segments.sum(1), length - rows.features.first_lengths[index])
        seen += len(index)
    assert seen == len(rows.features) > 10


def test_lengths_without_room_are_refused(tokenizer):
    with pytest.raises(DataError, match="max_seq_length is 8"):
        make_question_rows(
            tokenizer, [question("ab", 0, "ab")], QuestionSettings(8, 4, 5), training=False
        )
