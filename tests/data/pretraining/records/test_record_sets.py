"""Record files as sets: what is missing, cut, double or of another vocabulary is noticed."""

import gzip
import logging
import pathlib
import shutil

import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.corpus import Document
from data.pretraining.from_text import existing_records_not_from_text
from data.pretraining.inspection.inspection import inspect_record_files, inspect_sets
from data.pretraining.inspection.reports import summarize_inspection, text_report
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.records.record_files import count_records
from data.pretraining.records.record_sets import examine_sets
from data.pretraining.records.schema import feature_description
from data.pretraining.records.shard_marks import read_mark
from data.pretraining.writing.jobs import plan_job
from data.pretraining.writing.local import create_pretraining_records, write_job_locally
from data.pretraining.writing.shards import name_shards
from data.tokenization import Tokenizer
from data.tokenization.vocabulary import vocabulary_checksum

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "four", "five"]
SETTINGS = InstanceSettings(max_seq_length=16, max_predictions_per_seq=3, dupe_factor=2)
SENTENCES = [" ".join(TOKENS[5 + (i * k) % 5] for i in range(9)) for k in range(1, 9)]


def make(folder, count=3, tokens=TOKENS):
    """Files of one set in a folder, no manifest beside them."""
    folder.mkdir(exist_ok=True)
    _, files = name_shards(str(folder / "a.tfrecord"), count)
    documents = [Document(SENTENCES[k:] + SENTENCES[:k], f"made:{k}") for k in range(8)]
    create_pretraining_records(documents, Tokenizer.from_vocab(tokens), files, SETTINGS)
    return files


def write_vocab(path, tokens=TOKENS, end="\n"):
    path.write_text(end.join([*tokens, ""]), newline="")
    return str(path)


def opened(folder, pattern="*.tfrecord", vocab_file=None, tokens=TOKENS):
    return existing_records_not_from_text(
        f"{folder}/{pattern}", None, vocab_file, len(tokens), 16, 3, "mlm"
    )


def without_last(path):
    """Cuts a file at the border of its last record."""
    data, at = pathlib.Path(path).read_bytes(), [0]
    while at[-1] < len(data):
        at.append(at[-1] + 16 + int.from_bytes(data[at[-1] : at[-1] + 8], "little"))
    pathlib.Path(path).write_bytes(data[: at[-2]])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return pathlib.Path(shutil.copytree(made, tmp_path / "set"))


def test_marks(made, caplog):
    files = sorted(map(str, made.iterdir()))
    for number, path in enumerate(files):
        mark, is_whole = read_mark(path)
        assert is_whole and (mark.number, mark.count) == (number, 3)
        assert mark.records == count_records(path) > 1
        assert mark.vocabulary == vocabulary_checksum(TOKENS)
        first, second = list(tf.data.TFRecordDataset(path).take(2))
        # As the original reads it: features that aren't asked for don't exist.
        parsed = tf.io.parse_single_example(first, feature_description(16, 3))
        assert set(parsed) == set(feature_description(16, 3))
        plain = set(tf.train.Example.FromString(second.numpy()).features.feature)
        marked = set(tf.train.Example.FromString(first.numpy()).features.feature)
        assert plain == set(parsed) and len(marked - plain) == 7
    caplog.set_level(logging.INFO)
    assert opened(made).vocabulary == vocabulary_checksum(TOKENS)
    assert not caplog.text


def test_a_missing_file(folder):
    (folder / "a-00002-of-00003.tfrecord").unlink()
    with pytest.raises(DataError, match=r"a-00002-of-00003.tfrecord isn't there.*are 3 files"):
        opened(folder)


def test_files_that_are_there_may_be_left_out(folder, caplog):
    caplog.set_level(logging.INFO)
    opened(folder, "a-0000[02]-*")
    assert "Of the 3 files" in caplog.text and "2 are read" in caplog.text


def test_files_counted_from_one_are_complete(folder):
    for number in (2, 1, 0):
        path = folder / f"a-0000{number}-of-00003.tfrecord"
        path.rename(folder / f"a-0000{number + 1}-of-00003.tfrecord")
    opened(folder)


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_at_a_records_border(folder, packed):
    path = folder / "a-00001-of-00003.tfrecord"
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
        opened(folder)
        path.write_bytes(gzip.decompress(path.read_bytes()))
    without_last(path)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataError, match=r"a-00001-of-00003.tfrecord has \d+ records.*it was cut"):
        opened(folder)


def test_records_behind_the_last(folder):
    path = folder / "a-00000-of-00003.tfrecord"
    data = path.read_bytes()
    path.write_bytes(2 * data)
    with pytest.raises(DataError, match=r"a-00000-of-00003.tfrecord has \d+ records.*joined with"):
        opened(folder)
    path.write_bytes(data[:-7])
    with pytest.raises(DataError, match=r"a-00000-of-00003.tfrecord: record \d+ is truncated"):
        opened(folder)


