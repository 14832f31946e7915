"""Configurations of other libraries in BERT's own terms, and one derived from weights alone.

Model Garden's experiment files (YAML or JSON), its encoders' own configurations, KerasHub's
config.json and task.json. "gelu" is the tanh approximation in all of them, as in the original.
"""

import re
from typing import Any

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
# Both libraries' own default, where BertConfig's differs.
_DEFAULTS = {"type_vocab_size": 2}
_WAY_TO_ENCODER = ("task", "model", "encoder")
_BERT_ENCODERS = ("bert", "bert_v2")


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
    return _DEFAULTS | {
        ours: given[theirs]
        for theirs, fields in _KERAS_HUB_FIELDS.items()
        for ours in fields
        if theirs in given
    }


def _garden_fields(values: dict[str, Any]) -> dict[str, Any]:
    for key in _WAY_TO_ENCODER:
        values = _part(values, key) if key in values else values
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
    return _DEFAULTS | told


def _part(values: dict[str, Any], key: str) -> dict[str, Any]:
    part = values.get(key)
    return part if isinstance(part, dict) else {}


def read_garden_yaml(text: str) -> dict[str, Any]:
    """The mappings and plain values of a YAML file as Model Garden writes it (params.yaml).

    Lists and texts of several lines, none of which the encoder's part has, are passed over.
    """
    root: dict[str, Any] = {}
    open_mappings = [(-1, root)]
    for line in text.splitlines():
        match = re.fullmatch(r"( *)([\w.]+):(?: +(.*?))?(?: +#.*)?", line.rstrip())
        if not match:
            continue
        indent, key, value = len(match.group(1)), match.group(2), match.group(3)
        while open_mappings[-1][0] >= indent:
            open_mappings.pop()
        inside = open_mappings[-1][1]
        if value:
            inside[key] = _yaml_value(value)
        else:
            inside[key] = {}
            open_mappings.append((indent, inside[key]))
    return root


def _yaml_value(text: str) -> Any:
    plain = {"null": None, "~": None, "true": True, "false": False}
    if text.lower() in plain:
        return plain[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text.strip("'\"")


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
