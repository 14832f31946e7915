"""At least 100,000 instances against the paper's numbers (sections 3.1 and A.2), with tolerances.

The golden corpus has the original's statistics beside it (2,791 instances); real text is compared
with the original's way in plain Python on a part of it.
"""

import json
import random

import numpy as np
import pytest

from data.pretraining.corpus import expand, read_documents
from tests import scripts
from tests.reference import plain_pretraining_data

pytestmark = pytest.mark.slow
LENGTH = 128


def make(folder, text, vocab_file, dupe_factor, **settings) -> dict:
    """Records of the command's own defaults, as data.inspect_records counts them."""
    scripts.succeed(
        *("-m", "data.create_pretraining_data", f"--input_file={text}"),
        *(f"--output_file={folder}/made.tfrecord", "--num_shards=2", "--num_workers=2"),
        *(f"--vocab_file={vocab_file}", f"--dupe_factor={dupe_factor}"),
        *(f"--{name}={value}" for name, value in settings.items()),
    )
    scripts.succeed(
        *("-m", "data.inspect_records", f"{folder}/made-*.tfrecord", "--num_records=0"),
        *(f"--vocab_file={vocab_file}", f"--json={folder}/made.json"),
    )
    for path in folder.glob("made*.tfrecord*"):
        path.unlink()
    found = json.loads((folder / "made.json").read_text())
    assert found["complete"] and not found["damaged_records"]
    assert found["records"] >= 100_000
    return found


def check_masks_and_pairs(found: dict) -> None:
    """What the paper says of every corpus."""
    pairs, replaced = found["next_sentence"], found["replaced"]
    assert pairs["records_with_second_segment"] == found["records"]
    assert abs(pairs["random"]["share"] - 0.5) < 0.005
    # 15 % of each instance's length, rounded: of 128 pieces 19, which is 14.8 %.
    assert abs(found["masked_share"] - 0.15) < 0.002
    for name, share in (("mask", 0.8), ("random", 0.1), ("kept", 0.1)):
        assert abs(replaced[name]["share"] - share) < 0.002, name
        assert replaced[name]["low"] < share < replaced[name]["high"], name
    predictions = found["predictions_per_record"]
    assert predictions["min"] >= 1 and predictions["max"] == 19


def lengths_of(found: dict) -> np.ndarray:
    """The share of records of each length, 0 to LENGTH."""
    counts = np.zeros(LENGTH + 1)
    for length, count in found["length"]["histogram"].items():
        counts[int(length)] = count
    return counts / counts.sum()


def test_golden_corpus(tmp_path, golden, shared_data):
    text = golden / "corpus_small.txt"
    vocab_file = shared_data / "vocab/bert-uncased-en/vocab.txt"
    found = make(tmp_path, text, vocab_file, dupe_factor=300)
    check_masks_and_pairs(found)
    stats = json.loads((golden / "pretraining_data_stats.json").read_text())["stats"]
    original = next(
        s
        for s in stats
        if s["file"] == text.name
        and s["dupe_factor"] == 5
        and not s["do_whole_word_mask"]
        and s["max_seq_length"] == LENGTH
        and s["short_seq_prob"] == 0.1
        and s["max_predictions_per_seq"] == 20
    )
    # Documents don't fall apart into short instances, so more are of the full length.
    assert 1.05 < found["length"]["mean"] / original["length_mean"] < 1.08
    assert 0.08 < found["full_length_share"] - original["frac_full_length"] < 0.12


def plainly(folder, files, vocab_file, megabytes: float) -> list[plain_pretraining_data.Instance]:
    """The original's instances of the beginning of a corpus, one pass."""
    text, size = [], 0
    for document in read_documents(files):
        text.append("\n".join(document.sentences) + "\n\n")
        size += len(text[-1])
        if size > megabytes * 1e6:
            break
    (folder / "text.txt").write_text("".join(text), "utf-8")
    vocab = {token: i for i, token in enumerate(vocab_file.read_text("utf-8").split("\n")[:-1])}
    rng = random.Random(1)
    documents = plain_pretraining_data.read([folder / "text.txt"], vocab, rng)
    return plain_pretraining_data.instances(documents, vocab, LENGTH, 20, 1, 0.15, 0.1, rng)


@pytest.mark.hours
def test_wikipedia(tmp_path, shared_data):
    vocab_file = shared_data / "vocab/bert-uncased-en/vocab.txt"
    corpus = str(shared_data / "corpora/enwiki/train/*")
    found = make(tmp_path, corpus, vocab_file, dupe_factor=1)
    check_masks_and_pairs(found)
    none, short = (
        lengths_of(make(tmp_path, corpus, vocab_file, dupe_factor=1, short_seq_prob=share))
        for share in (0, 1)
    )
    ours = lengths_of(found)
    # One instance in ten aims at a shorter length, drawn evenly.
    assert distance(ours, 0.9 * none + 0.1 * short) < 0.003
    # All of the original's lengths, but for the ends of documents.
    plain = [len(made.tokens) for made in plainly(tmp_path, expand(corpus), vocab_file, 4)]
    theirs = np.bincount(plain, minlength=LENGTH + 1) / len(plain)
    assert distance(ours, theirs) < 0.06
    assert 0 < ours[LENGTH] - theirs[LENGTH] < 0.06
    assert abs(found["segment_a_length"]["mean"] / found["segment_b_length"]["mean"] - 1) < 0.1


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference between two distributions (Kolmogorov-Smirnov)."""
    return np.abs(np.cumsum(one - other)).max()
