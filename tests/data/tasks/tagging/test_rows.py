"""Rows of words: every word once, where it has most context, with its tag at its first piece."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from data import batching
from data.errors import DataError
from data.files.bad_rows import BadRows
from data.tasks import labels
from data.tasks.tagging import reading
from data.tasks.tagging.conll import ConllSentence, TagFormat, read_conll_sentences
from data.tasks.tagging.rows import TaggingSettings, make_tagging_rows
from data.tasks.tagging.tags import NO_TAG, UNKNOWN_TAG, TagSet, load_tags, make_tag_set, saved_tags
from data.tasks.tagging.windows import make_windows
from data.tokenization import Tokenizer

LETTERS = "abcdefgh"
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS)]
TAGS = TagSet("iob2", ("O", "B-X", "I-X"))
ODD = ["", "\u200b", "\u200b\u200d", "\x00", "\ufeff", "\u0301", "ab漢cd", "漢字", "한", "é", "😀"]
ODD += ["a\u0301b", "...", "a.b,c", "abc" * 333 + "d", "漢" * 1000, " ", "a b", "\n", "x" * 1000]
ODD += ["[SEP]", "\ud7ff", "\U0010ffff", "##a", "'s"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_vocab([*VOCAB, "漢", "字", ".", ","])


def sentence(words, tags=None, document=0, line=1):
    return ConllSentence(tuple(words), tags and tuple(tags), document, f"f:{line}")


def random_sentences(draw, count, longest=30, odd=0.4):
    sentences = []
    document = 0
    for line in range(count):
        document += draw.random() < 0.05
        words = [
            draw.choice(ODD)
            if draw.random() < odd
            else "".join(draw.choices(LETTERS, k=draw.randrange(1, 5)))
            for _ in range(draw.randrange(longest))
        ]
        tags = [draw.choice(TAGS.names) for _ in words]
        sentences.append(sentence(words, tags, document, line))
    return sentences


@pytest.mark.parametrize("length", [0, 1, 5, 8, 9, 15, 16, 17, 40, 200])
@pytest.mark.parametrize("stride", [0, 1, 3, 8])
def test_most_context(tokenizer, length, stride):
    """Against a search of all rows for each piece."""
    width = 10
    body = width - 2
    pieces = tf.RaggedTensor.from_row_lengths(tf.range(length + 3), [length, 3])
    made = make_windows(tokenizer, pieces, width, stride)
    count = int(made.counts[0])
    rows = [row.numpy()[1:-1] for row in made.input_ids[:count]]
    if length:
        begins = [int(row[0]) for row in rows]
        assert begins[0] == 0 and begins[-1] == max(length - body, 0)
        assert all(len(row) == min(body, length) for row in rows)
        assert np.diff(begins).max(initial=0) <= (stride or body // 2)
    seen = []
    for row, (start, end) in zip(rows, made.scored.numpy()[:count], strict=True):
        for piece in row[start - 1 : end - 1]:
            # Text ends are no ends of context, so the first row's left side is as good as any.
            context = {
                number: min(
                    piece - other[0] if number else 10**6,
                    other[-1] - piece if number < count - 1 else 10**6,
                )
                for number, other in enumerate(rows)
                if other[0] <= piece <= other[-1]
            }
            own = next(number for number, other in enumerate(rows) if other is row)
            assert context[own] == max(context.values())
            seen.append(int(piece))
    assert seen == list(range(length))


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("width", [3, 4, 12, 128])
def test_every_word_has_one_tag(tokenizer, context, width):
    """On odd words: the tag is that at the word's first piece, in whichever row, else O."""
    draw = random.Random(width)
    sentences = random_sentences(draw, 60)
    rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(width, 0, context))
    flat = [(word, tag) for s in sentences for word, tag in zip(s.words, s.tags, strict=True)]
    assert len(set(rows.words.tolist())) == len(rows.words)
    features = rows.features
    ids = features.ids[features.splits[rows.rows] + rows.places]
    first = {word: ids[0] if len(ids) else None for word, ids in _pieces(tokenizer, flat)}
    wanted = {number: first[word] for number, (word, _) in enumerate(flat) if first[word]}
    assert dict(zip(rows.words.tolist(), ids.tolist(), strict=True)) == wanted
    assert rows.words_without_piece == len(flat) - len(wanted) > 0
    of_sentence = [set() for _ in sentences]
    for row, word in zip(rows.rows.tolist(), rows.words.tolist(), strict=True):
        of_sentence[np.searchsorted(rows.splits, word, "right") - 1].add(row)
    assert rows.sentences_in_parts == sum(len(some) > 1 for some in of_sentence)

    batches = batching.batches(features, batching.Batching(16, [8, 16]), training=False)
    predicted = np.zeros((len(features), width), int)
    labelled = 0
    for batch in batches:
        labels = batch["piece_labels"].numpy()
        assert labels.shape == batch["input_ids"].shape
        assert (labels[batch["input_mask"].numpy() == 0] == NO_TAG).all()
        labelled += (labels != NO_TAG).sum()
        predicted[batch["index"].numpy(), : labels.shape[1]] = np.maximum(labels, 0)
    assert labelled == len(wanted)
    tagged = rows.tags_of_words(predicted, TAGS)
    assert [len(tags) for tags in tagged] == [len(s.words) for s in sentences]
    flat_tags = [tag for tags in tagged for tag in tags]
    for number, (_, tag) in enumerate(flat):
        assert flat_tags[number] == (tag if number in wanted else "O")


