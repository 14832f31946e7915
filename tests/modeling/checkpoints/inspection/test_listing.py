"""What a folder could be: every example of another library, damaged ones, strangers, releases."""

import dataclasses
import hashlib
import re

import pytest

from modeling.checkpoints import find, tf1
from modeling.checkpoints.inspection import listing, releases
from modeling.config import BertConfig
from modeling.costs.cost_model import parameters
from modeling.errors import ModelingError
from tests.modeling.test_convert_checkpoint import CONFIG, write_release
from tests.reference import numpy_bert
from tests.scripts import ROOT, fail, succeed

README = (ROOT / "modeling/checkpoints/README.md").read_text(encoding="utf-8")


@pytest.fixture
def release(tmp_path):
    return write_release(tmp_path / "uncased_L-2_H-4_A-2", ["pretraining"])


def test_all_examples_are_what_find_says(golden):
    folders = [path for path in (golden / "formats").iterdir() if path.is_dir()]
    assert len(folders) > 15
    for folder in folders:
        rows = listing.list_formats(folder)
        assert len({row.format for row in rows}) == len(rows) == 8
        kept = [(row.format, row.file) for row in rows if row.is_read]
        assert find(folder) in kept, folder
        assert len(kept) == 1, (folder, kept)
        assert all("2 layers; 32 wide, 99 tokens" in row.verdict for row in rows if row.is_read)
        assert all(row.verdict for row in rows)


def test_why_it_is_not(release, tmp_path):
    rows = {row.format: row for row in listing.list_formats(release)}
    assert rows["tf1"].is_read and "heads: pretraining" in rows["tf1"].verdict
    assert rows["tf1"].verdict.endswith("configuration: bert_config.json")
    assert "pytorch_model.bin" in rows["pytorch"].verdict and not rows["pytorch"].file
    assert rows["model garden"].verdict.endswith("inside, bert_model.ckpt.index isn't it")
    assert listing.describe_release(release)[0].endswith("bert_model.ckpt")

    (release / "bert_model.ckpt.index").write_bytes(b"torn")
    (release / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    rows = {row.format: row for row in listing.list_formats(release)}
    assert not any(row.is_read for row in rows.values())
    assert rows["tf1"].verdict.startswith("damaged or refused:")
    assert rows["pytorch"].file.endswith("pytorch_model.bin")
    assert rows["pytorch"].verdict.startswith("damaged or refused:")

    stranger = tmp_path / "stranger"
    tf1.write_bundle(
        stranger / "model.ckpt",
        {"dense/kernel": numpy_bert.random_weights(CONFIG)["bert/pooler/dense/kernel"]},
    )
    row = listing.list_formats(stranger)[0]
    assert not row.is_read and row.verdict == "none of BERT's weights: it holds dense/kernel"
    with pytest.raises(ModelingError, match="There is no checkpoint at"):
        listing.list_formats(tmp_path / "nothing")


def test_a_release_is_known_by_its_checksums(release, monkeypatch):
    data = (release / "bert_model.ckpt.data-00000-of-00001").read_bytes()
    vocabulary = (release / "vocab.txt").read_bytes()
    known = dataclasses.replace(
        releases.RELEASES[0],
        weights=hashlib.sha256(data).hexdigest(),
        vocabulary=hashlib.sha256(vocabulary).hexdigest(),
    )
    monkeypatch.setattr(releases.Release, "weights_bytes", len(data))
    monkeypatch.setattr(releases, "RELEASES", (known,))
    lines = listing.describe_release(release)
    assert lines[1] == "Weights: those of BERT-Base, Uncased, as released, to the last bit."
    assert lines[2].endswith("2 tokens, of BERT-Base, Uncased.")
    changed = bytes([data[0] ^ 1]) + data[1:]
    (release / "bert_model.ckpt.data-00000-of-00001").write_bytes(changed)
    (release / "vocab.txt").write_bytes(vocabulary + b"x\n")
    lines = listing.describe_release(release)
    assert len(lines) == 2 and lines[1].endswith("3 tokens.")


@pytest.mark.parametrize(
    ("number", "vocab_size"),
    enumerate((30522, 30522, 28996, 28996, 119547, 105879, 21128, 30522, 28996)),
)
def test_sizes_follow_from_the_configuration(number, vocab_size):
    one = releases.RELEASES[number]
    name = re.search(r"L-(\d+)_H-(\d+)_A-(\d+)", one.path)
    layers, width, heads = map(int, name.groups())
    config = BertConfig(vocab_size, width, layers, heads, 4 * width, type_vocab_size=2)
    assert one.parameters == parameters(config)


def test_the_small_releases_are_found_too():
    hint = releases.hint_of_release("models/uncased_L-4_H-256_A-4/bert_model.ckpt")
    assert f"{releases.BASE_URL}2020_02_20/uncased_L-4_H-256_A-4.zip" in hint
    assert "uncased_L-4_H-256_A-4.zip" in README
    assert "2018_10_18" in releases.hint_of_release("uncased_L-12_H-768_A-12")
    assert releases.BASE_URL not in releases.hint_of_release("uncased_L-5_H-256_A-4")


def test_the_guide_has_the_same_table():
    table = README.partition("<!-- releases -->")[2].partition("<!-- /releases -->")[0]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.split("\n")]
    assert [row for row in rows if len(row) == 4][2:] == [
        [one.name, one.path, f"{one.weights_bytes:,} bytes", one.weights]
        for one in releases.RELEASES
    ]


def test_the_command(release, tmp_path):
    shown = succeed("-m", "modeling.convert_checkpoint", "--list", f"--input={release}")
    assert re.search(r"^yes  tf1 +bert_model.ckpt: 2 layers; 4 wide", shown, re.MULTILINE)
    assert shown.count("\nno   ") == 7 and "Read as tf1: " in shown
    command = "-m", "modeling.convert_checkpoint", f"--input={release}"
    idle = fail(*command, "--list", "--format=tf1", "--student_num_layers=1")
    assert "so that --format, --student_num_layers says nothing" in idle
    message = fail(*command)
    assert "--output is missing" in message


def test_missing_files_name_where_weights_are(tmp_path):
    folder = tmp_path / "cased_L-12_H-768_A-12"
    for flag, file in (
        ("init_checkpoint", "bert_model.ckpt"),
        ("vocab_file", "vocab.txt"),
        ("bert_config_file", "bert_config.json"),
    ):
        message = fail(
            *("run_classifier.py", "--task_name=sst-2", "--do_train", f"--data_dir={tmp_path}"),
            *(f"--output_dir={tmp_path}/out", f"--{flag}={folder}/{file}"),
        )
        assert f"{folder}/{file}" in message
        assert f"{releases.BASE_URL}2018_10_18/cased_L-12_H-768_A-12.zip" in message
        assert '"Getting weights"' in message
