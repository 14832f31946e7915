"""What lies beside a model's weights, and what is done about it when it contradicts itself."""

import json
import shutil

import pytest

from modeling import checkpoints
from modeling.checkpoints.model_folder import (
    keep_model_files,
    kept_model_files,
    labels_of_checkpoint,
    open_model_folder,
)
from modeling.checkpoints.vocabularies import TextFolding, text_folding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
CONFIG = BertConfig(
    vocab_size=8,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=8,
)
CASED = TextFolding(False)


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(TOKENS) + "\n")
    return str(path)


@pytest.fixture
def run(tmp_path, vocab_file):
    """The folder of a run."""
    folder = tmp_path / "run"
    folder.mkdir()
    keep_model_files(str(folder), CONFIG.with_head("classes", ["no", "yes"]), vocab_file, CASED)
    return folder


def test_all_of_it_is_kept(run):
    known = kept_model_files(str(run))
    assert (known.config.head, known.config.labels) == ("classes", ["no", "yes"])
    assert known.config.encoder_dict() == CONFIG.to_dict()
    assert (known.vocab_file, known.folding) == (str(run / "vocab.txt"), CASED)
    assert {path.name for path in run.iterdir()} == {
        *("bert_config.json", "vocab.txt", "tokenizer_config.json")
    }


def test_nothing_is_kept_by_others(tmp_path, vocab_file):
    keep_model_files(str(tmp_path), CONFIG, vocab_file, CASED, write=False)
    assert kept_model_files(str(tmp_path)) is None


def test_what_is_there_stays_and_has_to_agree(run, vocab_file):
    before = {path: path.read_bytes() for path in run.iterdir()}
    same = (str(run), CONFIG.with_head("classes", ["no", "yes"]), vocab_file, CASED)
    keep_model_files(*same)
    keep_model_files(str(run), CONFIG, vocab_file, CASED)  # as a release that tells no head
    assert {path: path.read_bytes() for path in run.iterdir()} == before
    with pytest.raises(ModelingError, match=r"id2label is .*no.* there and .*0.* here"):
        keep_model_files(str(run), CONFIG.with_head("classes", ["0", "1"]), vocab_file, CASED)
    with pytest.raises(ModelingError, match="head is classes there and tags here"):
        keep_model_files(str(run), CONFIG.with_head("tags"), vocab_file, CASED)
    other = BertConfig(**{**CONFIG.to_dict(), "hidden_act": "relu"})
    with pytest.raises(ModelingError, match="hidden_act is gelu there and relu here"):
        keep_model_files(str(run), other, vocab_file, CASED)
    with pytest.raises(ModelingError, match=r"tokenizer_config\.json is of another model.*False"):
        keep_model_files(str(run), CONFIG, vocab_file, TextFolding(True))
    with open(vocab_file, "a") as file:
        file.write("more\n")
    with pytest.raises(ModelingError, match="its tokens aren't those"):
        keep_model_files(str(run), CONFIG, vocab_file, CASED)


def test_weights_find_it(run):
    model = BertClassifier(CONFIG, 2)
    written = checkpoints.save(model, run / "weights")
    for path in written:
        if "bert_model" in path:
            shutil.move(path, path.replace("weights/bert_model.ckpt", "model.ckpt-3"))
    (run / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    # The best weights of a run lie one folder deeper.
    (run / "best").mkdir()
    for path in run.glob("model.ckpt-3.*"):
        shutil.copy(path, run / "best")
    for place in (run, run / "model.ckpt-3", run / "best"):
        known = open_model_folder(place)
        assert (known.config.labels, known.folding) == (["no", "yes"], CASED)
        assert known.vocab_file == str(run / "vocab.txt")
    # A search leaves no other weights than these.
    for path in [*run.glob("model.ckpt-3.*"), run / "checkpoint"]:
        path.unlink()
    assert checkpoints.find(run) == ("tf1", str(run / "best" / "model.ckpt-3"))


@pytest.mark.parametrize(
    ("files", "folding"),
    [
        ({}, TextFolding()),
        ({"tokenizer_config.json": {"do_lower_case": True}}, TextFolding(True)),
        (
            {"tokenizer_config.json": {"do_lower_case": True, "strip_accents": False}},
            TextFolding(True, False),
        ),
        (
            {"tokenizer.json": {"normalizer": {"lowercase": False, "strip_accents": None}}},
            TextFolding(False),
        ),
        # What transformers does: the former overrides the latter.
        (
            {
                "tokenizer_config.json": {"do_lower_case": False},
                "tokenizer.json": {"normalizer": {"lowercase": True}},
            },
            TextFolding(False),
        ),
        ({"tokenizer_config.json": {}, "tokenizer.json": {}}, TextFolding()),
        # A normalizer of other parts folds what these fold, and none folds nothing.
        ({"tokenizer.json": {"normalizer": None}}, TextFolding(False, False)),
        (
            {
                "tokenizer.json": {
                    "normalizer": {
                        "type": "Sequence",
                        "normalizers": [
                            {"type": "NFD"},
                            {"type": "Lowercase"},
                            {"type": "StripAccents"},
                        ],
                    }
                }
            },
            TextFolding(True, True),
        ),
        (
            {
                "tokenizer.json": {
                    "normalizer": {
                        "type": "Sequence",
                        "normalizers": [
                            {"type": "BertNormalizer", "lowercase": False, "strip_accents": None}
                        ],
                    }
                }
            },
            TextFolding(False),
        ),
    ],
)
def test_how_texts_are_folded(tmp_path, files, folding):
    checkpoints.save(BertClassifier(CONFIG, 2), tmp_path, format="huggingface")
    for name, values in files.items():
        (tmp_path / name).write_text(json.dumps(values))
    assert text_folding(tmp_path) == folding


def test_labels_that_a_run_keeps(tmp_path):
    checkpoints.save(BertClassifier(CONFIG, 2), tmp_path)
    for content, labels in (('{"labels": ["b", "a"]}', ["b", "a"]), ("[]", []), ("{", [])):
        (tmp_path / "labels.json").write_text(content)
        assert labels_of_checkpoint(tmp_path, "classes") == labels
    assert labels_of_checkpoint(tmp_path, "tags") == []
