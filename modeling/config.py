"""The size and shape of a BERT model: reading, checking and writing its configuration.

Reads the original release's `bert_config.json` and Hugging Face's `config.json`, and what
checkpoints/formats/configs.py knows of other libraries'. The first two spell one thing alike and
mean another: `"hidden_act": "gelu"` is the tanh approximation in the original release and the
exact erf form at Hugging Face. Here "gelu" is the former and "gelu_erf" the latter, and reading
maps them.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from modeling.errors import ModelingError
from modeling.sizes import ENGLISH_VOCABULARY, SIZES, SIZES_IN_WORDS

BIDIRECTIONAL, LEFT_TO_RIGHT = "bidirectional", "left_to_right"
RIGHT_TO_LEFT = "right_to_left"
ATTENTION_DIRECTIONS = (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT)
HEADS = (
    *("pretraining", "masked_lm", "next_sentence"),
    *("classes", "multi_label", "regression", "choices", "tags", "spans"),
)
"""What a model may answer."""
ACTIVATIONS = ("gelu", "gelu_erf", "quick_gelu", "relu", "silu", "mish", "tanh", "linear")

# Keys that only a Hugging Face configuration has. They tell the format, so they are not kept
# among the extra keys: a bert_config.json that held one would be read in the wrong terms.
HUGGINGFACE_KEYS = {"model_type", "architectures", "transformers_version"}
# Keys that only KerasHub's and Model Garden's have, at the top.
_FOREIGN_KEYS = {"class_name", "num_layers", "task", "model", "encoder"}
_LABEL_KEYS = {"id2label", "label2id", "problem_type"}

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
        head: What a fine-tuned or pre-trained model answers, one of `HEADS`; None for an encoder
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
        """The configuration of a named size (`sizes.SIZES`), with two segment types."""
        if size not in SIZES:
            raise ModelingError(f"Unknown model size {size!r}; the names are {SIZES_IN_WORDS}.")
        layers, hidden = SIZES[size]
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
    def from_dict(cls, values: dict[str, Any], huggingface: bool = False) -> "BertConfig":
        """Builds a configuration from the contents of any file format.

        `huggingface` says that it is in Hugging Face's terms where no key of theirs tells.
        """
        _check_supported(values)
        ours = HUGGINGFACE_KEYS | {"num_hidden_layers"}
        if _FOREIGN_KEYS & values.keys() and not ours & values.keys():
            # Here alone: checkpoints know the configuration.
            from modeling.checkpoints.formats.configs import fields_of_foreign_config

            return cls._from_known_keys(fields_of_foreign_config(values))
        if huggingface or HUGGINGFACE_KEYS & values.keys():
            from modeling.checkpoints.formats.hf_config import fields_of_huggingface_config

            return cls._from_known_keys(fields_of_huggingface_config(values))
        return cls._from_known_keys(values)

    @classmethod
    def from_file_or_name(
        cls, given: str | os.PathLike, vocab_size: int = ENGLISH_VOCABULARY
    ) -> "BertConfig":
        """What --bert_config_file means: a file, or a size by name where there is no such file.

        Args:
            given: A path as `from_json_file` takes it, or one of `sizes.SIZES`.
            vocab_size: That of a size by name; files have their own.

        Raises:
            ModelingError: It is neither, or the file can't be used.
        """
        import tensorflow as tf

        given = os.fspath(given)
        if tf.io.gfile.exists(given):
            return cls.from_json_file(given)
        if given in SIZES:
            return dataclasses.replace(cls.named(given, vocab_size), file=given)
        raise ModelingError(
            f"The BERT configuration file {given} does not exist, and it isn't the name of a size "
            f"either. Give a file, or a name: {SIZES_IN_WORDS}."
        )

    @classmethod
    def from_json_file(cls, path: str | os.PathLike, huggingface: bool = False) -> "BertConfig":
        """Reads `bert_config.json` (original release), `config.json` (Hugging Face, KerasHub).

        Model Garden's files are read as well, in JSON or, where they end in .yaml, in YAML. For
        `huggingface` see `from_dict`.
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
            return dataclasses.replace(cls.from_dict(values, huggingface), file=path)
        except ModelingError as error:
            raise ModelingError(f"{path}: {error}") from error

    @classmethod
    def _from_known_keys(cls, values: dict[str, Any]) -> "BertConfig":
        known = {field.name for field in dataclasses.fields(cls)} - {"extra", "file"}
        extra = {key: value for key, value in values.items() if key not in known}
        _tell_unused(tuple(sorted(extra.keys() - _LABEL_KEYS)))
        if "vocab_size" not in values:
            raise ModelingError("BertConfig field 'vocab_size' is missing and has no default.")
        return cls(**{key: values[key] for key in values.keys() & known}, extra=extra)

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

    @property
    def labels(self) -> list[str] | None:
        """What the head's outputs are called, in their order, as `id2label` says; None if unknown.

        Raises:
            ModelingError: It isn't an object that names outputs 0, 1, … apart.
        """
        names = self.extra.get("id2label")
        if names is None:
            return None
        try:
            by_number = {int(number): name for number, name in names.items()}
            ordered = [by_number[number] for number in range(len(names))]
            if all(isinstance(name, str) for name in ordered) and len({*ordered}) == len(ordered):
                return ordered
        except (AttributeError, ValueError, TypeError, KeyError):
            pass
        raise ModelingError(
            f"The configuration's id2label is {str(names)[:100]}; expected an object with a name "
            f'of its own for each number from "0" on.'
        )

    def with_head(self, head: str | None, labels: Sequence[str] = ()) -> "BertConfig":
        """The same encoder with another head, whose outputs are called so if they have names."""
        extra = {name: value for name, value in self.extra.items() if name not in _LABEL_KEYS}
        if labels:
            extra["id2label"] = {str(number): label for number, label in enumerate(labels)}
            extra["label2id"] = {label: number for number, label in enumerate(labels)}
        return dataclasses.replace(self, head=head, extra=extra)

    def encoder_dict(self) -> dict[str, Any]:
        """`to_dict` without what is said of the head."""
        return self.with_head(None).to_dict()

    def to_json_string(self) -> str:
        """The original's file format: keys sorted, indented by two, newline at the end."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_huggingface_dict(self) -> dict[str, Any]:
        """The same configuration in Hugging Face's terms, see `formats.hf_config`.

        Raises:
            ModelingError: For a left-to-right model, which they haven't.
        """
        from modeling.checkpoints.formats.hf_config import huggingface_dict

        return huggingface_dict(self)


@functools.cache
def _tell_unused(names: tuple[str, ...]) -> None:
    """Once, since a run reads its configuration several times."""
    if names:
        logging.info(
            "Configuration keys that BertConfig does not use, kept as they are: %s",
            ", ".join(names),
        )


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
