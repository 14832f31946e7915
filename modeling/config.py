"""The size and shape of a BERT model: reading, checking and writing its configuration.

Reads the original release's `bert_config.json` and Hugging Face's `config.json`, and what
checkpoints/formats/configs.py knows of other libraries'. The first two spell one thing alike and
mean another: `"hidden_act": "gelu"` is the tanh approximation in the original release and the
exact erf form at Hugging Face. Here "gelu" is the former and "gelu_erf" the latter, and reading
maps them.
"""

import dataclasses
import json
import os
from typing import Any

from absl import logging

from modeling.errors import ModelingError

# name: (layers, hidden size). Heads are hidden/64 and the inner size is 4×hidden, as in all
# models that were released with the paper and with "Well-Read Students Learn Better" (2019).
NAMED_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

BIDIRECTIONAL, LEFT_TO_RIGHT = "bidirectional", "left_to_right"
RIGHT_TO_LEFT = "right_to_left"
ATTENTION_DIRECTIONS = (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT)
ACTIVATIONS = ("gelu", "gelu_erf", "quick_gelu", "relu", "silu", "mish", "tanh", "linear")
_SENTENCES = "BertForSequenceClassification"
HEADS = {
    "pretraining": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "next_sentence": "BertForNextSentencePrediction",
    "classes": _SENTENCES,
    "multi_label": _SENTENCES,
    "regression": _SENTENCES,
    "choices": "BertForMultipleChoice",
    "tags": "BertForTokenClassification",
    "spans": "BertForQuestionAnswering",
}
"""What a model answers → Hugging Face's class of such models."""
# What Hugging Face calls those that share a class.
_PROBLEM_TYPES = {
    "classes": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}

# Where Hugging Face's spelling isn't ours. Of those with one meaning the last is written.
_FROM_HUGGINGFACE_ACTIVATION = {"swish": "silu", "gelu_python": "gelu_erf", "gelu_fast": "gelu"}
_FROM_HUGGINGFACE_ACTIVATION |= {name: name for name in ACTIVATIONS if name[:4] != "gelu"}
_FROM_HUGGINGFACE_ACTIVATION |= {"gelu": "gelu_erf", "gelu_pytorch_tanh": "gelu"}
_FROM_HUGGINGFACE_ACTIVATION |= {"gelu_new": "gelu"}
_TO_HUGGINGFACE_ACTIVATION = {ours: theirs for theirs, ours in _FROM_HUGGINGFACE_ACTIVATION.items()}
# Keys that only a Hugging Face configuration has. They tell the format, so they are not kept
# among the extra keys: a bert_config.json that held one would be read in the wrong terms.
_HUGGINGFACE_KEYS = {"model_type", "architectures", "transformers_version"}
# Keys that only KerasHub's and Model Garden's have, at the top.
_FOREIGN_KEYS = {"class_name", "num_layers", "task", "model", "encoder"}
# What Hugging Face leaves out of its files when it equals its own default.
_HUGGINGFACE_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}

# Each far above what published models have: a file that says more is damaged, and its model would
# take all memory, or hours to build, before anything else went wrong.
_LARGEST = {
    "vocab_size": 10_000_000,
    "hidden_size": 100_000,
    "num_hidden_layers": 1_000,
    "num_attention_heads": 10_000,
    "intermediate_size": 1_000_000,
    "max_position_embeddings": 1_000_000,
    "type_vocab_size": 10_000,
}
_DEEPEST = 50  # Python can't copy and write much deeper nestings, though it reads them.
_PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_POSITIVE_NUMBERS = ("initializer_range", "layer_norm_eps", "masked_lm_layer_norm_eps")
_MASKED_LM = ("masked_lm_hidden_act", "masked_lm_layer_norm_eps")
_POSITIVE_RULE = "number above 0 (as float32 has it) and at most 1"
_TINY = 2.0**-126  # float32's least