def test_records_that_another_program_changed(folder, caplog):
    """All are there, the mark in the first one too."""
    path = folder / "a-00000-of-00003.tfrecord"
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            example = tf.train.Example.FromString(record)
            example.features.feature["more"].int64_list.value.append(1)
            writer.write(example.SerializeToString())
    caplog.set_level(logging.INFO)
    opened(folder)
    assert "a-00000-of-00003.tfrecord has all its records, but they were changed" in caplog.text


def test_one_file_twice(folder):
    shutil.copy(folder / "a-00000-of-00003.tfrecord", folder / "a-00001-of-00003.tfrecord")
    with pytest.raises(DataError, match=r"a-00001-\S+ holds the same records as \S+a-00000-"):
        opened(folder)


def test_a_file_of_another_run(folder, tmp_path):
    other = [*TOKENS[:-2], "five", "four"]
    files = make(tmp_path / "other", tokens=other)
    shutil.copy(files[1], folder)
    with pytest.raises(DataError, match="made with different vocabularies"):
        opened(folder)
    problems = examine_sets(sorted(map(str, folder.iterdir()))).problems
    assert len(problems) == 2 and "of different sets" in problems[1]


def test_another_vocabulary_of_equal_size(folder, tmp_path):
    opened(folder, vocab_file=write_vocab(tmp_path / "same.txt", end="\r\n"))
    other = write_vocab(tmp_path / "other.txt", [*TOKENS[:-2], "five", "four"])
    with pytest.raises(DataError, match="made with another vocabulary"):
        opened(folder, vocab_file=other)


def test_an_emptied_file_is_refused(folder):
    path = folder / "a-00001-of-00003.tfrecord"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=f"{path} has no records, but .*none of the 3 files"):
        opened(folder)


def test_files_that_were_made_empty(tmp_path, caplog):
    files = make(tmp_path / "b", 200)
    empty = [path for path in files if not pathlib.Path(path).stat().st_size]
    caplog.set_level(logging.INFO)
    opened(tmp_path / "b")
    assert 0 < len(empty) < 200 and "made empty" not in caplog.text
    pathlib.Path(files[0]).write_bytes(b"")
    with pytest.raises(
        DataError, match=rf"and {len(empty) - 2} more have no records.*{len(empty)}"
    ):
        opened(tmp_path / "b")


def test_files_of_the_original(tmp_path, folder, caplog):
    """Their records have no more features than they need."""
    path = tmp_path / "original.tfrecord"
    source = str(folder / "a-00000-of-00003.tfrecord")
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in tf.data.TFRecordDataset(source).skip(1):
            writer.write(record.numpy())
    caplog.set_level(logging.INFO)
    assert opened(tmp_path, "original.tfrecord").vocabulary is None
    assert "Not checked: whether" in caplog.text and str(path) in caplog.text


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory):
    """Files with a manifest."""
    folder = tmp_path_factory.mktemp("job")
    text = "\n\n".join("\n".join(SENTENCES[k:] + SENTENCES[:k]) for k in range(8))
    (folder / "1.txt").write_text(text)
    vocab_file = write_vocab(folder / "vocab.txt")
    name, files = name_shards(str(folder / "a.tfrecord"), 2)
    write_job_locally(plan_job([str(folder / "1.txt")], files, vocab_file, SETTINGS, name=name))
    return folder


@pytest.fixture
def job(job_folder, tmp_path):
    return pathlib.Path(shutil.copytree(job_folder, tmp_path / "job"))


def test_a_manifest_names_all(job, folder, caplog):
    opened(job)
    shutil.copy(folder / "a-00000-of-00003.tfrecord", job)
    with pytest.raises(DataError, match=r"a-00000-of-00003\S+ is to be read, but \S+ doesn't name"):
        opened(job)
    (job / "a-00000-of-00003.tfrecord").rename(job / "more.tfrecord")
    opened(job)
    assert "doesn't name more.tfrecord" in caplog.text


def test_a_manifest_names_a_file_that_is_gone(job):
    (job / "a-00001-of-00002.tfrecord").unlink()
    with pytest.raises(DataError, match=r"a-00001-of-00002.tfrecord isn't there, but \S+manifest"):
        opened(job)


def test_inspection_tells_of_sets(job, folder):
    files = sorted(map(str, folder.iterdir()))
    sets = inspect_sets(files, TOKENS)
    report = text_report(summarize_inspection(inspect_record_files(files), sets=sets))
    total = sum(map(count_records, files))
    assert f"3 of 3 files have {total:,} records" in report and not sets.problems
    without_last(files[2])
    sets = inspect_sets(files, [*TOKENS[:-2], "five", "four"])
    assert ["it was cut" in problem for problem in sets.problems] == [True, False, False, False]
    assert "made with another vocabulary" in text_report(
        summarize_inspection(inspect_record_files(files), sets=sets)
    )
    with pytest.raises(DataError, match="it was cut"):
        sets.check()
    records = job / "a-00001-of-00002.tfrecord"
    records.write_bytes(records.read_bytes()[:-1])
    assert "says that it was made with" in inspect_sets([str(records)]).problems[0]
