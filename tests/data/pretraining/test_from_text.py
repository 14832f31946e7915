"""From text to records: the settings that reach the records, and what a manifest saves."""

import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.corpus import Document
from data.pretraining.from_text import (
    PretrainingText,
    existing_records_not_from_text,
    make_records_from_text,
)
from data.pretraining.instances.masking import MaskingVocabulary, MaskSettings
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.records.schema import feature_description

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "four", "five"]
MASK = TOKENS.index("[MASK]")


def documents():
    lines = [" ".join(TOKENS[5 + (i * k) % 5] for i in range(9)) for k in range(1, 12)]
    lines[0] = lines[0].replace("one", "\u00f3ne")
    return [Document(lines[k % 5 :], f"made:{k}") for k in range(12)]


def make(folder, tokens=TOKENS, kept=None, **changes):
    folder.mkdir(exist_ok=True)
    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("\n".join(tokens))
    settings = InstanceSettings(
        max_seq_length=32, max_predictions_per_seq=5, dupe_factor=2, **changes
    )
    text = PretrainingText(documents=documents, name="made")
    return make_records_from_text(
        text, str(folder), len(TOKENS), settings, str(vocab_file), kept_vocab_file=kept
    )


def read(files):
    records = [r.numpy() for r in tf.data.TFRecordDataset(files)]
    return {
        k: v.numpy() for k, v in tf.io.parse_example(records, feature_description(32, 5)).items()
    }


@pytest.mark.parametrize(("mask", "random"), [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0)])
def test_masking_mixture(tmp_path, mask, random):
    made = make(tmp_path, mask_share=mask, random_share=random)
    for files in (made.train_files, made.eval_files):
        found = read(files)
        row, slot = np.nonzero(found["masked_lm_weights"])
        shown = found["input_ids"][row, found["masked_lm_positions"][row, slot]]
        truth = found["masked_lm_ids"][row, slot]
        assert len(truth) > 20
        assert (shown == MASK).all() if mask else not (shown == MASK).any()
        if not mask:
            # One random piece in five is the same by chance.
            assert (shown == truth).mean() == 1 if not random else (shown == truth).mean() < 0.5


def test_another_mixture_makes_the_records_anew(tmp_path):
    first = read(make(tmp_path).train_files)
    again = read(make(tmp_path, mask_share=0.0).train_files)
    assert (first["input_ids"] == MASK).any() and not (again["input_ids"] == MASK).any()
    times = [tf.io.gfile.stat(f).mtime_nsec for f in make(tmp_path, mask_share=0.0).train_files]
    assert times == [
        tf.io.gfile.stat(f).mtime_nsec for f in make(tmp_path, mask_share=0.0).train_files
    ]


def test_accents_are_part_of_the_identity_where_they_say_something(tmp_path):
    first = read(make(tmp_path).train_files)
    note = tmp_path / "records" / "made.json"
    before = note.read_bytes()
    make(tmp_path, strip_accents=True)
    assert note.read_bytes() == before and b"strip_accents" not in before
    again = read(make(tmp_path, strip_accents=False).train_files)
    unknown = TOKENS.index("[UNK]")
    assert (first["input_ids"] != again["input_ids"]).any()
    assert (again["input_ids"] == unknown).any() and not (first["input_ids"] == unknown).any()
    # As it was written before there was a choice.
    assert str(InstanceSettings()).startswith("InstanceSettings(max_seq_length=128, max_pred")
    assert "do_lower_case=True, random_seed=12345, mask_share" in str(InstanceSettings())
    assert "do_lower_case=True, strip_accents=False" in str(InstanceSettings(strip_accents=False))


