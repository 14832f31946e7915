"""Sentence splitting: hard cases, and against TF Text's breaker on the same text."""

import pytest

from data.pretraining.corpus.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith went to Washington, D.C. on Jan. 5th.", "He met Mr. J. F. Kennedy."],
        ["See Fig. 3 (e.g. the U.S. case).", "It costs 3.5 dollars!", "Really?", "Yes."],
        ['He said "Stop."', "Then he left.", "It was c. 1900."],
        ["She moved to the U.S. with him.", "He stayed in the U.S.", "The war began."],
        ["他说。", "我们走吧！", "好吗？", "是的。"],
        ["「你好。」", "他说「好。」。", "真的吗？！", "好。。。", "再见。"],
        ["पहला वाक्य।", "दूसरा वाक्य।"],
        ["Apple Inc. was founded in 1976.", "It grew.", "So did Acme Ltd.", "The end came."],
        ["Wait… what?", "No!", "(He left.)", "Nobody knew."],
        ["no capital letters. so no boundary"],
        ["See No. 5, vol. 3, pp. 20 ff. of it.", "3 men came."],
    ],
)
def test_hard_cases(sentences):
    joiner = "" if sentences[0].endswith(("。", "」")) else " "
    assert split_sentences(joiner.join(sentences)) == sentences


def test_nothing_is_lost_and_nothing_blank():
    text = "  One. Two!  Three?\tFour  …  Five.  "
    parts = split_sentences(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(p == p.strip() and p for p in parts)
    assert split_sentences("") == [] and split_sentences(" \t ") == []


def test_marks_in_long_rows_are_gone_through_once():
    # Tried from each mark anew, a table of contents' leaders took hours.
    for mark in ".。।":
        assert split_sentences(mark * 1_000_000 + "5 x") in (
            [mark * 1_000_000 + "5 x"],
            [mark * 1_000_000, "5 x"],
        )
