"""From flags to splits: which examples are read, and what the log says of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from data.errors import DataError
from data.tasks.sentences.delimited import make_sentence_task
from data.tasks.sentences.glue import get_task
from data.tasks.sentences.multiple_choice import get_task as get_choice_task
from data.tasks.sentences.reading import (
    open_sentence_task,
    read_sentence_splits,
    read_unlabelled_sentences,
)
from data.tasks.sentences.rows import SentenceSettings
from data.tokenization import Tokenizer


@pytest.fixture
def tokenizer():
    return Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"])


def task_of(tmp_path, **options):
    lines = ["text\tlabel", *(f"{'abcdefghij'[n % 10]} {n}\t{'xy'[n >= 50]}" for n in range(100))]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    path = str(tmp_path / "train.tsv")
    return make_sentence_task(train_file=path, text_columns="text", label_column="label", **options)


def test_labels_of_weights_whose_configuration_names_none(tmp_path):
    """As the original's fine-tuned ones: which classes they are the flag says."""
    task_of(tmp_path)
    names = ("task_name", "label_kind", "id_column", "train_file", "test_file", "init_checkpoint")
    names += ("data_dir", "dev_fraction", "file_format", "delimiter", "encoding")
    values = SimpleNamespace(**dict.fromkeys(names), output_dir=str(tmp_path / "out"))
    values.task_name, values.text_columns, values.label_column = "delimited", ["text"], "label"
    values.dev_file, values.label_separator = [str(tmp_path / "train.tsv")], ","
    values.header, values.skip_bad_rows, values.dev_fraction = True, False, 0.0
    values.labels = ["y", "x"]
    task = open_sentence_task(values, False, "classes")
    assert task.labels == ["y", "x"]
    with pytest.raises(DataError, match="was trained for classes with the labels x, y; given were"):
        open_sentence_task(values, False, "classes", ["x", "y"])
    values.labels = []
    assert open_sentence_task(values, False, "regression").labels == []


def test_the_first_examples(tmp_path, tokenizer, caplog):
    task = task_of(tmp_path, dev_files=str(tmp_path / "train.tsv"))
    settings = SentenceSettings(8)
    (whole,) = read_sentence_splits(task, "train", tokenizer, settings)
    assert "max_train_examples" not in caplog.text
    (part,) = read_sentence_splits(task, "train", tokenizer, settings, most=60)
    assert part.examples == whole.examples[:60] and len(part) == 60
    assert part.fingerprint != whole.fingerprint
    assert "train: the first 60 of 100 examples (--max_train_examples)" in caplog.text
    assert "no example has the label" not in caplog.text
    read_sentence_splits(task, "train", tokenizer, settings, most=20)
    assert "The first 20 examples: no example has the label y." in caplog.text
    (dev,) = read_sentence_splits(task, "dev", tokenizer, settings, most=7)
    assert dev.examples == task.read(None, "dev")[:7]
    assert "dev: the first 7 of 100 examples (--max_eval_examples)" in caplog.text


def test_the_held_out_part_does_not_depend_on_how_much_is_trained_on(tmp_path, tokenizer):
    task = task_of(tmp_path, dev_fraction=0.2)
    settings = SentenceSettings(8)
    (dev,) = read_sentence_splits(task, "dev", tokenizer, settings)
    for most in (10, 0):
        (train,) = read_sentence_splits(task, "train", tokenizer, settings, most=most)
        assert not {e.text_a for e in train.examples} & {e.text_a for e in dev.examples}
    assert [e.label for e in dev.examples].count("x") == 10
    assert len(dev) == 20


def test_how_long_they_are(tmp_path, tokenizer, caplog):
    read_sentence_splits(
        task_of(tmp_path), "train", tokenizer, SentenceSettings(3), max_positions=512
    )
    assert "train: 100 of 100 texts are cut, since they are longer than" in caplog.text
    assert "--max_seq_length=16 would hold 100.0 % of them" in caplog.text


def test_empty_texts_are_counted(tmp_path, tokenizer, caplog):
    settings = SentenceSettings(8)
    read_sentence_splits(task_of(tmp_path), "train", tokenizer, settings)
    assert "an empty text" not in caplog.text
    path = tmp_path / "holes.tsv"
    path.write_text("text\tlabel\na\tx\n\ty\n  \tx\n")
    task = make_sentence_task(train_file=str(path), text_columns="text", label_column="label")
    read_sentence_splits(task, "train", tokenizer, settings)
    assert f"train: 2 of 3 examples have an empty text: {path}:3, {path}:4." in caplog.text


def flags(tmp_path, **given) -> SimpleNamespace:
    names = ("file_format", "delimiter", "data_dir")
    values = dict.fromkeys(names) | {"header": True, "skip_bad_rows": False, "encoding": "utf-8"}
    return SimpleNamespace(**values | {"text_columns": [], **given})


def test_texts_without_labels_stand_behind_the_examples(tmp_path, tokenizer):
    task, settings = task_of(tmp_path), SentenceSettings(8)
    (train,) = read_sentence_splits(task, "train", tokenizer, settings)
    # A label that the file has doesn't count, be it one that the task lacks.
    (tmp_path / "more.csv").write_text("label,text\nz,a b\nx,c\n")
    values = flags(tmp_path, transfer_file=str(tmp_path / "more.csv"))
    more = read_unlabelled_sentences(values, task, tokenizer, settings)
    assert [(e.text_a, e.label) for e in more.examples] == [("a b", None), ("c", None)]
    joined = train.with_unlabelled(more)
    assert len(joined) == 102 and joined.fingerprint not in (train.fingerprint, more.fingerprint)
    (batch,) = joined.batches(200, fixed_shapes=True)
    known = batch["is_labelled"].numpy()[:102]
    assert known[:100].all() and not known[100:].any()
    ids = batch["input_ids"].numpy()
    first = ids[100][ids[100] > 0]
    assert first.tolist() == [2, 5, 6, 3]
    said = joined.describe(np.array([0, 101, -1]))
    assert said == f"{tmp_path}/train.tsv: line 2; {tmp_path}/more.csv: line 3"


def test_texts_without_labels_are_as_many_as_the_tasks(tmp_path, tokenizer):
    pairs = get_task("mrpc")
    (tmp_path / "more.tsv").write_text("a\tb\nx\ty\n")
    settings, path = SentenceSettings(8), str(tmp_path / "more.tsv")
    both = flags(tmp_path, transfer_file=path, text_columns=["a", "b"])
    (example,) = read_unlabelled_sentences(both, pairs, tokenizer, settings).examples
    assert (example.text_a, example.text_b) == ("x", "y")
    with pytest.raises(DataError, match=r"names 1 column\(s\).*mrpc has 2 text\(s\)"):
        one = flags(tmp_path, transfer_file=path, text_columns=["a"])
        read_unlabelled_sentences(one, pairs, tokenizer, settings)
    (tmp_path / "more.jsonl").write_text('{"context": "a", "choices": ["b", "c"]}\n')
    choices = flags(tmp_path, transfer_file=str(tmp_path / "more.jsonl"))
    task = get_choice_task("swag")
    (example,) = read_unlabelled_sentences(choices, task, tokenizer, settings).examples
    assert example.choices == ("b", "c")
