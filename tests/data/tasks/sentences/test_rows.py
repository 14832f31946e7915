"""Features of every kind of task, and their copies on disk."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.features import Features
from data.tasks.sentences import rows
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.rows import SentenceSettings, cached_sentence_rows, tokenize_examples
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{c}" for c in "abcdefgh")]
LABELS = ["no", "yes", "maybe"]
SETTINGS = SentenceSettings(10)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


def make_examples(
    number: int, kind: SentenceKind = SentenceKind.CLASSES, longest: int = 20
) -> list[Example]:
    draw = random.Random(number)

    def text(most: int) -> str:
        return " ".join(draw.choices("abcdefgh", k=draw.randrange(1, most)))

    def label():
        if kind is SentenceKind.REGRESSION:
            return draw.uniform(0, 5)
        if kind is SentenceKind.MULTI_LABEL:
            return tuple(sorted(draw.sample(LABELS, draw.randrange(4))))
        return draw.choice(LABELS)

    examples = []
    for i in range(number):
        if kind is SentenceKind.CHOICES:
            choices = tuple(text(8) for _ in range(draw.randrange(2, 6)))
            label_id = draw.randrange(len(choices))
            examples.append(Example(f"x-{i}", text(longest), None, label_id, f"f:{i}", choices))
        else:
            text_b = draw.choice([None, text(longest)])
            examples.append(Example(f"x-{i}", text(longest), text_b, label(), f"f:{i}"))
    return examples


def rows_of(found: Features, index: int) -> list[tuple[list[int], list[int]]]:
    """(ids, segments) of each row of an example."""
    rows = []
    for row in range(found.row_splits[index], found.row_splits[index + 1]):
        ids = found.ids[found.splits[row] : found.splits[row + 1]].tolist()
        first = int(found.first_lengths[row])
        rows.append((ids, [0] * first + [1] * (len(ids) - first)))
    return rows


def rows_of_inputs(inputs: dict) -> list[tuple[list[int], list[int]]]:
    """The same of what the model would get for one example, [T] or [R, T]."""
    flat = {name: np.reshape(tensor, [-1, tensor.shape[-1]]) for name, tensor in inputs.items()}
    rows = []
    for ids, mask, segments in zip(*flat.values(), strict=True):
        length = mask.sum()
        if length:
            rows.append((ids[:length].tolist(), segments[:length].tolist()))
    return rows


@pytest.mark.parametrize(
    ("long_text", "kind"),
    [
        ("head", SentenceKind.CLASSES),
        ("tail", SentenceKind.MULTI_LABEL),
        ("head_tail", SentenceKind.REGRESSION),
        ("windows", SentenceKind.CLASSES),
    ],
)
def test_texts(tokenizer, kind, long_text):
    examples = make_examples(40, kind, longest=40)
    settings = SentenceSettings(12, long_text, window_stride=3, max_windows=4)
    found = tokenize_examples(tokenizer, examples, kind, LABELS, settings)
    assert len(found) == 40
    assert found.several_rows == (long_text == "windows")
    inputs = build_inputs(
        tokenizer,
        [example.text_a for example in examples],
        [example.text_b or "" for example in examples],
        12,
        long_text=long_text,
        window_stride=3,
        max_windows=4,
    )
    for index in range(40):
        rows = rows_of(found, index)
        assert rows == rows_of_inputs({name: tensor[index] for name, tensor in inputs.items()})
        assert found.num_rows[index] == len(rows)
        assert found.lengths[index] == max(len(ids) for ids, _ in rows)
    if long_text == "windows":
        assert {1, 2, 4} <= set(found.num_rows.tolist()) <= {1, 2, 3, 4}
    else:
        assert set(found.num_rows.tolist()) == {1}


def test_choices(tokenizer):
    examples = make_examples(30, SentenceKind.CHOICES)
    found = tokenize_examples(
        tokenizer, examples, SentenceKind.CHOICES, [], SentenceSettings(12, "tail")
    )
    assert found.several_rows and found.num_rows.tolist() == [len(e.choices) for e in examples]
    head = tokenize_examples(tokenizer, examples, SentenceKind.CHOICES, [], SentenceSettings(12))
    for index, example in enumerate(examples):
        inputs = build_choice_inputs(tokenizer, [example.text_a], [example.choices], 12)
        assert rows_of(head, index) == rows_of_inputs(inputs)
        inputs = build_inputs(
            tokenizer,
            [example.text_a] * len(example.choices),
            example.choices,
            12,
            long_text="tail",
        )
        assert rows_of(found, index) == rows_of_inputs(inputs)
    assert found.label_ids.tolist() == [example.label for example in examples]


def test_labels():
    def label_ids(kind, given):
        examples = [Example(str(i), "a", None, label, "f") for i, label in enumerate(given)]
        return rows.sentence_label_ids(examples, kind, LABELS)

    found = label_ids(SentenceKind.CLASSES, ["maybe", None, "yes"])
    assert found.tolist() == [2, 0, 1] and found.dtype == np.int32
    found = label_ids(SentenceKind.MULTI_LABEL, [("maybe", "no"), (), None, ("yes",)])
    assert found.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert found.dtype == np.float32
    found = label_ids(SentenceKind.REGRESSION, [2.5, None])
    assert found.tolist() == [2.5, 0] and found.dtype == np.float32
    for kind, label in (
        (SentenceKind.CLASSES, "other"),
        (SentenceKind.MULTI_LABEL, ("no", "other")),
    ):
        with pytest.raises(DataError, match="f: the label is 'other'; the labels are no, yes, may"):
            label_ids(kind, [label])


def test_more_texts_than_are_tokenised_at_once(tokenizer, monkeypatch):
    examples = make_examples(50)
    whole = tokenize_examples(tokenizer, examples, SentenceKind.CLASSES, LABELS, SETTINGS)
    monkeypatch.setattr(rows, "_TEXTS_AT_ONCE", 7)
    check_equal(
        tokenize_examples(tokenizer, examples, SentenceKind.CLASSES, LABELS, SETTINGS), whole
    )


def test_no_examples(tokenizer):
    for kind in SentenceKind:
        found = tokenize_examples(tokenizer, [], kind, LABELS, SETTINGS)
        assert len(found) == len(found.ids) == len(found.lengths) == len(found.num_rows) == 0
        assert found.label_ids.shape == ((0, 3) if kind is SentenceKind.MULTI_LABEL else (0,))


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        (SentenceSettings(2), SentenceKind.CLASSES, "^max_seq_length is 2"),
        (SentenceSettings(8, "middle"), SentenceKind.CLASSES, "^long_text is 'middle'"),
        (SentenceSettings(8, "windows", 7), SentenceKind.CLASSES, "^The window stride is 7"),
        (SentenceSettings(8, "windows", 1, 0), SentenceKind.CLASSES, "^max_windows is 0"),
        (
            SentenceSettings(8, "windows"),
            SentenceKind.CHOICES,
            "^long_text windows is not for multiple choice",
        ),
    ],
)
def test_refused_settings(tokenizer, settings, kind, message):
    with pytest.raises(DataError, match=message):
        tokenize_examples(tokenizer, make_examples(3, kind), kind, LABELS, settings)


def check_equal(mine: Features, wanted: Features) -> None:
    for name, value in dataclasses.asdict(wanted).items():
        other = getattr(mine, name)
        assert type(other) is type(value), name
        np.testing.assert_array_equal(other, value, err_msg=name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype, name


class Untouchable(Tokenizer):
    """One that must not be asked."""

    def tokenize(self, texts):
        raise AssertionError("The texts were tokenised again.")


@pytest.mark.parametrize("kind", [SentenceKind.CLASSES, SentenceKind.CHOICES])
def test_second_call_reads_the_file(tokenizer, tmp_path, kind):
    examples = make_examples(30, kind)
    wanted = tokenize_examples(tokenizer, examples, kind, LABELS, SETTINGS)
    folder = str(tmp_path / "new" / "folder")
    check_equal(
        cached_sentence_rows(folder, "dev", tokenizer, examples, kind, LABELS, SETTINGS), wanted
    )
    untouchable = Untouchable.from_vocab(VOCAB)
    check_equal(
        cached_sentence_rows(folder, "dev", untouchable, examples, kind, LABELS, SETTINGS), wanted
    )
    with pytest.raises(AssertionError, match="tokenised again"):
        cached_sentence_rows(folder, "test", untouchable, examples, kind, LABELS, SETTINGS)
    # Labels are not of the file, so other ones need no new pieces.
    if kind is SentenceKind.CLASSES:
        other = cached_sentence_rows(
            folder, "dev", untouchable, examples, kind, LABELS[::-1], SETTINGS
        )
        assert other.label_ids.tolist() == (2 - wanted.label_ids).tolist()


def count_tokenising(monkeypatch):
    """How often examples were tokenised; from now on they quickly become other features."""
    calls = []

    def tokenize(tokenizer, examples, kind, labels, settings):
        calls.append(kind)
        length, ids = len(examples), np.arange(7 * len(examples), dtype=np.int32)
        splits, firsts = np.arange(length + 1), np.full(length, 7, np.int32)
        found = rows.sentence_label_ids(examples, kind, labels)
        return Features(ids, 7 * splits, firsts, splits, found, settings.max_seq_length, 0, False)

    monkeypatch.setattr(rows, "tokenize_examples", tokenize)
    return lambda: len(calls)


def test_what_changes_makes_a_new_file(tokenizer, tmp_path, monkeypatch):
    examples = make_examples(5)
    counted = count_tokenising(monkeypatch)
    bystanders = [tmp_path / f"{name}.npz" for name in ("dev_mismatched-0123456789abcdef", "dev-x")]
    for path in bystanders:
        path.write_bytes(b"another's")

    def names(tokenizer=tokenizer, examples=examples, kind=SentenceKind.CLASSES, settings=SETTINGS):
        before = counted()
        for _ in range(2):
            cached_sentence_rows(str(tmp_path), "dev", tokenizer, examples, kind, LABELS, settings)
            assert counted() == before + 1
        (name,) = {path.name for path in tmp_path.iterdir()} - {path.name for path in bystanders}
        return name

    def changed(**changes):
        return [dataclasses.replace(examples[0], **changes), *examples[1:]]

    choices = [dataclasses.replace(e, choices=("a", "b"), label=0) for e in examples]
    made = [
        names(),
        names(examples=changed(text_a="h")),
        names(examples=changed(text_b="h h")),
        names(examples=changed(text_a="", text_b=examples[0].text_a)),
        names(examples=examples[::-1]),
        names(examples=examples[:-1]),
        names(kind=SentenceKind.CHOICES, examples=choices),
        names(Tokenizer.from_vocab([*VOCAB, "new"])),
        names(Tokenizer.from_vocab(VOCAB, do_lower_case=False)),
        names(Tokenizer.from_vocab(VOCAB, strip_accents=False)),
        names(Tokenizer.from_vocab(VOCAB, do_lower_case=False, strip_accents=True)),
        names(Tokenizer.from_vocab(VOCAB, never_split=["[MASK]"])),
        names(settings=SentenceSettings(11)),
        names(settings=SentenceSettings(10, "tail")),
        names(settings=SentenceSettings(10, "windows")),
        names(settings=SentenceSettings(10, "windows", 2)),
        names(settings=SentenceSettings(10, "windows", 2, 2)),
    ]
    assert len(set(made)) == len(made)
    assert names(Tokenizer.from_vocab(VOCAB, strip_accents=True)) == made[0]
    assert all(path.read_bytes() == b"another's" for path in bystanders)


def test_damaged_files_are_made_again(tokenizer, tmp_path, monkeypatch):
    counted = count_tokenising(monkeypatch)
    examples = make_examples(20)

    def again():
        return cached_sentence_rows(
            str(tmp_path), "dev", tokenizer, examples, SentenceKind.CLASSES, LABELS, SETTINGS
        )

    wanted = again()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    draw = random.Random(0)
    spoilt = [b"", b"junk", whole[: len(whole) // 2], whole[:-1]]
    for _ in range(40):
        place = draw.randrange(len(whole))
        spoilt.append(
            whole[:place] + bytes([whole[place] ^ draw.randrange(1, 256)]) + whole[place + 1 :]
        )
    for number, content in enumerate(spoilt):
        path.write_bytes(content)
        check_equal(again(), wanted)
        assert [other.name for other in tmp_path.iterdir()] == [path.name]
        if number < 4:
            assert counted() == number + 2 and len(path.read_bytes()) == len(whole)


def test_a_file_of_another_identity_is_not_taken(tokenizer, tmp_path, monkeypatch):
    """Whole and of the right name, but with the pieces of other texts."""
    counted = count_tokenising(monkeypatch)
    contents = []
    for number in (4, 5):
        examples = make_examples(number)
        cached_sentence_rows(
            str(tmp_path), "dev", tokenizer, examples, SentenceKind.CLASSES, LABELS, SETTINGS
        )
        (path,) = tmp_path.iterdir()
        contents.append(path.read_bytes())
    path.write_bytes(contents[0])
    cached_sentence_rows(
        str(tmp_path), "dev", tokenizer, examples, SentenceKind.CLASSES, LABELS, SETTINGS
    )
    assert counted() == 3 and path.read_bytes() == contents[1]


def test_another_process_removes_the_old_file_first(tokenizer, tmp_path, monkeypatch):
    count_tokenising(monkeypatch)

    def removed_by_another(path):
        raise tf.errors.NotFoundError(None, None, f"{path}; No such file or directory")

    monkeypatch.setattr(tf.io.gfile, "remove", removed_by_another)
    for number in (3, 4):
        cached_sentence_rows(
            str(tmp_path),
            "dev",
            tokenizer,
            make_examples(number),
            SentenceKind.CLASSES,
            LABELS,
            SETTINGS,
        )
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("kind", "long_text"),
    [
        (SentenceKind.CLASSES, "head"),
        (SentenceKind.CLASSES, "windows"),
        (SentenceKind.CHOICES, "head"),
    ],
)
def test_how_many_are_cut_is_said(tokenizer, caplog, kind, long_text):
    examples = make_examples(300, kind)
    settings = SentenceSettings(10, long_text, max_windows=3)
    found = tokenize_examples(tokenizer, examples, kind, LABELS, settings)
    caplog.clear()
    rows.tell_sentence_lengths("dev", tokenizer, examples, kind, settings, found, 24)
    # A letter is a piece here.
    pairs = [(e.text_a, b) for e in examples for b in (e.choices or [e.text_b or ""])]
    whole = [len(a.split()) + len(b.split()) + 2 + bool(b) for a, b in pairs]
    becomes = "are read in several windows" if long_text == "windows" else "are cut"
    longer = sum(length > 10 for length in whole)
    assert f"dev: {longer} of {len(pairs)} pairs {becomes}" in caplog.text
    assert f"the longest has {max(whole)} pieces. --max_seq_length=24, the most" in caplog.text
    most = f"{int((found.num_rows == 3).sum())} of them fill all --max_windows=3."
    assert (most in caplog.text) == (long_text == "windows")


@pytest.mark.parametrize("kind", [SentenceKind.MULTI_LABEL, SentenceKind.CHOICES])
@pytest.mark.parametrize("long_text", ["head", "tail", "head_tail"])
def test_cut_texts_are_counted(tokenizer, kind, long_text):
    """Every word is a piece, so that how long a row would be can be told."""
    examples = make_examples(60, kind)
    settings = SentenceSettings(10, long_text)
    features = tokenize_examples(tokenizer, examples, kind, LABELS, settings)

    def pieces(text_a, text_b):
        return len(text_a.split()) + (len(text_b.split()) + 1 if text_b else 0) + 2

    longest = [max(pieces(e.text_a, b) for b in e.choices or [e.text_b]) for e in examples]
    expected = sum(length > 10 for length in longest)
    assert 0 < expected < 60 and 10 in longest
    got = rows.count_cut_sentences(tokenizer, examples, kind, settings, features)
    assert got == expected


def test_windows_cut_what_they_leave_out(tokenizer):
    examples = make_examples(60, SentenceKind.CLASSES, 40)
    kind, counts = SentenceKind.CLASSES, []
    for most in (2, 99):
        settings = SentenceSettings(10, "windows", 4, most)
        features = tokenize_examples(tokenizer, examples, kind, LABELS, settings)
        counts.append(rows.count_cut_sentences(tokenizer, examples, kind, settings, features))
    assert counts == [(features.num_rows > 2).sum(), 0] and counts[0] > 0
