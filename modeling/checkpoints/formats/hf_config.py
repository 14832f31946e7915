"""Hugging Face's config.json of BERT ↔ `BertConfig`.

"gelu" is the exact erf form in theirs; ours is the original's tanh approximation, see `config`.
"""

import re
from typing import Any

from modeling.config import ACTIVATIONS, BIDIRECTIONAL, HUGGINGFACE_KEYS, BertConfig
from modeling.errors import ModelingError

_SENTENCES = "BertForSequenceClassification"
CLASSES = {
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
"""What a model answers, of `config.HEADS` → Hugging Face's class of such models."""
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
# Models that took over BERT's names of weights, or nearly, and compute otherwise.
_OTHER_FAMILIES = re.compile(
    r"(TF|Flax)?(XLM|Roberta|Camembert|Albert|Electra|DistilBert|MobileBert|SqueezeBert|ConvBert"
    r"|MegatronBert|NomicBert|ModernBert|MPNet|Deberta|XLNet|Longformer|BigBird|Ernie|LayoutLM|GPT)"
)
# What Hugging Face leaves out of its files when it equals its own default.
_HUGGINGFACE_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}


def fields_of_huggingface_config(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of `BertConfig`, and the keys to be kept beside them.

    Raises:
        ModelingError: It is another model's, or of a BERT that can't be computed here.
    """
    model_type = values.get("model_type", "bert")
    classes = values.get("architectures")
    first = str(classes[0]) if isinstance(classes, list) and classes else ""
    other = _OTHER_FAMILIES.match(first)
    if other and "model_type" not in values:
        raise ModelingError(
            f"The Hugging Face configuration is of a {first[:60]}; only BERT's models are "
            f"supported."
        )
    if model_type != "bert":
        raise ModelingError(
            f"The Hugging Face configuration has model_type {model_type!r}; only 'bert' is "
            f"supported."
        )
    head = _huggingface_head(values)
    values = {k: v for k, v in values.items() if k not in HUGGINGFACE_KEYS}
    values = _HUGGINGFACE_DEFAULTS | values | {"head": head}
    for name in {"hidden_act", "masked_lm_hidden_act"} & values.keys():
        activation = str(values[name]).lower()
        if activation not in _FROM_HUGGINGFACE_ACTIVATION:
            raise ModelingError(
                f"Hugging Face field {name!r} must be one of "
                f"{', '.join(_FROM_HUGGINGFACE_ACTIVATION)}; got {values[name]!r}."
            )
        values[name] = _FROM_HUGGINGFACE_ACTIVATION[activation]
    return values


def huggingface_dict(config: BertConfig) -> dict[str, Any]:
    """The same configuration in Hugging Face's terms (see the note on gelu above).

    Raises:
        ModelingError: For a left-to-right model. Hugging Face's nearest, is_decoder, pools
            the first token, which has seen nothing but itself.
    """
    if config.attention_direction != BIDIRECTIONAL:
        raise ModelingError(
            f"A model with attention_direction {config.attention_direction!r} can't be written "
            f"in Hugging Face's format, which has no such model: its is_decoder pools the "
            f"first token instead of the last one. Save it in the original's format."
        )
    values = config.to_dict()
    for name in {"hidden_act", "masked_lm_hidden_act"} & values.keys():
        values[name] = _TO_HUGGINGFACE_ACTIVATION[values[name]]
    values["layer_norm_eps"] = config.layer_norm_eps
    values["model_type"] = "bert"
    # The masked-LM head's matrix is the word embeddings', and is written nowhere else.
    values.pop("tie_word_embeddings", None)
    head = values.pop("head", None)
    values["architectures"] = [CLASSES.get(head, "BertModel")]
    if head in _PROBLEM_TYPES:
        values["problem_type"] = _PROBLEM_TYPES[head]
    return values


def _huggingface_head(values: dict[str, Any]) -> str | None:
    """What a model of this Hugging Face configuration answers; None if it doesn't tell."""
    classes = values.get("architectures")
    name = str(classes[0]).removeprefix("TF") if isinstance(classes, list) and classes else ""
    heads = [head for head, of_head in CLASSES.items() if of_head == name]
    if len(heads) <= 1:
        return heads[0] if heads else None
    told = [head for head in heads if _PROBLEM_TYPES[head] == values.get("problem_type")]
    # Theirs, by default, of as many labels.
    labels = values.get("id2label")
    one = isinstance(labels, dict) and len(labels) == 1
    return told[0] if told else "regression" if one else "classes"
