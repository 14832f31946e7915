"""Checkpoints of transformers 4's PyTorch classes: python -m …owners.hf_pytorch OUT."""

import os

os.environ["USE_TF"] = "0"

import pathlib
import sys

import torch
import transformers

from tests.modeling.checkpoints.formats.owners import drawing, hf_cases

# Name: class, how it is saved, what its configuration has besides.
CASES = {
    "a_model": ("Model", "bin 0.auto_model.", {}),
    "b_model": ("Model", "safetensors poolerless", {}),
    "c_model": ("Model", "bin poolerless", {}),
    "a_pretraining": ("ForPreTraining", "bin module.", {}),
    "b_pretraining": ("ForPreTraining", "bin sharded", {}),
    "c_pretraining": ("ForPreTraining", "safetensors sharded", {}),
    "a_masked": ("ForMaskedLM", "safetensors float16", {}),
    "b_masked": ("ForMaskedLM", "bin", {}),
    "c_next": ("ForNextSentencePrediction", "bin", {}),
    "a_classes": (
        "ForSequenceClassification",
        "bin bfloat16 cased",
        {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}},
    ),
    "b_several": (
        "ForSequenceClassification",
        "safetensors sharded uncased",
        {"num_labels": 5, "problem_type": "multi_label_classification"},
    ),
    "c_number": (
        "ForSequenceClassification",
        "safetensors bfloat16",
        {"num_labels": 1, "problem_type": "regression", "hidden_act": "silu"},
    ),
    "b_choices": ("ForMultipleChoice", "bin module.", {}),
    "a_tags": (
        "ForTokenClassification",
        "bin cased",
        {"id2label": {0: "O", 1: "B", 2: "I"}, "label2id": {"O": 0, "B": 1, "I": 2}},
    ),
    "b_tags": ("ForTokenClassification", "safetensors", {"num_labels": 7}),
    "c_spans": ("ForQuestionAnswering", "bin float16", {}),
    "b_decoder": ("LMHeadModel", "bin", {"is_decoder": True, "use_cache": False}),
}


def main(out: pathlib.Path) -> None:
    for name, (kind, way, more) in CASES.items():
        made = getattr(transformers, f"Bert{kind}")
        pooler = {"add_pooling_layer": False} if "poolerless" in way else {}
        model = made(hf_cases.configuration(name, **more), **pooler).eval()
        with torch.no_grad():
            for weight, tensor in model.named_parameters():
                tensor.copy_(torch.tensor(drawing.drawn(name, weight, tensor.shape)))
        dtype = next((d for d in ("float16", "bfloat16") if d in way.split()), "float32")
        model.to(getattr(torch, dtype))
        folder = out / name
        size = hf_cases.SHARD if "sharded" in way else "5GB"
        model.save_pretrained(
            str(folder), safe_serialization="safetensors" in way, max_shard_size=size
        )
        prefix = way.split()[-1]
        if prefix.endswith("."):  # as DataParallel's and sentence-transformers' states have it
            state = {f"{prefix}{key}": value for key, value in model.state_dict().items()}
            torch.save(state, folder / "pytorch_model.bin")
        if "cased" in way:
            hf_cases.save_tokenizer(folder, name, do_lower_case="uncased" in way)
        batch = hf_cases.batch_of(kind, drawing.inputs_of(name))
        with torch.no_grad():
            given = model.float()(**{key: torch.tensor(value) for key, value in batch.items()})
        outputs = {hf_cases.called(kind, key): value for key, value in given.items()}
        drawing.keep(out, name, outputs)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