@dataclasses.dataclass
class BertConfig:
    """Configuration of a BERT model; the defaults are the original release's.

    Attributes:
        vocab_size: Number of word pieces, rows of the word embedding. No default.
        hidden_size: Width of the encoder; a multiple of `num_attention_heads`.
        num_hidden_layers: Number of Transformer layers.
        num_attention_heads: Attention heads per layer.
        intermediate_size: Width of the feed-forward layer.
        hidden_act: One of `ACTIVATIONS`. "gelu" is the tanh approximation, as in the original;
            null and "" mean "linear", as there, and "swish" is "silu".
        hidden_dropout_prob: Dropout after embeddings, attention output and layer output.
        attention_probs_dropout_prob: Dropout of the attention probabilities.
        max_position_embeddings: Longest sequence that the position table serves.
        type_vocab_size: Rows of the segment embedding. The original's default is 16 although
            every released model uses 2.
        initializer_range: Standard deviation of the truncated normal initialiser.
        layer_norm_eps: Not in the original's file format, where it is always 1e-12.
        attention_direction: One of `ATTENTION_DIRECTIONS`; "left_to_right" lets no position see
            the ones after it, "right_to_left" none before it (paper, section 5.1). Not in the
            original's file format, where it is always "bidirectional".
        head: What a fine-tuned or pre-trained model answers, a key of `HEADS`; None for an encoder
            alone, or where the file doesn't tell. Not in the original's file format.
        masked_lm_hidden_act: The masked-LM head's activation, if it isn't the encoder's: KerasHub's
            differs. None means `hidden_act`. Not in the original's file format.
        masked_lm_layer_norm_eps: Its layer norm's epsilon; None means `layer_norm_eps`. Likewise.
        extra: Keys of the file that are not known here, kept and written back.
        file: Which file it was read from, for messages; it isn't written or compared.

    Raises:
        ModelingError: A value is of the wrong type or out of range; the message names the field.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    attention_direction: str = BIDIRECTIONAL
    head: str | None = None
    masked_lm_hidden_act: str | None = None
    masked_lm_layer_norm_eps: float | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    file: str | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self):
        self.hidden_act = "linear" if self.hidden_act in (None, "") else self.hidden_act
        if isinstance(self.hidden_act, str):
            lowered = self.hidden_act.lower()
            self.hidden_act = "silu" if lowered == "swish" else lowered
        self.validate()

    def validate(self) -> None:
        """Checks every field; raises ModelingError naming the first that is wrong."""
        number = (int, float)
        for names, types, fits, rule in (
            *(
                ([name], int, range(1, most + 1).__contains__, f"whole number from 1 to {most:,}")
                for name, most in _LARGEST.items()
            ),
            (_PROBABILITIES, number, lambda value: 0 <= value < 1, "number from 0 to below 1"),
            (_POSITIVE_NUMBERS, number, lambda value: _TINY <= value <= 1, _POSITIVE_RULE),
        ):
            for name in names:
                value = getattr(self, name)
                if value is None and name in _MASKED_LM:
                    continue
                if isinstance(value, bool) or not (isinstance(value, types) and fits(value)):
                    text = repr(value)
                    text = text if len(text) <= 60 else text[:60] + "…"
                    raise ModelingError(f"BertConfig field {name!r} must be a {rule}; got {text}.")
        if self.hidden_size % self.num_attention_heads:
            raise ModelingError(
                f"BertConfig field 'hidden_size' ({self.hidden_size}) must be a multiple of "
                f"'num_attention_heads' ({self.num_attention_heads}), since every head takes an "
                f"equal share of the width. Change one of the two."
            )
        acts = {"hidden_act": self.hidden_act, "masked_lm_hidden_act": self.masked_lm_form[0]}
        for name, act in acts.items():
            if act not in ACTIVATIONS:
                raise ModelingError(
                    f"BertConfig field {name!r} must be one of {', '.join(ACTIVATIONS)} "
                    f"(or null for linear); got {act!r}."
                )
        if self.attention_direction not in ATTENTION_DIRECTIONS:
            raise ModelingError(
                f"BertConfig field 'attention_direction' must be one of "
                f"{', '.join(ATTENTION_DIRECTIONS)}; got {self.attention_direction!r}."
            )
        if not (self.head is None or (isinstance(self.head, str) and self.head in HEADS)):
            raise ModelingError(
                f"BertConfig field 'head' must be one of {', '.join(HEADS)}, or null; got "
                f"{str(self.head)[:60]!r}."
            )

    @property
    def masked_lm_form(self) -> tuple[str, float]:
        """Activation and layer norm's epsilon of the masked-LM head."""
        act, eps = self.masked_lm_hidden_act, self.masked_lm_layer_norm_eps
        return self.hidden_act if act is None else act, self.layer_norm_eps if eps is None else eps

    @classmethod
    def named(cls, size: str, vocab_size: int, **overrides) -> "BertConfig":
        """The configuration of a named size (`NAMED_SIZES`), with two segment types."""
        if size not in NAMED_SIZES:
            raise ModelingError(
                f"Unknown model size {size!r}; the named sizes are {', '.join(NAMED_SIZES)}."
            )
        layers, hidden = NAMED_SIZES[size]
        fields = {
            "vocab_size": vocab_size,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 64,
            "intermediate_size": 4 * hidden,
            "type_vocab_size": 2,
        }
        return cls(**(fields | overrides))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BertConfig":
        """Builds a configuration from the contents of any file format."""
        _check_supported(values)
        ours = _HUGGINGFACE_KEYS | {"num_hidden_layers"}
        if _FOREIGN_KEYS & values.keys() and not ours & values.keys():
            # Here alone: checkpoints know the configuration.
            from modeling.checkpoints.formats.configs import fields_of_foreign_config

            return cls._from_known_keys(fields_of_foreign_config(values))
        if _HUGGINGFACE_KEYS & values.keys():
            return cls._from_huggingface(values)
        return cls._from_known_keys(values)

    @classmethod
    def from_json_file(cls, path: str | os.PathLike) -> "BertConfig":
        """Reads `bert_config.json` (original release), `config.json` (Hugging Face, KerasHub).

        Model Garden's files are read as well, in JSON or, where they end in .yaml, in YAML.
        """
        # Here alone, so that the models also run where TensorFlow isn't installed.
        import tensorflow as tf

        path = os.fspath(path)
        if not tf.io.gfile.exists(path):
            raise ModelingError(f"The BERT configuration file {path} does not exist.")
        if tf.io.gfile.isdir(path):
            raise ModelingError(
                f"{path} is a folder; expected a configuration file such as bert_config.json."
            )
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
        is_yaml = path.endswith((".yaml", ".yml"))
        try:
            text = content.decode("utf-8")
            if is_yaml:
                from modeling.checkpoints.formats.configs import read_garden_yaml

                values = read_garden_yaml(text)
            else:
                values = json.loads(text)
        except ValueError as error:
            kind = "YAML" if is_yaml else "JSON"
            raise ModelingError(f"{path} is not a {kind} file in UTF-8: {error}.") from error
        except RecursionError:
            raise _too_deep(path) from None
        if not isinstance(values, dict):
            kind = type(values).__name__
            raise ModelingError(f"{path} must hold one object of fields; got a {kind}.")
        if _is_deep(values):
            raise _too_deep(path)
        try:
            return dataclasses.replace(cls.from_dict(values), file=path)
        except ModelingError as error:
            raise ModelingError(f"{path}: {error}") from error

    @classmethod
    def _from_known_keys(cls, values: dict[str, Any]) -> "BertConfig":
        known = {field.name for field in dataclasses.fields(cls)} - {"extra", "file"}
        extra = {key: value for key, value in values.items() if key not in known}
        if extra:
            logging.info(
                "Configuration keys that BertConfig does not use, kept as they are: %s",
                ", ".join(sorted(extra)),
            )
        if "vocab_size" not in values:
            raise ModelingError("BertConfig field 'vocab_size' is missing and has no default.")
        return cls(**{key: values[key] for key in values.keys() & known}, extra=extra)

    @classmethod
    def _from_huggingface(cls, values: dict[str, Any]) -> "BertConfig":
        model_type = values.get("model_type", "bert")
        if model_type != "bert":
            raise ModelingError(
                f"The Hugging Face configuration has model_type {model_type!r}; only 'bert' is "
                f"supported."
            )
        head = _huggingface_head(values)
        values = {k: v for k, v in values.items() if k not in _HUGGINGFACE_KEYS}
        values = _HUGGINGFACE_DEFAULTS | values | {"head": head}
        for name in {"hidden_act", "masked_lm_hidden_act"} & values.keys():
            activation = str(values[name]).lower()
            if activation not in _FROM_HUGGINGFACE_ACTIVATION:
                raise ModelingError(
                    f"Hugging Face field {name!r} must be one of "
                    f"{', '.join(_FROM_HUGGINGFACE_ACTIVATION)}; got {values[name]!r}."
                )
            values[name] = _FROM_HUGGINGFACE_ACTIVATION[activation]
        return cls._from_known_keys(values)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, with the extra keys beside them.

        What the original's format lacks is left out where it has the original's value
        (`layer_norm_eps` 1e-12, bidirectional attention), so that the file of a released model
        comes back as it was.
        """
        values = dataclasses.asdict(self)
        extra = values.pop("extra")
        del values["file"]
        if values["layer_norm_eps"] == 1e-12:
            del values["layer_norm_eps"]
        if values["attention_direction"] == BIDIRECTIONAL:
            del values["attention_direction"]
        for name in ("head", *_MASKED_LM):
            if values[name] is None:
                del values[name]
        return extra | values

    def to_json_string(self) -> str:
        """The original's file format: keys sorted, indented by two, newline at the end."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_huggingface_dict(self) -> dict[str, Any]:
        """The same configuration in Hugging Face's terms (see the note on gelu above).

        Raises:
            ModelingError: For a left-to-right model. Hugging Face's nearest, is_decoder, pools
                the first token, which has seen nothing but itself.
        """
        if self.attention_direction != BIDIRECTIONAL:
            raise ModelingError(
                f"A model with attention_direction {self.attention_direction!r} can't be written "
                f"in Hugging Face's format, which has no such model: its is_decoder pools the "
                f"first token instead of the last one. Save it in the original's format."
            )
        values = self.to_dict()
        for name in {"hidden_act", "masked_lm_hidden_act"} & values.keys():
            values[name] = _TO_HUGGINGFACE_ACTIVATION[values[name]]
        values["layer_norm_eps"] = self.layer_norm_eps
        values["model_type"] = "bert"
        head = values.pop("head", None)
        values["architectures"] = [HEADS.get(head, "BertModel")]
        if head in _PROBLEM_TYPES:
            values["problem_type"] = _PROBLEM_TYPES[head]
        return values