def test_whatever_text_is_read_is_part_of_the_identity(tmp_path, caplog):
    """A file moved to the other side, another field, and another text of the same size."""
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    for name, words in (("a", ("one", "two")), ("b", ("three", "four"))):
        lines = [json.dumps({"text": f"{words[0]} " * 9, "body": f"{words[1]} " * 9})] * 12
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    settings = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5, mask_share=0.0)
    settings = dataclasses.replace(settings, random_share=0.0)

    fingerprints = []

    def words(train, evaluate, field="text"):
        files = [[str(tmp_path / f"{name}.jsonl") for name in side] for side in (train, evaluate)]
        text, held_out = (PretrainingText(side, text_field=field) for side in files)
        given = (str(tmp_path), len(TOKENS), settings, str(tmp_path / "vocab.txt"))
        made = make_records_from_text(text, *given, held_out=held_out if evaluate else None)
        fingerprints.append(made.fingerprint())
        found = (np.unique(read(f)["input_ids"]) for f in (made.train_files, made.eval_files))
        return [{TOKENS[i] for i in ids if i >= 5} for ids in found]

    assert words("ab", "")[0] == {"one", "three"}
    assert words("a", "b") == [{"one"}, {"three"}]
    assert words("b", "a") == [{"three"}, {"one"}]
    assert words("b", "a", "body") == [{"four"}, {"two"}]
    path = tmp_path / "b.jsonl"
    time = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("four", "five"))
    os.utime(path, ns=(time, time))
    assert words("b", "a", "body") == [{"five"}, {"two"}]
    assert len(set(fingerprints)) == 5
    # Where a file lies is no part of it.
    path = path.rename(tmp_path / "c.jsonl")
    assert words("c", "a", "body") == [{"five"}, {"two"}]
    assert fingerprints[-1] == fingerprints[-2]
    path.rename(tmp_path / "b.jsonl")
    assert "trained on as well" not in caplog.text
    assert words("ab", "a") == [{"one", "three"}, {"one"}]
    assert "1 of the files to evaluate on are trained on as well" in caplog.text


@pytest.mark.parametrize("count", [12, 1200])
@pytest.mark.parametrize("held_out", [False, True])
def test_text_besides_is_trained_on_alone(tmp_path, count, held_out):
    """From documents in memory and by parts; what is held out stays the same."""
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    for name, word, number in (("own", "one", count), ("held", "two", 4), ("general", "three", 9)):
        bits = [f"{n:011b}".replace("0", " four").replace("1", " five") for n in range(number)]
        documents = [f"{word}{each}\n{word} four" for each in bits]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
    own, held, general = (
        PretrainingText([str(tmp_path / f"{n}.txt")]) for n in ("own", "held", "general")
    )
    settings = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5, mask_share=0.0)
    settings = dataclasses.replace(settings, random_share=0.0)
    given = (len(TOKENS), settings, str(tmp_path / "vocab.txt"), held if held_out else None)
    made = [
        make_records_from_text(own, str(tmp_path / name), *given, besides=besides)
        for name, besides in (("without", None), ("with", general))
    ]
    one, two, three = (TOKENS.index(word) for word in ("one", "two", "three"))
    trained = [np.unique(read(each.train_files)["input_ids"]) for each in made]
    assert one in trained[0] and three not in trained[0] and two not in trained[0]
    assert one in trained[1] and three in trained[1] and two not in trained[1]
    before, after = (read(each.eval_files)["input_ids"] for each in made)
    np.testing.assert_array_equal(before, after)
    assert (two if held_out else one) in before
    assert made[0].fingerprint() != made[1].fingerprint()
    given = given[0], dataclasses.replace(settings, dynamic_masking=True), *given[2:]
    streamed = make_records_from_text(own, str(tmp_path / "stream"), *given, besides=general)
    # What isn't split in memory is read as it is.
    assert bool(streamed.train_files) == (count < 1000 and not held_out)
    masks = MaskSettings(MaskingVocabulary.from_tokens(TOKENS), mask_share=0.0, random_share=0.0)
    how = {"batch_size": 32, "seed": 1, "dynamic_masking": masks, "pack_sequences": False}
    how |= {"num_shards": 1, "shard_index": 0}
    batches = streamed.batches(True, 32, 5, len(TOKENS), **how).take(80)
    seen = np.unique([batch["input_ids"] for batch in batches.as_numpy_iterator()])
    assert one in seen and three in seen and two not in seen


