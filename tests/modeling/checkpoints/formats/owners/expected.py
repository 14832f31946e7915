"""What is to be found in the checkpoints that the programs of this folder write."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from modeling.checkpoints.formats.configs import KERAS_HUB_MASKED_LM

POOLER = ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")
PREDICTIONS = (
    "cls/predictions/output_bias",
    "cls/predictions/transform/LayerNorm/beta",
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/dense/bias",
    "cls/predictions/transform/dense/kernel",
)
_VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


class Case(NamedTuple):
    """One checkpoint.

    Attributes:
        head: What it answers.
        outputs: Of a classifier's head, how many.
        labels: What they are called, if the file says so.
        new: Original names of our model's weights that the file lacks.
        left_over: Names of the file's weights that our model lacks.
        lower: Whether its texts are lower-cased, if a file says so.
        fields: Of its configuration, besides those of its size and its library.
        refused: Why it can't be read.
    """

    head: str | None = None
    outputs: int = 0
    labels: list[str] | None = None
    new: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    lower: bool | None = None
    fields: Mapping[str, Any] = MappingProxyType({})
    refused: str = ""


def _numbered(head: str, outputs: int, **more) -> Case:
    """With the names that transformers gives where there are none."""
    return Case(head, outputs, [f"LABEL_{n}" for n in range(outputs)], **more)


def _pooler(place: str) -> tuple[str, ...]:
    return tuple(f"{place}/{part}/{_VALUE}" for part in ("bias", "kernel"))


_MASKED = Case("masked_lm", new=POOLER)
_NEXT = Case("next_sentence", new=PREDICTIONS)
_SPANS = Case("spans", new=POOLER)
_DECODER = Case(refused="is_decoder")
_SILU = {"hidden_act": "silu"}

HF_TENSORFLOW = {
    "a_model": Case(),
    "b_model": Case(),
    "a_pretraining": Case("pretraining"),
    "b_pretraining": Case("pretraining"),
    "c_pretraining": Case("pretraining"),
    "a_masked": _MASKED,
    "b_masked": _MASKED,
    "c_masked": _MASKED,
    "b_next": _NEXT,
    "c_next": _NEXT,
    "a_classes": Case("classes", 4, ["bad", "so so", "good", "better"], lower=True),
    "b_several": _numbered("multi_label", 5),
    "c_number": _numbered("regression", 1, fields=_SILU),
    "b_choices": Case("choices", 1, left_over=("classifier/bias:0",)),
    "c_choices": Case(
        "choices", 1, left_over=("classifier/tf_bert_for_multiple_choice_1/classifier/bias:0",)
    ),
    "a_tags": Case("tags", 3, ["O", "B", "I"], new=POOLER, lower=False),
    "c_tags": _numbered("tags", 7, new=POOLER),
    "b_spans": _SPANS,
    "c_spans": _SPANS,
    "a_decoder": _DECODER,
}
HF_PYTORCH = {
    "a_model": Case(),
    "b_model": Case(new=POOLER),
    "c_model": Case(new=POOLER),
    "a_pretraining": Case("pretraining"),
    "b_pretraining": Case("pretraining"),
    "c_pretraining": Case("pretraining"),
    "a_masked": _MASKED,
    "b_masked": _MASKED,
    "c_next": _NEXT,
    "a_classes": Case("classes", 2, ["no", "yes"], lower=False),
    "b_several": _numbered("multi_label", 5, lower=True),
    "c_number": _numbered("regression", 1, fields=_SILU),
    "b_choices": Case("choices", 1, left_over=("module.classifier.bias",)),
    "a_tags": Case("tags", 3, ["O", "B", "I"], new=POOLER, lower=False),
    "b_tags": _numbered("tags", 7, new=POOLER),
    "c_spans": _SPANS,
    "b_decoder": _DECODER,
}
_GELU_MASKED = {"masked_lm_hidden_act": "gelu"}
MODEL_GARDEN = {
    "a_release": Case(),
    "b_release": Case(),
    "c_trainer": Case(),
    # A head with a pooler of its own leaves the encoder's unused.
    "a_pretraining": Case("pretraining", left_over=_pooler("encoder/layer_with_weights-5")),
    "b_pretraining": Case(
        "pretraining", left_over=_pooler("encoder/_pooler_layer"), fields=_GELU_MASKED
    ),
    "c_pretraining": Case(
        "masked_lm", left_over=_pooler("encoder/layer_with_weights-16"), fields=_GELU_MASKED
    ),
    "a_first_pretraining": Case("pretraining"),
    "b_masked": Case("masked_lm"),
    "a_classes": Case("classes", 4),
    "b_classes": Case("classes", 3, left_over=_pooler("encoder/layer_with_weights-7")),
    "c_first_classes": Case("classes", 5),
    "a_number": Case("regression", 1),
    "a_spans": Case("spans"),
    "c_spans": Case("spans"),
    "a_tags": Case("tags", 6),
    "b_tags": Case("tags", 3),
    "a_hub": Case("masked_lm", lower=True),
    "b_hub": Case("masked_lm", lower=False),
    "c_hub": Case(lower=True),
}
_KERAS_MASKED = Case("masked_lm", fields=KERAS_HUB_MASKED_LM)
KERAS_HUB = {
    "a_model": Case(),
    "b_model": Case(),
    "c_model": Case(),
    "b_half": Case(),
    "a_classes": Case("classes", 4),
    "b_classes": Case("classes", 5, lower=True),
    "c_classes": Case("classes", 2),
    "c_number": Case("regression", 1, lower=False),
    "a_masked": _KERAS_MASKED,
    "b_masked": _KERAS_MASKED._replace(lower=False),
    "c_masked": _KERAS_MASKED,
}

_HUGGING_FACE = {
    "a": {"hidden_act": "gelu_erf", "layer_norm_eps": 1e-12},
    "b": {"hidden_act": "gelu", "layer_norm_eps": 1e-6},
    "c": {"hidden_act": "relu", "layer_norm_eps": 1e-3},
}
LIBRARIES = {
    "hf_tensorflow": ("transformers4", HF_TENSORFLOW, _HUGGING_FACE),
    "hf_pytorch": ("transformers4", HF_PYTORCH, _HUGGING_FACE),
    "model_garden": (
        "model_garden",
        MODEL_GARDEN,
        {"a": {"hidden_act": "gelu"}, "b": {"hidden_act": "relu"}, "c": {"hidden_act": "silu"}},
    ),
    "keras_hub_models": ("keras_hub", KERAS_HUB, {}),
}
"""Program → environment, checkpoints, and fields of the configuration by the size's name."""