def _check_supported(values: dict[str, Any]) -> None:
    """Refuses models that Hugging Face's keys, wherever they stand, tell to be no plain encoder."""
    for name, plain, meaning in (
        ("position_embedding_type", "absolute", "positions relative to each other"),
        ("is_decoder", False, "a decoder, which pools another token than left-to-right models do"),
        ("add_cross_attention", False, "attention to another model's outputs"),
        ("pruned_heads", {}, "layers that lack some of their attention heads"),
    ):
        value = values.get(name)
        if value and value != plain:
            raise ModelingError(
                f"The configuration says {name} {str(value)[:60]!r}: {meaning}. The answers of "
                f"such a model can't be computed here; only whole encoders with {name} "
                f"{json.dumps(plain)} are read."
            )


def _huggingface_head(values: dict[str, Any]) -> str | None:
    """What a model of this Hugging Face configuration answers; None if it doesn't tell."""
    classes = values.get("architectures")
    name = str(classes[0]).removeprefix("TF") if isinstance(classes, list) and classes else ""
    heads = [head for head, of_head in HEADS.items() if of_head == name]
    if len(heads) <= 1:
        return heads[0] if heads else None
    told = [head for head in heads if _PROBLEM_TYPES[head] == values.get("problem_type")]
    # Theirs, by default, of as many labels.
    labels = values.get("id2label")
    one = isinstance(labels, dict) and len(labels) == 1
    return told[0] if told else "regression" if one else "classes"


def _is_deep(values: dict[str, Any]) -> bool:
    level: list[Any] = [values]
    for _ in range(_DEEPEST):
        lists = [
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)
        ]
        level = [value for items in lists for value in items]
    return bool(level)


def _too_deep(path: str) -> ModelingError:
    return ModelingError(
        f"{path} has lists or objects nested more than {_DEEPEST} deep, where a model's "
        f"configuration has hardly any. Take out the key that holds them, or download it again."
    )
