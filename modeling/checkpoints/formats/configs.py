"""Configurations of other libraries in BERT's own terms, and one derived from weights alone.

Model Garden's experiment files (YAML or JSON), its encoders' own configurations, KerasHub's
config.json and task.json. "gelu" is the tanh approximation in all of them, as in the original.
"""

import json
from typing import Any

import yaml

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents
from modeling.config import BertConfig
from modeling.errors import ModelingError

_KERAS_HUB_FIELDS = {
    "vocabulary_size": ("vocab_size",),
    "num_layers": ("num_hidden_layers",),
    "num_heads": ("num_attention_heads",),
    "hidden_dim": ("hidden_size",),
    "intermediate_dim": ("intermediate_size",),
    "dropout": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "max_sequence_length": ("max_position_embeddings",),
    "num_segments": ("type_vocab_size",),
}
KERAS_HUB_MASKED_LM = {"masked_lm_hidden_act": "gelu_erf", "masked_lm_layer_norm_eps": 1e-5}
"""What the head of KerasHub's BertMaskedLM computes, unlike its encoder."""
# The newer spelling last; a file has one of them.
_GARDEN_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "inner_dim": "intermediate_size",
    "activation": "hidden_act",
    "hidden_activation": "hidden_act",
    "inner_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "output_dropout": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "initializer_range": "initializer_range",
}
# Those that are called otherwise here.
_GARDEN_ACTIVATIONS = {"identity": "linear", "simple_swish": "silu", "swish": "silu"}
# Both libraries' own default, where BertConfig's differs.
_DEFAULTS = {"type_vocab_size": 2}
_POOLER = {"activation": "tanh", "cls_token_idx": 0}  # of BERT, as Model Garden calls it
_WAY_TO_ENCODER = ("task", "model", "encoder")
_BERT_ENCODERS = ("bert", "bert_v2")
_LONGEST_YAML = 100_000  # characters, or values; a whole experiment has about 10,000 characters
_DEEPEST_YAML = 100


