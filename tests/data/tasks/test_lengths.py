"""What the log says of texts that are longer than a row."""

import numpy as np
import pytest

from data.tasks.lengths import piece_counts, suggested_length, tell_lengths
from data.tokenization import Tokenizer


@pytest.mark.parametrize(
    ("lengths", "most", "length"),
    [
        ([5] * 99 + [300], None, 16),
        # One of 50 is more than one percent.
        ([5] * 49 + [300], None, 304),
        ([5] * 49 + [300], 100, 100),
        ([16], None, 16),
        ([17], None, 32),
    ],
)
def test_length_that_holds_nearly_all(lengths, most, length):
    assert suggested_length(np.array(lengths), most) == length


def test_pieces_are_counted_before_anything_is_cut():
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"])
    texts = ["", "a", "a ab " * 700] * 1000
    assert piece_counts(tokenizer, texts).tolist() == [0, 1, 2100] * 1000
    assert piece_counts(tokenizer, []).tolist() == []


def said(caplog, lengths, limit, **options):
    caplog.clear()
    tell_lengths("dev", "texts", np.array(lengths), limit, becomes="are cut", **options)
    return caplog.text


def test_one_line_says_it(caplog):
    text = said(caplog, [3, 20, 40, 7], 16)
    assert "dev: 2 of 4 texts are cut" in text and "longer than --max_seq_length=16" in text
    assert "the longest has 40 pieces" in text
    assert "--max_seq_length=48 would hold 100.0 % of them whole." in text
    assert len(caplog.records) == 1


def test_none_is_longer(caplog):
    text = said(caplog, [3, 16], 16)
    assert "none of 2 texts is longer than --max_seq_length=16; the longest has 16 pieces" in text


def test_what_is_set_may_do(caplog):
    text = said(caplog, [3] * 399 + [100], 64)
    assert "1 of 400 texts" in text and "--max_seq_length=64 holds 99.8 % of them" in text


def test_the_model_takes_no_more(caplog):
    text = said(caplog, [3, 600], 128, most=512, more=" So.")
    assert "--max_seq_length=512, the most that the model takes, would hold 50.0 %" in text
    assert text.rstrip().endswith("whole. So.")
    assert "--max_query_length=32 would" in said(caplog, [3, 30], 8, flag="max_query_length")
    assert said(caplog, [], 8) == ""
