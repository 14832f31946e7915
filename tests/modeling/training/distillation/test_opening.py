"""Teachers as they are opened: how they read and answer, and which ones can't teach."""

import json
from types import SimpleNamespace

import pytest

from modeling import checkpoints, from_pretrained
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier
from modeling.training.distillation import opening, teaching
from modeling.training.distillation.teaching import TeachingSettings, layer_pairs, matched_layers

SIZES = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
CONFIG = BertConfig(num_hidden_layers=1, **SIZES).with_head("classes", ["bad", "good"])
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return tmp_path


def save(folder, name: str, folding: TextFolding | None = None, **options) -> str:
    model = BertClassifier(CONFIG, 2, **options)
    model.build()
    checkpoints.save(model, folder / name, folder / "vocab.txt", folding=folding)
    return str(folder / name)


def test_windows_are_pooled_as_in_its_training(folder, caplog):
    path = save(folder, "windows")
    reading = {"max_seq_length": 8, "window_pooling": "mean"}
    opened = opening._open_teacher(path, from_pretrained, reading)
    assert opened.model.row_pooling == "mean" and "was trained with" not in caplog.text
    kept = {"max_seq_length": 16, "window_pooling": "max"}
    (folder / "windows/reading.json").write_text(json.dumps(kept))
    opened = opening._open_teacher(path, from_pretrained, reading)
    assert opened.model.row_pooling == "max"
    assert "was trained with --max_seq_length=16" in caplog.text
    assert "which are made with --max_seq_length=8" in caplog.text


def test_weights_besides_berts_are_refused(folder):
    with pytest.raises(ModelingError, match=r"the weight bilstm/.*Only models without"):
        opening._open_teacher(save(folder, "bilstm", bilstm=True), from_pretrained, {})
    path = save(folder, "second", second=BertConfig(num_hidden_layers=1, **SIZES))
    with pytest.raises(ModelingError, match=r"the weight second_bert/"):
        opening._open_teacher(path, from_pretrained, {})


@pytest.mark.parametrize(
    ("kept", "given", "own"),
    [
        (TextFolding(True), TextFolding(True), False),
        (TextFolding(True), TextFolding(True, True), False),
        (None, TextFolding(False), False),  # nothing says otherwise
        (TextFolding(False), TextFolding(True), True),
        (TextFolding(True, False), TextFolding(True), True),
    ],
)
def test_who_folds_otherwise_reads_pieces_of_its_own(folder, kept, given, own):
    path = save(folder, "model", kept)
    task = SimpleNamespace(read_with=lambda tokenizer: ["splits"])
    tokenizer, vocab_file = from_pretrained(path).tokenizer, str(folder / "vocab.txt")
    found = teaching._splits_in_pieces(path, tokenizer, vocab_file, given, task)
    assert found == (["splits"] if own else [])
    task = SimpleNamespace(read_with=lambda tokenizer: None)
    if own:
        with pytest.raises(ModelingError, match="or folds texts otherwise"):
            teaching._splits_in_pieces(path, tokenizer, vocab_file, given, task)


def test_labels_align_by_name(folder):
    path, plain = save(folder, "model"), BertConfig(num_hidden_layers=1, **SIZES)
    plain = plain.with_head("classes")
    order = teaching._order_of_labels(path, CONFIG, plain.with_head("classes", ["good", "bad"]))
    assert order == [1, 0]
    # Other libraries' configurations have no names; what a run keeps beside the weights does.
    (folder / "model/bert_config.json").write_text(plain.to_json_string())
    with pytest.raises(ModelingError, match="it lacks bad, good, and has none besides"):
        teaching._order_of_labels(path, plain, CONFIG)
    (folder / "model/labels.json").write_text(json.dumps({"labels": ["good", "bad"]}))
    assert teaching._order_of_labels(path, plain, CONFIG) == [1, 0]


def test_layers_that_cannot_be_matched():
    assert layer_pairs(["even"], "match_relations", 3, 6) == [(0, 1), (1, 3), (2, 5)]
    assert layer_pairs(["even"], "match_relations", 3, 3) == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(ModelingError, match="the student has 5 and the teacher 3"):
        layer_pairs(["even"], "match_relations", 5, 3)
    student = SimpleNamespace(config=CONFIG)
    settings = TeachingSettings(["t"], match_relations=["0:0"])
    with pytest.raises(ModelingError, match="on the vectors of a frozen encoder, has none"):
        matched_layers(settings, student, student)
    assert matched_layers(TeachingSettings(["t"]), student, student) is None