def fields_of_foreign_config(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of `BertConfig` that KerasHub's or Model Garden's configuration tells.

    Raises:
        ModelingError: It is another model's, or of a BERT that can't be computed here.
    """
    return _keras_hub_fields(values) if "class_name" in values else _garden_fields(values)


def _keras_hub_fields(values: dict[str, Any]) -> dict[str, Any]:
    backbone = _part(values, "config").get("backbone", values)
    kind = backbone.get("class_name") if isinstance(backbone, dict) else backbone
    if kind != "BertBackbone":
        raise ModelingError(
            f"The configuration is of Keras's class {str(kind)[:60]!r}; only KerasHub's "
            f"BertBackbone, alone or in a task, is read."
        )
    given = _part(backbone, "config")
    head = KERAS_HUB_MASKED_LM if values.get("class_name") == "BertMaskedLM" else {}
    told = {
        ours: given[theirs]
        for theirs, fields in _KERAS_HUB_FIELDS.items()
        for ours in fields
        if theirs in given
    }
    return _DEFAULTS | head | told


def _check_garden_heads(heads: Any) -> None:
    """Refuses a classification head whose pooler isn't BERT's: tanh of the first place."""
    for head in heads if isinstance(heads, list) else ():
        told = head if isinstance(head, dict) else {}
        other = {k: v for k, v in _POOLER.items() if told.get(k) not in (None, v)}
        if other:
            raise ModelingError(
                f"Model Garden's configuration has a classification head with "
                f"{', '.join(f'{name} {told[name]!r}' for name in other)}; BERT's pooler has "
                f"{', '.join(f'{name} {value!r}' for name, value in other.items())}."
            )


def _garden_fields(values: dict[str, Any]) -> dict[str, Any]:
    masked_lm = {}
    for key in _WAY_TO_ENCODER:
        values = _part(values, key) if key in values else values
        _check_garden_heads(values.get("cls_heads"))
        # Of the pre-trainer, whose encoder may have another.
        masked_lm = values if "mlm_activation" in values else masked_lm
    if "num_layers" not in values and ("type" in values or len(values) == 1):
        kind = values.get("type", next(iter(values)))
        if kind not in _BERT_ENCODERS:
            raise ModelingError(
                f"Model Garden's configuration has an encoder of type {str(kind)[:60]!r}; only "
                f"{' and '.join(_BERT_ENCODERS)} are BERT."
            )
        values = _part(values, kind)
    width = values.get("embedding_size", values.get("embedding_width"))
    if values.get("norm_first") or width not in (None, values.get("hidden_size", 768)):
        field = "norm_first" if values.get("norm_first") else "embedding_size or embedding_width"
        raise ModelingError(
            f"Model Garden's configuration sets {field}, a variant of BERT's encoder whose answers "
            f"can't be computed here. Only encoders that normalise last, and whose embeddings are "
            f"as wide as their layers, are read."
        )
    told = {ours: values[theirs] for theirs, ours in _GARDEN_FIELDS.items() if theirs in values}
    acts = {"hidden_act": told.get("hidden_act", "gelu")}
    acts["masked_lm_hidden_act"] = masked_lm.get("mlm_activation", acts["hidden_act"])
    acts = {name: _garden_activation(act) for name, act in acts.items()}
    if acts["masked_lm_hidden_act"] == acts["hidden_act"]:
        del acts["masked_lm_hidden_act"]
    return _DEFAULTS | told | acts


def _garden_activation(given: Any) -> Any:
    if given is None:
        return "linear"
    return (
        _GARDEN_ACTIVATIONS.get(given.lower(), given.lower()) if isinstance(given, str) else given
    )


def _part(values: dict[str, Any], key: str) -> dict[str, Any]:
    part = values.get(key)
    return part if isinstance(part, dict) else {}


class _PlainLoader(yaml.SafeLoader):
    """Takes what has another tag, such as Python's tuples, for the plain value it stands on."""

    depth = 0

    def compose_node(self, parent, index):
        self.depth += 1
        if self.depth > _DEEPEST_YAML:  # The time that PyYAML takes grows with its square.
            raise RecursionError
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _plain(loader: _PlainLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_PlainLoader.add_constructor(None, _plain)


def read_garden_yaml(text: str) -> Any:
    """The plain values of a YAML file as Model Garden writes it (params.yaml).

    Python's objects are never made of it; what else JSON doesn't have becomes text.

    Raises:
        ValueError: No YAML, or more of it, written out, than a configuration has.
        RecursionError: It is nested too deep.
    """
    try:
        if len(text) > _LONGEST_YAML:
            raise ValueError(f"it has {len(text):,} characters, more than {_LONGEST_YAML:,}")
        loader = _PlainLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _written_out(node, {})
        return json.loads(json.dumps(loader.construct_document(node), default=str))
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _written_out(node: yaml.Node, known: dict[int, int | None]) -> int:
    """How many values a node stands for where its aliases are written out."""
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise ValueError("it holds a value that holds itself")
        return size
    known[id(node)] = None
    inside = [] if isinstance(node, yaml.ScalarNode) else node.value
    if isinstance(node, yaml.MappingNode):
        inside = [part for pair in inside for part in pair]
    size = 1 + sum(_written_out(part, known) for part in inside)
    if size > _LONGEST_YAML:
        raise ValueError(f"its aliases stand for more than {_LONGEST_YAML:,} values")
    known[id(node)] = size
    return size


def config_of_weights(held: Contents) -> BertConfig:
    """The configuration that the weights' own shapes tell, dropout and the like by default.

    Raises:
        ModelingError: They lack a part of the encoder, or don't tell the number of heads.
    """
    missing = sorted(name for name, _ in names.SIZES.values() if name not in held.shapes)
    if missing or held.num_attention_heads is None:
        lack = ", ".join(missing) or "a number of attention heads in its kernels' shapes"
        raise ModelingError(
            f"There is no configuration beside {held.path}, and its weights don't tell one: it "
            f"lacks {lack}. Name the configuration's file with --bert_config_file."
        )
    sizes = {field: held.shapes[name][axis] for field, (name, axis) in names.SIZES.items()}
    return BertConfig(
        **sizes,
        num_hidden_layers=names.number_of_checkpoint_layers(held.shapes),
        num_attention_heads=held.num_attention_heads,
    )
