"""KerasHub presets as they are written: the library's own texts, every bit, and what is refused."""

import dataclasses
import json
import re

import numpy as np
import pytest
from absl import logging

import modeling
from data.tokenization import Tokenizer
from modeling import checkpoints
from modeling.checkpoints.formats.configs import KERAS_HUB_MASKED_LM
from modeling.checkpoints.vocabularies import TextFolding, text_folding, vocabulary_file
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier
from tests.reference import numpy_bert

EXAMPLES = (
    *("mg_release", "mg_trainer", "mg_classifier", "tfhub"),
    *("kh_preset", "kh_keras", "kh_classifier"),
)
ENCODER = ["config.json", "metadata.json", "model.weights.h5"]
TASK = ["task.json", "task.weights.h5"]
TEXTS = ["assets/tokenizer/vocabulary.txt", "preprocessor.json", "tokenizer.json"]
SIZES = {
    "vocab_size": 13,
    "hidden_size": 6,
    "num_hidden_layers": 12,
    "num_attention_heads": 3,
    "intermediate_size": 5,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "é"]
CASED = TextFolding(do_lower_case=False)


def random_weights(*parts, labels=3):
    shapes = numpy_bert.variable_shapes(SIZES, parts, labels=labels)
    rng = np.random.default_rng(5)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def names_in(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def assert_holds(folder, weights):
    held = checkpoints.open_contents(folder)
    assert (held.format, held.unmapped, held.ignored) == ("keras_hub", [], [])
    assert held.shapes.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(held.read(name), array, err_msg=name)
    return held


def write(folder, weights, config=None, vocab=None, folding=None):
    config = config or BertConfig(**SIZES)
    checkpoints.write_checkpoint(folder, weights, config, vocab, "keras_hub", folding)


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    return path


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_bit_by_bit(golden, tmp_path, example):
    folder = golden / "formats" / example
    held = checkpoints.open_contents(folder)
    result = checkpoints.convert(folder, tmp_path, "keras_hub")
    assert (result.converted, result.not_converted) == (sorted(held.shapes), [])
    wanted = ENCODER + (TASK if "classifier" in example else [])
    wanted += TEXTS if example == "tfhub" else []
    assert names_in(tmp_path) == sorted(wanted)
    assert result.written == [str(tmp_path / name) for name in sorted(wanted)]
    again = assert_holds(tmp_path, {name: held.read(name) for name in held.shapes})
    config = dataclasses.replace(result.config, extra={}, head=None, initializer_range=0.02)
    assert checkpoints.config_of_checkpoint(again) == config
    for name in ("config.json", "task.json"):
        if example.startswith("kh_") and (folder / name).exists():
            assert (tmp_path / name).read_text() == (folder / name).read_text()
    if example == "tfhub":
        ours, theirs = text_folding(tmp_path), text_folding(folder)
        assert (ours.do_lower_case, ours.drops_accents) == (True, True)
        assert (theirs.do_lower_case, theirs.drops_accents) == (True, True)
        kept = (tmp_path / TEXTS[0]).read_bytes()
        assert kept == (folder / "assets" / "vocab.txt").read_bytes()


def test_more_layers_than_ten(tmp_path):
    """transformer_encoder_10 is the eleventh, whatever the order of names."""
    weights = random_weights()
    write(tmp_path, weights)
    assert_holds(tmp_path, weights)


def test_masked_lm_of_its_form(tmp_path, vocab):
    weights = random_weights("pretraining")
    config = BertConfig(**SIZES, **KERAS_HUB_MASKED_LM)
    checkpoints.write_checkpoint(tmp_path / "tf1", weights, config, vocab)
    (tmp_path / "tf1/tokenizer_config.json").write_text('{"do_lower_case": false}')
    out = tmp_path / "out"
    result = checkpoints.convert(tmp_path / "tf1", out, "keras_hub")
    next_sentence = [name for name in weights if "seq_relationship" in name]
    assert result.not_converted == sorted(next_sentence)
    assert [note for note in result.notes if "next sentence" in note] == result.notes
    assert names_in(out) == sorted(ENCODER + TASK + TEXTS)
    kept = {name: array for name, array in weights.items() if name not in next_sentence}
    held = assert_holds(out, kept)
    assert checkpoints.config_of_checkpoint(held).masked_lm_form == ("gelu_erf", 1e-5)
    task = json.loads((out / "task.json").read_text())
    assert task["class_name"] == "BertMaskedLM"
    tokenizer = task["config"]["preprocessor"]["config"]["tokenizer"]
    assert tokenizer == json.loads((out / "tokenizer.json").read_text())
    assert tokenizer["config"]["lowercase"] is False


@pytest.mark.parametrize(
    ("head", "part", "words"),
    [
        ("masked_lm", "pretraining", "BertMaskedLM computes gelu_erf .* here computes gelu"),
        ("spans", "squad", "no BERT model with the head spans"),
        ("tags", "classifier", "no BERT model with the head tags"),
        ("choices", "classifier", "no BERT model with the head choices"),
    ],
)
def test_heads_that_it_lacks(tmp_path, head, part, words):
    weights = random_weights(part, labels=1 if head == "choices" else 3)
    config = BertConfig(**SIZES, head=head)
    checkpoints.write_checkpoint(tmp_path / "tf1", weights, config)
    result = checkpoints.convert(tmp_path / "tf1", tmp_path / "out", "keras_hub")
    encoder = {name: array for name, array in weights.items() if name.startswith("bert/")}
    assert result.not_converted == sorted(weights.keys() - encoder.keys())
    assert any(re.search(words, note) for note in result.notes)
    assert names_in(tmp_path / "out") == ENCODER
    assert_holds(tmp_path / "out", encoder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "gelu_erf"}, "hidden_act is 'gelu_erf', which is 'gelu' there"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05, which is 1e-12 there"),
        ({"attention_direction": "left_to_right"}, "attention_direction is 'left_to_right'"),
    ],
)
def test_what_it_cannot_compute(tmp_path, changes, words):
    config = BertConfig(**(SIZES | changes))
    checkpoints.write_checkpoint(tmp_path / "tf1", random_weights(), config)
    with pytest.raises(ModelingError, match=words):
        checkpoints.convert(tmp_path / "tf1", tmp_path / "out", "keras_hub")
    assert not (tmp_path / "out").exists()


