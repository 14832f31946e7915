"""The command: what it prints and writes, and how it ends."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests import scripts

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "house", "tree", "##s"]
S = 12


def record(a, b, at, label, stands, random=0):
    ids = [2, *a, 3, *b, 3]
    ids[at] = stands
    lists = {
        "input_ids": ids + [0] * (S - len(ids)),
        "input_mask": [1] * len(ids) + [0] * (S - len(ids)),
        "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (S - len(ids)),
        "masked_lm_positions": [at, 0],
        "masked_lm_ids": [label, 0],
        "next_sentence_labels": [random],
    }
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in lists.items()
    }
    weights = tf.train.FloatList(value=[1.0, 0.0])
    feature["masked_lm_weights"] = tf.train.Feature(float_list=weights)
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def write(path, records, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for one in records:
            writer.write(one)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    good = [record([5, 6, 8], [5, 7], 2, 6, 4), record([5, 6], [7, 7], 2, 6, 7, 1)]
    write(folder / "1.tfrecord", good * 10)
    write(folder / "2.tfrecord.gz", good, "GZIP")
    write(folder / "damaged.tfrecord", [*good, record([5, 6], [5], 0, 2, 4)])
    return folder


def run(*arguments):
    return scripts.run("-m", "data.inspect_records", *arguments)


def test_command(folder):
    done = run(
        folder / "?.tfrecord*",
        "--vocab_file",
        folder / "vocab.txt",
        folder / "1.tfrecord",
        "--num_records=2",
        f"--json={folder}/numbers.json",
        f"--plot={folder}/numbers.png",
    )
    assert done.returncode == 0, done.stderr
    blocks = done.stdout.split("\n\n")
    assert blocks[0].splitlines()[1:] == ["  A  the [MASK→house]s", "  B  the tree"]
    assert blocks[0].startswith(f"{folder}/1.tfrecord:0  8 of 12 pieces, 1 prediction, B follows A")
    assert blocks[1].splitlines()[1:] == ["  A  the [random: tree→house]", "  B  tree tree"]
    assert blocks[2].startswith("2 files, 22 records\n")
    numbers = json.loads((folder / "numbers.json").read_text())
    assert numbers["records"] == numbers["predictions"] == 22 and numbers["complete"]
    assert numbers["next_sentence"]["random"]["share"] == 0.5
    assert numbers["most_predicted"] == [{"id": 6, "count": 22, "share": 1.0, "piece": "house"}]
    pixels = tf.io.decode_png((folder / "numbers.png").read_bytes()).numpy()
    assert np.unique(pixels).size > 50
    assert not list(folder.glob("*.tmp"))


def test_chosen_records(folder):
    done = run("--record=1,2.tfrecord.gz:0", f"--input_file={folder}/1.*", f"{folder}/2.*")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{folder}/1.tfrecord:1  7 of 12 pieces, 1 prediction, B is random (label 1)",
        "  A  5 [7→6]",
        "  B  7 7",
        "",
        f"{folder}/2.tfrecord.gz:0  8 of 12 pieces, 1 prediction, B follows A (label 0)",
        "  A  5 [4→6] 8",
        "  B  5 7",
        "",
    ]


def test_damage(folder):
    done = run(folder / "damaged.tfrecord", "--num_records=0", f"--json={folder}/damaged.json")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stdout.startswith("1 file, 3 records, 1 of them damaged\n")
    assert f"{folder}/damaged.tfrecord: record 2 has one of the masked_lm_pos" in done.stdout
    message = " ".join(done.stderr.split("Error:")[-1].split())
    assert message.startswith("1 record is damaged of 3") and "record 2" in message
    numbers = json.loads((folder / "damaged.json").read_text())
    assert (numbers["records"], numbers["damaged_records"]) == (2, 1)
    assert [problem["record"] for problem in numbers["problems"]] == [2]
    done = run(folder / "damaged.tfrecord", "--num_records=0", "--max_records=2")
    assert done.returncode == 0 and "1 file, 2 records looked at\n" in done.stdout


def test_errors(folder):
    data = (folder / "1.tfrecord").read_bytes()
    for expected, *arguments in (
        ("No input file",),
        ("matches no file", folder / "absent"),
        ("has no record 20", folder / "1.tfrecord", "--record=20"),
        ("one of the records' files", folder / "1.tfrecord", f"--plot={folder}/1.tfrecord"),
        ("can't be written", folder / "1.tfrecord", f"--json={folder}/absent/x"),
        ("vocabulary file", folder / "1.tfrecord", "--vocab_file=absent"),
        ("lacks [PAD]", folder / "1.tfrecord", f"--vocab_file={folder}/1.tfrecord"),
    ):
        done = run(*arguments)
        assert done.returncode == 1 and "Traceback" not in done.stderr, expected
        assert expected in " ".join(done.stderr.split()), (expected, done.stderr)
    assert (folder / "1.tfrecord").read_bytes() == data
    done = run(folder / "1.tfrecord", "--unknown=1")
    assert done.returncode == 1 and "Unknown command line flag" in done.stderr
    done = run("--helpshort")
    assert "num_records" in done.stdout + done.stderr and "Traceback" not in done.stderr
