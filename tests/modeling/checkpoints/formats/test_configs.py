"""Other libraries' configurations."""

import json
import tracemalloc

import pytest

from modeling.checkpoints.formats.configs import read_garden_yaml
from modeling.config import BertConfig
from modeling.errors import ModelingError

GARDEN_YAML = """\
runtime:
  distribution_strategy: mirrored
  loss_scale: null
task:
  init_checkpoint: ''
  model:
    cls_heads:
    - activation: tanh
      inner_dim: 768
      name: next_sentence
    encoder:
      type: bert
      bert:
        attention_dropout_rate: 0.2
        dropout_rate: 0.1
        embedding_size: null
        hidden_activation: relu  # not gelu
        hidden_size: 12
        initializer_range: 0.02
        intermediate_size: 48
        max_position_embeddings: 20
        norm_first: false
        num_attention_heads: 3
        num_layers: 2
        type_vocab_size: 2
        vocab_size: 50
trainer:
  train_steps: 100
"""
FIELDS = {
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
}
GARDEN = BertConfig(**FIELDS, hidden_act="relu", attention_probs_dropout_prob=0.2)
BACKBONE = {
    "class_name": "BertBackbone",
    "config": {
        "name": "bert_backbone",
        "vocabulary_size": 50,
        "num_layers": 2,
        "num_heads": 3,
        "hidden_dim": 12,
        "intermediate_dim": 48,
        "dropout": 0.3,
        "max_sequence_length": 20,
        "num_segments": 2,
    },
}


def test_model_garden_in_yaml_and_json(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(GARDEN_YAML)
    assert BertConfig.from_json_file(file) == GARDEN
    values = read_garden_yaml(GARDEN_YAML)
    assert values["runtime"] == {"distribution_strategy": "mirrored", "loss_scale": None}
    file = tmp_path / "params.json"
    file.write_text(json.dumps(values))
    assert BertConfig.from_json_file(file) == GARDEN


@pytest.mark.parametrize(
    ("encoder", "masked_lm", "read"),
    [
        ("relu", "gelu", ("relu", "gelu")),
        ("gelu", "gelu", ("gelu", None)),
        ("simple_swish", None, ("silu", "linear")),
        (None, "Identity", ("linear", None)),
    ],
)
def test_activations_of_encoder_and_masked_lm(encoder, masked_lm, read):
    values = read_garden_yaml(GARDEN_YAML)
    values["task"]["model"]["mlm_activation"] = masked_lm
    values["task"]["model"]["encoder"]["bert"]["hidden_activation"] = encoder
    config = BertConfig.from_dict(values)
    assert (config.hidden_act, config.masked_lm_hidden_act) == read


@pytest.mark.parametrize("key", ["hidden_activation", "mlm_activation"])
def test_activation_that_is_no_name(key):
    values = read_garden_yaml(GARDEN_YAML)["task"]["model"]
    values[key] = values["encoder"]["bert"][key] = ["gelu"]
    with pytest.raises(ModelingError, match="hidden_act' must be one of"):
        BertConfig.from_dict(values)


def test_encoder_of_its_own():
    values = read_garden_yaml(GARDEN_YAML)["task"]["model"]["encoder"]["bert"]
    newer = {
        "inner_activation": values.pop("hidden_activation"),
        "inner_dim": values.pop("intermediate_size"),
        "max_sequence_length": values.pop("max_position_embeddings"),
        "attention_dropout": values.pop("attention_dropout_rate"),
    }
    assert BertConfig.from_dict({**values, **newer}) == GARDEN


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("norm_first: false", "norm_first: true", "norm_first"),
        ("embedding_size: null", "embedding_size: 6", "embedding_size"),
        ("type: bert", "type: albert", "'albert'"),
        ("relu", "leaky_relu", "leaky_relu"),
        ("vocab_size: 50", "other: 50", "vocab_size"),
        ("activation: tanh", "activation: relu", "activation 'relu'; BERT's pooler has .* 'tanh'"),
        ("activation: tanh", "cls_token_idx: 1", "cls_token_idx 1; BERT's pooler has .* 0"),
    ],
)
def test_other_encoders_of_model_garden(tmp_path, old, new, words):
    file = tmp_path / "params.yaml"
    text = GARDEN_YAML.replace("        type_vocab_size: 2\n", "")
    file.write_text(text.replace(old, new))
    with pytest.raises(ModelingError, match=words):
        BertConfig.from_json_file(file)


def test_keras_hub():
    dropout = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    wanted = BertConfig(**FIELDS, **dropout)
    assert BertConfig.from_dict(BACKBONE) == wanted
    task = {"class_name": "BertTextClassifier", "config": {"backbone": BACKBONE, "num_classes": 3}}
    assert BertConfig.from_dict(task) == wanted
    other = {**BACKBONE, "class_name": "RobertaBackbone"}
    with pytest.raises(ModelingError, match="RobertaBackbone"):
        BertConfig.from_dict(other)


def test_tags_of_python_are_plain_values():
    text = "a: !!python/tuple [1, 2.5]\nb: !!python/object:os.Any {c: yes}\nd: 2001-01-01\n"
    text += "e: !!python/object/apply:os.system ['echo > hacked']\nf: !!binary aGk=\n1: [~]\n"
    assert read_garden_yaml(text) == {
        "a": [1, 2.5],
        "b": {"c": True},
        "d": "2001-01-01",
        "e": ["echo > hacked"],
        "f": "b'hi'",
        "1": [None],
    }
    shared = "a: &one {b: 1}\nc: *one\nd: {<<: *one, e: 2}\n"
    assert read_garden_yaml(shared) == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}


LAUGHS = "".join(f"l{i}: &l{i} [{','.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 30))
MERGES = "".join(f"l{i}: &l{i} {{<<: [{','.join([f'*l{i - 1}'] * 9)}]}}\n" for i in range(1, 30))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("l0: &l0 ha\n" + LAUGHS, "aliases stand for more"),
        ("l0: &l0 {ha: 1}\n" + MERGES, "aliases stand for more"),
        ("a: &a [*a]", "holds itself"),
        ("a: " + "x" * 200_000, "200,003 characters"),
        ("a: " + "[" * 50_000, "nested more than"),
        ("a: " + "[" * 60 + "]" * 60, "nested more than"),
        ("{[1]: 2}", "unhashable|keys must be"),
        ("a: 1\n---\nb: 2", "single document"),
        ("a: [1", "expected"),
        ("a: \0", "special characters"),
        ("a: " + "9" * 5000, "digits"),
        ("a: !!int x", "invalid literal"),
        ("- 1", "object of fields; got a list"),
        ("", "object of fields; got a NoneType"),
    ],
)
def test_yaml_that_lies(tmp_path, text, words):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(ModelingError, match=words) as raised:
            BertConfig.from_json_file(file)
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500