def _pieces(tokenizer, flat):
    words = sorted({word for word, _ in flat})
    return zip(words, tokenizer.tokenize(words).to_list(), strict=True)


def test_ten_thousand_odd_sentences(tokenizer):
    """Word count in equals tag count out."""
    draw = random.Random(7)
    sentences = random_sentences(draw, 10_000, longest=8, odd=0.15)
    rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(64))
    out = rows.tags_of_words(np.ones((len(rows.features), 64), int), TAGS)
    assert [len(tags) for tags in out] == [len(s.words) for s in sentences]
    deleted = ("", "\u200b", "\u200b\u200d", "\x00", "\ufeff", "\u0301", " ", "\n")
    for one, tags in zip(sentences, out, strict=True):
        for word, tag in zip(one.words, tags, strict=True):
            assert tag == ("O" if word in deleted else "B-X"), repr(word)


@pytest.mark.slow
@pytest.mark.parametrize("context", [False, True])
def test_every_real_file(shared_data, context):
    """With a vocabulary of another language too."""
    vocab = shared_data / "vocab" / "bert-cased-en" / "vocab.txt"
    tokenizer = Tokenizer(str(vocab), do_lower_case=False)
    files = [*(shared_data / "conll2003").glob("eng.*")]
    files += (shared_data / "chinese" / "weibo_ner").glob("*.bmes")
    assert len(files) == 6
    for file in files:
        text = file.read_text(encoding="utf-8")
        lines = [line for line in text.split("\n") if line and not line.startswith("-DOCSTART-")]
        sentences = read_conll_sentences(str(file), TagFormat(), labelled=True)
        rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(64, 0, context))
        tagged = rows.tags_of_words(np.ones((len(rows.features), 64), int), TAGS)
        assert sum(map(len, tagged)) == len(lines)
        words = [line.split(" ")[0] for line in lines]
        assert [word for one in sentences for word in one.words] == words
        without = sum(tag == "O" for tags in tagged for tag in tags)
        assert without == rows.words_without_piece < 100


def test_context_stays_in_the_document(tokenizer):
    words = [sentence(["a", "b"], None, 0), sentence(["c"], None, 0), sentence(["d"], None, 1)]
    rows = make_tagging_rows(tokenizer, words, TAGS, TaggingSettings(10, 0, True))
    assert len(rows.features) == 2
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    a, b, c, d = map(tokenizer.vocab.index, "abcd")
    assert rows.features.ids.tolist() == [cls, a, b, c, sep, cls, d, sep]
    assert (rows.features.piece_labels == NO_TAG).all()
    assert [len(tags) for tags in rows.tags_of_words(np.zeros((2, 10), int), TAGS)] == [2, 1, 1]
    assert rows.describe(np.array([1, 0, -1])) == "f:1"
    assert len(make_tagging_rows(tokenizer, words, TAGS, TaggingSettings(10)).features) == 3


def test_tags_that_training_lacks(tokenizer, caplog):
    sentences = [sentence(["a", "b"], ["B-X", "B-Y"]), sentence(["c"]), sentence(["d"], ["I-X"])]
    with caplog.at_level("WARNING"):
        rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(8))
    assert "B-Y (sentence at f:1)" in caplog.text
    labels = rows.features.piece_labels
    assert labels[labels != NO_TAG].tolist() == [1, 2]
    assert rows.mean_of_labelled(np.tile(np.arange(8.0), (3, 1))) == 1.0


def test_no_pieces_at_all(tokenizer):
    sentences = [sentence(["\u200b", ""]), sentence([])]
    rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(8))
    assert rows.tags_of_words(np.ones((2, 8), int), TAGS) == [["O", "O"], []]


def test_lengths(tokenizer):
    for settings in (TaggingSettings(2), TaggingSettings(8, 7)):
        with pytest.raises(DataError, match="max_seq_length"):
            make_tagging_rows(tokenizer, [sentence(["a"])], TAGS, settings)