def test_records_made_before_are_told_apart_wherever_they_lie(tmp_path):
    one, two = (make(tmp_path / str(seed), random_seed=seed) for seed in (1, 2))
    shutil.copytree(tmp_path / "1", tmp_path / "copy")

    def fingerprint(files, held_out=""):
        found = existing_records_not_from_text(files, held_out, None, len(TOKENS), 32, 5, "mlm")
        return found.fingerprint()

    found = [fingerprint(f"{tmp_path}/{name}/records/train*") for name in ("1", "copy", "2")]
    assert found[0] == found[1] != found[2]
    held_out = two.eval_files[0]
    assert fingerprint(",".join(one.train_files), held_out) != found[0]  # now all are trained on


def test_shares_are_checked(tmp_path):
    with pytest.raises(DataError, match=r"make 1\.5"):
        make(tmp_path, mask_share=0.8, random_share=0.7)


def test_records_from_before_are_checked(tmp_path):
    made = make(tmp_path)
    # Left by a run on a corpus that was large enough for a manifest.
    (tmp_path / "records" / "train.tfrecord.manifest.json").write_text('{"files": []}')
    make(tmp_path, mask_share=0.0)
    make(tmp_path, mask_share=0.0)
    path = pathlib.Path(made.eval_files[0])
    data = path.read_bytes()
    path.write_bytes(data[: 16 + int.from_bytes(data[:8], "little")])
    with pytest.raises(DataError, match=r"heldout.tfrecord has 1 records.*it was cut"):
        make(tmp_path, kept="weights/vocab.txt", mask_share=0.0)
    # Before weights were trained with them they are made again.
    make(tmp_path, mask_share=0.0)
    assert path.read_bytes() == data


def test_a_vocabulary_that_has_changed_where_it_lies(tmp_path, caplog):
    made = make(tmp_path)
    other = [*TOKENS[:5], *TOKENS[:4:-1]]
    with pytest.raises(DataError, match="another vocabulary"):
        make(tmp_path, other, kept="weights/vocab.txt")
    before = read(made.train_files)["input_ids"]
    make(tmp_path, other)
    assert (
        "are made again: " in caplog.text and (read(made.train_files)["input_ids"] != before).any()
    )
    caplog.clear()
    make(tmp_path, other)
    assert "already" in caplog.text


def test_a_damaged_file_of_a_large_corpus_is_made_again(tmp_path):
    """By its checksum, which a job that was done goes without."""
    for name in ("text", "held"):
        documents_ = [f"{' '.join(d.sentences)} {name} {d.source}" for d in documents()]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents_))
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    text, held = (PretrainingText([f"{tmp_path}/{name}.txt"]) for name in ("text", "held"))
    settings = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5)
    how = text, str(tmp_path), len(TOKENS), settings, str(tmp_path / "vocab.txt"), held
    made = make_records_from_text(*how)
    path = next(p for p in map(pathlib.Path, made.train_files) if p.stat().st_size > 1000)
    data = path.read_bytes()
    path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    with pytest.raises(DataError, match="another checksum"):
        make_records_from_text(*how, kept_vocab_file="weights/vocab.txt")
    make_records_from_text(*how)
    assert path.read_bytes() == data


def test_parts_of_a_larger_corpus_do_not_stay(tmp_path):
    """As a job leaves them that was stopped, of the same names."""
    made = make(tmp_path)
    names = [os.path.basename(path) for path in made.train_files]
    for side in ("train", "heldout"):
        parts = tmp_path / "records" / f"{side}.tfrecord.parts"
        parts.mkdir()
        job = {"fingerprint": "x", "output_files": names if side == "train" else made.eval_files}
        (parts / "job.json").write_text(json.dumps(job))
    make(tmp_path, mask_share=0.0)
    make(tmp_path, mask_share=0.0, kept="weights/vocab.txt")  # finds them whole
    assert not list((tmp_path / "records").glob("*.parts"))


