"""Characters as words: the same in files, in the graph of training and in the exported one."""

import json
import random
import sys

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.tasks.tagging import characters
from data.tasks.tagging.characters import split_sentence, split_texts
from data.tasks.tagging.conll import ConllSentence
from data.tasks.tagging.inputs import tag_inputs_from_characters
from data.tasks.tagging.rows import TaggingSettings, make_tagging_rows
from data.tasks.tagging.tags import TagSet, load_tags, make_tag_set, saved_tags
from data.tokenization import Tokenizer, unicode_tables

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"我爱北京天安门abc", *".,", "##b", "##c"]
TOKENIZER = Tokenizer.from_vocab(VOCAB)
TAGS = TagSet("iob2", ("O", "B-LOC", "I-LOC"))
ODD = "我爱北京ab c\u3000\u200b\xa0é\u0301😀\n\t\x00\ufeff."


def sentence(words, tags=None):
    return ConllSentence(tuple(words), tags and tuple(tags), 0, "f:1")


@pytest.mark.parametrize(
    ("scheme", "tags", "expected"),
    [
        ("iob2", "O B-LOC B-LOC I-LOC", "O O B-LOC I-LOC B-LOC I-LOC I-LOC"),
        ("iobes", "O S-LOC B-LOC E-LOC", "O O B-LOC E-LOC B-LOC I-LOC E-LOC"),
    ],
)
def test_entities_stay_what_they_are(scheme, tags, expected):
    words = ("我爱", "北京", "天安", "门")
    split = split_sentence(sentence(words, tags.split()), scheme, TOKENIZER)
    assert split.words == tuple("我爱北京天安门")
    assert split.tags == tuple(expected.split())
    assert split_sentence(sentence(words), scheme, TOKENIZER).tags is None
    assert split_sentence(split, scheme, TOKENIZER) == split


def test_words_of_white_space_leave_nothing():
    tags = ["O", "B-LOC", "B-LOC", "I-LOC"]
    split = split_sentence(sentence(["a", " ", "\u3000", "b c"], tags), "iob2", TOKENIZER)
    assert (split.words, split.tags) == (("a", "b", "c"), ("O", "B-LOC", "I-LOC"))
    split = split_sentence(sentence([" "], ["B-LOC"]), "iob2", TOKENIZER)
    assert (split.words, split.tags) == ((), ())


@pytest.mark.parametrize(
    ("text", "lower", "expected"),
    [
        ("ที่นี่", True, ["ที่", "นี่"]),
        ("ที่", False, ["ท", "\u0e35", "\u0e48"]),
        ("e\u0301é", True, ["e\u0301", "é"]),
        ("👨\u200d👩\u200dé ❤\ufe0fB", True, ["👨\u200d", "👩\u200d", "é", "❤\ufe0f", "B"]),
        ("\u200b\u0301a \u0301b\u3000\u200b", True, ["\u200b\u0301", "a", "\u0301", "b", "\u200b"]),
    ],
)
def test_deleted_characters_go_with_the_one_before(text, lower, expected):
    """By themselves they would be O, in the middle of entities."""
    tokenizer = Tokenizer.from_vocab(VOCAB, do_lower_case=lower)
    tags = [*["B-LOC", "I-LOC"], *["I-LOC"] * 9][: len(text.split())]
    split = split_sentence(sentence(text.split(), tags), "iob2", tokenizer)
    assert list(split.words) == expected
    assert split.tags == ("B-LOC", *["I-LOC"] * (len(expected) - 1))
    words, starts, ends = split_texts(tf.constant([text]), tokenizer)
    assert [word.decode() for word in words[0].numpy()] == expected
    whole = text.encode()
    places = zip(starts[0].numpy(), ends[0].numpy(), strict=True)
    assert [whole[start:end].decode() for start, end in places] == expected


def test_every_code_point_is_split_alike():
    """White space is what Python takes for it, in files and in the graph."""
    points = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    assert {*characters.SPACES} == {c for c in points if c.isspace()}
    deleted = {chr(c) for c in unicode_tables.code_points(TOKENIZER.deleted)}
    # Behind white space everything begins a word; behind a letter all but what is deleted.
    for before in (" ", "a"):
        apart = [before + c for c in points if not c.isspace()]
        words, _, _ = split_texts(tf.constant(apart), TOKENIZER)
        counts = [1 + (before == "a" and one[1] not in deleted) for one in apart]
        np.testing.assert_array_equal(words.row_lengths(), counts)
    kept = [c for c in points if c not in deleted]
    words, starts, ends = split_texts(tf.constant(["".join(kept)]), TOKENIZER)
    found = [word.decode() for word in words[0].numpy()]
    assert found == [c for c in kept if not c.isspace()]
    whole = "".join(kept).encode()
    places = zip(starts[0].numpy(), ends[0].numpy(), strict=True)
    assert [whole[start:end].decode() for start, end in places] == found


def test_texts_and_files_make_the_same_rows():
    draw = random.Random(0)
    tokenizer = TOKENIZER
    texts = ["", " ", *("".join(draw.choices(ODD, k=draw.randrange(40))) for _ in range(200))]
    # As a file has it: some characters of the text to a word, none across white space.
    sentences = [split_sentence(sentence(text.split()), "iob2", tokenizer) for text in texts]
    rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(12, 5))
    made = tag_inputs_from_characters(
        tokenizer, tf.constant(texts), max_seq_length=12, window_stride=5
    )
    np.testing.assert_array_equal(made.input_ids.values, rows.features.ids)
    np.testing.assert_array_equal(made.input_ids.row_splits, rows.features.splits)
    np.testing.assert_array_equal(made.tagged_words, rows.words)
    words, starts, ends, in_bytes = (
        found.to_list() for found in (made.words, made.starts, made.ends, made.byte_starts)
    )
    for number, text in enumerate(texts):
        expected = list(sentences[number].words)
        assert [word.decode() for word in words[number]] == expected
        places = zip(starts[number], ends[number], strict=True)
        assert [text[start:end] for start, end in places] == expected
        assert [len(text[:start].encode()) for start in starts[number]] == in_bytes[number]


def test_bytes_that_are_not_utf8():
    words, starts, ends = split_texts(tf.constant([b"a\xff b", b""]), TOKENIZER)
    assert words.to_list() == [["a\ufffd".encode(), b"b"], []]
    assert (starts.to_list(), ends.to_list()) == ([[0, 3], []], [[2, 4], []])


def test_the_model_knows_that_it_tags_characters(tmp_path):
    tagged = [sentence("ab", ["B-X", "O"])]
    words, tags = (make_tag_set(tagged, "iob2", split) for split in (False, True))
    assert "split_characters" not in saved_tags(words)
    (tmp_path / "labels.json").write_text(json.dumps(saved_tags(tags)))
    assert load_tags(str(tmp_path), None) == tags
    assert load_tags(str(tmp_path), None, split_characters=True) == tags
    (tmp_path / "labels.json").write_text(json.dumps(saved_tags(words)))
    assert load_tags(str(tmp_path), None) == words
    with pytest.raises(DataError, match=r"labels\.json: the model was trained to tag words"):
        load_tags(str(tmp_path), None, split_characters=True)