def test_tag_sets(tmp_path):
    sentences = [sentence("ab", ["B-Y", "O"]), sentence("a", ["B-X"]), sentence("a")]
    tags = make_tag_set(sentences, "iobes")
    assert len(tags) == 9
    assert tags.names[:5] == ("O", "B-X", "I-X", "E-X", "S-X")
    labels.keep_labels(str(tmp_path), saved_tags(tags), write=True, holds_model=False)
    assert load_tags(str(tmp_path), None) == tags
    with pytest.raises(DataError, match="not one of 1 sentences has an entity"):
        make_tag_set([sentence("a", ["O"])], "iob2")
    for content in ("[]", '{"scheme": "x", "labels": ["O"]}', "{"):
        (tmp_path / "labels.json").write_text(content)
        with pytest.raises(DataError, match=r"labels\.json doesn't hold"):
            load_tags(str(tmp_path), None)
    (tmp_path / "labels.json").write_text('{"labels": ["O"]}')
    with pytest.raises(DataError, match=r"labels\.json is of another kind .* and no scheme"):
        load_tags(str(tmp_path), None)


@pytest.mark.parametrize("context", [False, True])
def test_how_long_they_are_is_said(tokenizer, caplog, context):
    sentences = [sentence(["a"] * n, ["O"] * n, document=n) for n in (3, 8, 9, 30)]
    settings = TaggingSettings(10, 0, context)
    rows = make_tagging_rows(tokenizer, sentences, TAGS, settings)
    assert rows.lengths.tolist() == [5, 10, 11, 32]
    how = (tokenizer, TAGS, settings, BadRows(), 24)
    split = reading.tokenised_tagging("dev", sentences, *how)
    assert reading.gold_tags(split) == [sentence.tags for sentence in sentences]
    assert "nothing is scored" not in caplog.text
    untagged = dataclasses.replace(sentences[1], tags=None)
    some = reading.tokenised_tagging("test", [sentences[0], untagged], *how)
    assert reading.gold_tags(some) is None
    assert f"test: 1 of 2 sentences have no tags, the first at {untagged.source}" in caplog.text
    called = "documents" if context else "sentences"
    assert f"dev: 2 of 4 {called} are tagged in several windows, whole, since" in caplog.text
    assert "--max_seq_length=24, the most that the model takes, would hold 75.0 %" in caplog.text


@pytest.mark.parametrize("context", [False, True])
def test_where_other_pieces_stand(tokenizer, context):
    """Rows that two vocabularies make of the same words lead to each other word by word."""
    sentences = random_sentences(random.Random(4), 200)
    other = Tokenizer.from_vocab([*VOCAB[:5], *LETTERS, "ab", "##cd", *VOCAB[13:]])
    ours, theirs = (
        make_tagging_rows(made, sentences, TAGS, TaggingSettings(width, 0, context))
        for made, width in ((tokenizer, 12), (other, 20))
    )
    found = ours.places_in(theirs)
    assert [len(row) for row in found] == np.diff(ours.features.splits).tolist()
    there = {
        word: (row, place)
        for row, place, word in zip(theirs.rows, theirs.places, theirs.words, strict=True)
    }
    scored = np.zeros(len(ours.features.ids), bool)
    for row, place, word in zip(ours.rows, ours.places, ours.words, strict=True):
        assert tuple(found[row][place]) == there.get(word, (-1, -1))
        scored[ours.features.splits[row] + place] = True
    assert (np.concatenate(found)[~scored] == -1).all()
    assert len(ours.features.ids) != len(theirs.features.ids)  # or nothing would be shown


def test_rows_behind_rows(tokenizer):
    first, second = (random_sentences(random.Random(seed), 30) for seed in (1, 2))
    rows = [
        make_tagging_rows(tokenizer, some, TAGS, TaggingSettings(12))
        for some in (first, second, first + second)
    ]
    joined = rows[0].joined(rows[1])
    for name in ("rows", "places", "words", "splits", "sources", "lengths"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(rows[2], name), name)
    for name in ("ids", "splits", "row_splits", "first_lengths", "piece_labels", "label_ids"):
        got, expected = (getattr(made.features, name) for made in (joined, rows[2]))
        np.testing.assert_array_equal(got, expected, name)
    hidden = rows[0].unlabelled().features.piece_labels
    places = rows[0].features.splits[rows[0].rows] + rows[0].places
    assert (hidden[places] == UNKNOWN_TAG).all()
    assert (np.delete(hidden, places) == NO_TAG).all()


def test_a_stride_that_would_skip_pieces_is_refused(tokenizer):
    """Wherever windows are made: of files, and in an export's graph."""
    with pytest.raises(DataError, match="window stride is 100"):
        make_windows(tokenizer, tf.ragged.constant([[5] * 126], tf.int32), 64, 100)
