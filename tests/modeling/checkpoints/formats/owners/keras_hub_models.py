"""Checkpoints of KerasHub's models: python -m …owners.keras_hub_models OUT."""

import os

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}

import pathlib
import sys

import keras_hub
import numpy as np

from tests.modeling.checkpoints.formats.owners import drawing

# Name: class, how it is saved, its number of labels.
CASES = {
    "a_model": ("BertBackbone", "preset", 0),
    "b_model": ("BertBackbone", "keras", 0),
    "c_model": ("BertBackbone", "weights.h5", 0),
    "b_half": ("BertBackbone", "preset bfloat16", 0),
    "a_classes": ("BertTextClassifier", "weights.h5", 4),
    "b_classes": ("BertTextClassifier", "preset uncased", 5),
    "c_classes": ("BertTextClassifier", "keras", 2),
    "c_number": ("BertTextClassifier", "preset cased", 1),
    "a_masked": ("BertMaskedLM", "keras", 0),
    "b_masked": ("BertMaskedLM", "preset cased", 0),
    "c_masked": ("BertMaskedLM", "weights.h5", 0),
}


def backbone_of(name: str, dtype: str):
    """The encoder; its activation is the tanh form of gelu."""
    sizes = drawing.sizes_of(name)
    return keras_hub.models.BertBackbone(
        vocabulary_size=sizes["vocab_size"],
        num_layers=sizes["num_hidden_layers"],
        num_heads=sizes["num_attention_heads"],
        hidden_dim=sizes["hidden_size"],
        intermediate_dim=sizes["intermediate_size"],
        max_sequence_length=sizes["max_position_embeddings"],
        num_segments=sizes["type_vocab_size"],
        dtype=dtype,
    )


def model_of(name: str, dtype: str, vocabulary: str | None, lowercase: bool):
    """The model, with a preprocessor if it has a vocabulary."""
    kind, _, labels = CASES[name]
    backbone = backbone_of(name, dtype)
    if kind == "BertBackbone":
        return backbone
    preprocessor = None
    if vocabulary:
        tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=lowercase)
        made = getattr(keras_hub.models, f"{kind}Preprocessor")
        preprocessor = made(tokenizer, sequence_length=drawing.LENGTH)
    more = {"num_classes": labels} if labels else {}
    return getattr(keras_hub.models, kind)(backbone, preprocessor=preprocessor, **more)


def outputs_of(model, name: str) -> dict[str, np.ndarray]:
    """What the model computes, under our names."""
    kind = CASES[name][0]
    ids, mask, segments = drawing.inputs_of(name).values()
    batch = {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    if kind == "BertBackbone":
        return model(batch)
    if kind == "BertTextClassifier":
        return {"logits": model(batch)}
    return {"masked_lm_logits": model({**batch, "mask_positions": drawing.every_position()})}


def main(out: pathlib.Path) -> None:
    for name, (_, way, _) in CASES.items():
        format, *words = way.split()
        vocabulary = None
        if {"cased", "uncased"} & {*words}:
            path = out / "vocabularies" / f"{name}.txt"
            vocabulary = drawing.write_vocabulary(path, name, "cased" in words)
        given = (vocabulary, "uncased" in words)
        model = model_of(name, "bfloat16" if "bfloat16" in words else "float32", *given)
        for weight in model.weights:
            weight.assign(drawing.drawn(name, weight.path, weight.shape))
        (out / name).mkdir()
        if format == "preset":
            model.save_to_preset(str(out / name))
        elif format == "keras":
            model.save(str(out / name / "model.keras"))
        else:
            model.save_weights(str(out / name / "model.weights.h5"))
        if "bfloat16" in words:
            wide = model_of(name, "float32", *given)
            for weight, half in zip(wide.weights, model.weights, strict=True):
                weight.assign(np.asarray(half.value, np.float32))
            model = wide
        drawing.keep(out, name, outputs_of(model, name))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