def test_without_its_pooler(tmp_path):
    weights = random_weights()
    del weights["bert/pooler/dense/bias"]
    with pytest.raises(ModelingError, match="it lacks bert/pooler/dense/bias"):
        write(tmp_path / "out", weights)
    assert not (tmp_path / "out").exists()


def test_nothing_of_another_preset_stays(tmp_path):
    classifier = random_weights("classifier")
    write(tmp_path, classifier)
    write(tmp_path, classifier)
    before = {name: (tmp_path / name).read_bytes() for name in names_in(tmp_path)}
    with pytest.raises(ModelingError, match=r"holds task\.json, task\.weights\.h5 of another"):
        write(tmp_path, random_weights())
    assert {name: (tmp_path / name).read_bytes() for name in names_in(tmp_path)} == before
    other = tmp_path / "huggingface"
    checkpoints.write_checkpoint(other, classifier, BertConfig(**SIZES), format="huggingface")
    with pytest.raises(ModelingError, match=r"holds config\.json of another"):
        write(other, classifier)


@pytest.mark.parametrize("folding", [CASED, TextFolding(True), TextFolding(False, True)])
def test_vocabulary_and_folding(tmp_path, vocab, folding):
    vocab.write_bytes(b"\xef\xbb\xbf" + vocab.read_bytes())
    write(tmp_path / "out", random_weights(), vocab=vocab, folding=folding)
    kept = (tmp_path / "out" / TEXTS[0]).read_text(encoding="utf-8")
    assert kept.split("\n") == [*TOKENS, ""]
    tokenizer = json.loads((tmp_path / "out/tokenizer.json").read_text())["config"]
    assert tokenizer["lowercase"] is folding.do_lower_case
    assert tokenizer["strip_accents"] is folding.drops_accents
    preprocessor = json.loads((tmp_path / "out/preprocessor.json").read_text())
    assert preprocessor["config"]["sequence_length"] == 7


def test_unknown_folding_makes_no_tokenizer(tmp_path, vocab):
    checkpoints.write_checkpoint(tmp_path / "tf1", random_weights(), BertConfig(**SIZES), vocab)
    result = checkpoints.convert(tmp_path / "tf1", tmp_path / "out", "keras_hub")
    assert any("no tokenizer.json" in note for note in result.notes)
    assert names_in(tmp_path / "out") == sorted([*ENCODER, TEXTS[0]])
    held = checkpoints.open_contents(tmp_path / "out")
    assert vocabulary_file(held.format, held.path) == str(tmp_path / "out" / TEXTS[0])


def test_vocabulary_without_special_tokens(tmp_path, vocab):
    vocab.write_text("".join(f"{token}\n" for token in TOKENS if token != "[MASK]"))
    with pytest.raises(ModelingError, match=r"lacks \[MASK\]"):
        write(tmp_path / "out", random_weights(), vocab=vocab, folding=CASED)
    assert not (tmp_path / "out").exists()


def test_save_pretrained(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda message, *parts: warnings.append(parts[0]))
    config = BertConfig(**SIZES).with_head("classes", ["no", "yes"])
    model = BertClassifier(config, 2)
    tokenizer = Tokenizer.from_vocab(TOKENS, do_lower_case=False)
    written = modeling.save_pretrained(tmp_path / "out", model, tokenizer, "keras_hub")
    assert names_in(tmp_path / "out") == sorted(ENCODER + TASK + TEXTS)
    assert written == [str(tmp_path / "out" / name) for name in names_in(tmp_path / "out")]
    assert len(warnings) == 1 and "'classes'" in warnings[0]
    opened = modeling.from_pretrained(tmp_path / "out")
    assert opened.tokenizer.vocab == TOKENS and not opened.tokenizer.do_lower_case
    inputs = {
        "input_ids": np.array([[2, 5, 3]]),
        "input_mask": np.array([[1, 1, 1]]),
        "segment_ids": np.array([[0, 0, 1]]),
    }
    wanted = model(inputs)["logits"].numpy()
    np.testing.assert_array_equal(opened.model(inputs)["logits"].numpy(), wanted)


def test_files_that_the_command_keeps(golden):
    folder = str(golden / "formats" / "kh_classifier")
    read, written = checkpoints.conversion_files(folder, folder, "keras_hub")
    assert set(read) & set(written) == {
        f"{folder}/{n}" for n in ("config.json", "model.weights.h5")
    }
    assert {f"{folder}/task.json", f"{folder}/task.weights.h5"} < set(written)
