"""Checkpoints of transformers 4's TensorFlow classes: python -m …owners.hf_tensorflow OUT."""

import os

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "USE_TORCH": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}

import pathlib
import sys

import tensorflow as tf
import transformers

from tests.modeling.checkpoints.formats.owners import drawing, hf_cases

# Name: class, how it is saved, what its configuration has besides.
CASES = {
    "a_model": ("Model", "safetensors", {}),
    "b_model": ("Model", "h5", {}),
    "a_pretraining": ("ForPreTraining", "checkpoint", {}),
    "b_pretraining": ("ForPreTraining", "sharded h5", {}),
    "c_pretraining": ("ForPreTraining", "sharded safetensors", {}),
    "a_masked": ("ForMaskedLM", "h5", {}),
    "b_masked": ("ForMaskedLM", "safetensors", {}),
    "c_masked": ("ForMaskedLM", "checkpoint", {}),
    "b_next": ("ForNextSentencePrediction", "safetensors", {}),
    "c_next": ("ForNextSentencePrediction", "h5", {}),
    "a_classes": (
        "ForSequenceClassification",
        "h5 uncased",
        {"id2label": dict(enumerate(("bad", "so so", "good", "better")))},
    ),
    "b_several": (
        "ForSequenceClassification",
        "checkpoint",
        {"num_labels": 5, "problem_type": "multi_label_classification"},
    ),
    "c_number": (
        "ForSequenceClassification",
        "safetensors",
        {"num_labels": 1, "problem_type": "regression", "hidden_act": "silu"},
    ),
    "b_choices": ("ForMultipleChoice", "safetensors", {}),
    "c_choices": ("ForMultipleChoice", "h5", {}),
    "a_tags": (
        "ForTokenClassification",
        "safetensors cased",
        {"id2label": {0: "O", 1: "B", 2: "I"}, "label2id": {"O": 0, "B": 1, "I": 2}},
    ),
    "c_tags": ("ForTokenClassification", "checkpoint", {"num_labels": 7}),
    "b_spans": ("ForQuestionAnswering", "h5", {}),
    "c_spans": ("ForQuestionAnswering", "safetensors", {}),
    "a_decoder": ("LMHeadModel", "safetensors", {"is_decoder": True, "use_cache": False}),
}


def main(out: pathlib.Path) -> None:
    for name, (kind, way, more) in CASES.items():
        model = getattr(transformers, f"TFBert{kind}")(hf_cases.configuration(name, **more))
        batch = {
            key: tf.constant(value)
            for key, value in hf_cases.batch_of(kind, drawing.inputs_of(name)).items()
        }
        model(batch)
        for variable in model.weights:
            variable.assign(drawing.drawn(name, variable.name, variable.shape))
        outputs = {hf_cases.called(kind, key): value for key, value in model(batch).items()}
        drawing.keep(out, name, outputs)
        folder = str(out / name)
        if way == "checkpoint":
            tf.train.Checkpoint(model=model).save(f"{folder}/ckpt")
            model.config.architectures = [f"TFBert{kind}"]
            model.config.save_pretrained(folder)
        else:
            size = hf_cases.SHARD if "sharded" in way else "5GB"
            model.save_pretrained(
                folder, safe_serialization="safetensors" in way, max_shard_size=size
            )
        if "cased" in way:
            hf_cases.save_tokenizer(out / name, name, do_lower_case="uncased" in way)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
