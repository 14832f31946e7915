"""Other libraries' configurations."""

import json

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
    ],
)
def test_other_encoders_of_model_garden(tmp_path, old, new, words):
    file = tmp_path / "params.yaml"
    text = GARDEN_YAML.replace("type_vocab_size: 2\n", "")
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