def test_a_stream_of_nothing_is_refused(tmp_path):
    """Its endless epochs would be waited for."""
    for name, text in (("own", ""), ("held_out", "one two\nthree\n\nfour\none")):
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    own, held_out = (PretrainingText([f"{tmp_path}/{n}.txt"]) for n in ("own", "held_out"))
    given = len(TOKENS), InstanceSettings(32, 5, dynamic_masking=True), f"{tmp_path}/vocab.txt"
    with pytest.raises(DataError, match=r"no text to train on in \S+own\.txt"):
        make_records_from_text(own, str(tmp_path), *given, held_out)


def test_what_data_is_does_not_hang_on_where_it_lies(tmp_path):
    """A copy, and a file that was touched, are the same data to train and to evaluate on."""
    text = "\n\n".join(f"{' '.join(d.sentences)} {k}." for k, d in enumerate(documents() * 100))
    settings = InstanceSettings(32, 5, dynamic_masking=True)
    found = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.txt").write_text(text)
        (folder / "vocab.txt").write_text("\n".join(TOKENS))
        corpus = PretrainingText([str(folder / f"{name}.txt")])
        vocab_file = str(folder / "vocab.txt")
        found.append(make_records_from_text(corpus, str(folder), len(TOKENS), settings, vocab_file))
    one, other = found
    assert one.corpus and one.describe() == other.describe()
    assert one.describe(former=True) != other.describe(former=True)
    assert one.fingerprint() == other.fingerprint()
    assert one.held_out_fingerprint() == other.held_out_fingerprint()
    held_out = PretrainingText(documents=documents, name="other")
    third = make_records_from_text(
        corpus, str(tmp_path / "c"), len(TOKENS), settings, vocab_file, held_out
    )
    assert third.held_out_fingerprint() != one.held_out_fingerprint()


def test_the_vocabulary_of_trained_weights_stays(tmp_path):
    """Beside the weights, where none was learned for them."""
    settings = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5)
    text = PretrainingText(documents=documents, name="made")
    kept = tmp_path / "vocab.txt"
    kept.write_text("\n".join([*TOKENS[:5], *reversed(TOKENS[5:])]) + "\n")
    for name, path in (("on", str(kept)), ("new", None), ("absent", str(tmp_path / "absent.txt"))):
        made = make_records_from_text(
            text, str(tmp_path / name), len(TOKENS), settings, kept_vocab_file=path
        )
        same = pathlib.Path(made.vocab_file).read_text().split() == kept.read_text().split()
        assert same == (name == "on")


def test_phases_of_equal_records_share_them(tmp_path, caplog):
    """The later one is given the vocabulary that the first has learned, at a restart too."""
    settings = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5)
    text = PretrainingText(documents=documents, name="made")
    place = text, str(tmp_path), len(TOKENS), settings
    first = make_records_from_text(*place)
    written = [pathlib.Path(path).stat().st_mtime_ns for path in first.train_files]
    for vocab_file in (first.vocab_file, None, first.vocab_file):
        caplog.clear()
        assert make_records_from_text(*place, vocab_file).train_files == first.train_files
        assert "already" in caplog.text
    assert [pathlib.Path(path).stat().st_mtime_ns for path in first.train_files] == written


def test_a_text_that_the_vocabulary_cannot_spell_is_told_of(tmp_path, caplog):
    make(tmp_path)
    assert "are [UNK]" not in caplog.text
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*TOKENS[:5], "eins", "zwei", "three", "four", "five"]))
    settings = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5)
    text = PretrainingText(documents=documents, name="made")
    make_records_from_text(text, str(tmp_path / "2"), len(TOKENS), settings, str(other))
    assert "the documents given: " in caplog.text and "%) are [UNK]" in caplog.text
