"""What the programs of transformers' two families of classes share."""

import pathlib
from collections.abc import Mapping

import numpy as np
import transformers

from tests.modeling.checkpoints.formats.owners import drawing

CONFIGURATIONS = {
    "a": {"hidden_act": "gelu", "layer_norm_eps": 1e-12},
    "b": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
    "c": {"hidden_act": "relu", "layer_norm_eps": 1e-3},
}
NAMES = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
}
LOGITS = {"ForMaskedLM": "masked_lm_logits", "ForNextSentencePrediction": "next_sentence_logits"}
"""What `logits` are where they aren't a classifier's."""
SHARD = "30KB"


def configuration(name: str, **more) -> transformers.BertConfig:
    """That of the checkpoint of this name."""
    return transformers.BertConfig(**drawing.sizes_of(name) | CONFIGURATIONS[name[0]] | more)


def called(kind: str, output: str) -> str:
    """Our name of an output of a class."""
    return LOGITS.get(kind, "logits") if output == "logits" else NAMES.get(output, output)


def batch_of(kind: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs under their names; the rows are choices for multiple choice."""
    ids, mask, segments = (inputs[name] for name in drawing.INPUTS)
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {key: v[None] if kind == "ForMultipleChoice" else v for key, v in batch.items()}


def save_tokenizer(folder: pathlib.Path, name: str, **settings) -> None:
    """The files that a tokenizer's `save_pretrained` writes."""
    made = folder.parent / "vocabularies" / f"{name}.txt"
    vocabulary = drawing.write_vocabulary(made, name, cased=not settings["do_lower_case"])
    transformers.BertTokenizerFast(vocabulary, **settings).save_pretrained(str(folder))
