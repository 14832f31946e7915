"""What is converted, opened by the libraries that own the formats, in environments of their own.

    python -m pytest -m slow tests/modeling/checkpoints/formats/test_way_back.py

Minutes, most of them for installing; BERT_PEERS_DIR names a folder that keeps the environments.
"""

import json
import subprocess

import numpy as np
import pytest

import modeling
from modeling import checkpoints
from modeling.checkpoints import huggingface
from modeling.checkpoints.heads import checkpoint_head
from modeling.config import BertConfig
from tests.reference import numpy_bert

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 43,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
}
# Head → parts of the weights, and how many labels there are.
HEADS = {
    "masked_lm": ("pretraining", 2),
    "next_sentence": ("pretraining", 2),
    "choices": ("classifier", 1),
    "tags": ("classifier", 5),
    "multi_label": ("classifier", 4),
    "regression": ("classifier", 1),
}
TRANSFORMERS = """
import json, pathlib, sys
import numpy as np, torch, transformers

inputs, *folders = map(pathlib.Path, sys.argv[1:])
given = np.load(inputs)
batch = {"input_ids": given["input_ids"], "attention_mask": given["input_mask"],
         "token_type_ids": given["segment_ids"]}
batch = {name: torch.tensor(value.astype("int64")) for name, value in batch.items()}
for folder in folders:
    config = transformers.AutoConfig.from_pretrained(folder)
    made = getattr(transformers, config.architectures[0])
    model, info = made.from_pretrained(folder, output_loading_info=True)
    model.eval()
    rows = batch
    if "MultipleChoice" in config.architectures[0]:
        rows = {name: value[None] for name, value in batch.items()}
    with torch.no_grad():
        outputs = model(**rows)
    arrays = {name: value.numpy() for name, value in outputs.items()}
    np.savez(folder / "theirs.npz", **arrays)
    keys = {name: sorted(map(str, info[name])) for name in ("missing_keys", "unexpected_keys")}
    keys["mismatched_keys"] = sorted(map(str, info["mismatched_keys"]))
    report = {"class": type(model).__name__, "dtype": str(model.dtype), "keys": keys,
              "labels": config.id2label}
    (folder / "report.json").write_text(json.dumps(report))
"""
# What the examples call it → what transformers does.
NAMES = {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"}


@pytest.fixture
def examples(golden):
    folder = golden / "formats"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    return folder


def _opened_by(python: str, program: str, inputs, folders) -> None:
    command = [python, "-c", program, str(inputs), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def _written_heads(folder) -> dict:
    """A folder in Hugging Face's format for each head that the examples lack."""
    folders = {}
    for head, (part, labels) in HEADS.items():
        shapes = numpy_bert.variable_shapes(SIZES, (part,), labels=labels)
        rng = np.random.default_rng(len(head))
        tensors = {n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in shapes.items()}
        other = {"masked_lm": "seq_relationship", "next_sentence": "cls/predictions"}.get(head)
        tensors = {n: t for n, t in tensors.items() if not (other and other in n)}
        if head == "choices":
            del tensors["output_bias"]
        folders[head] = folder / head
        names = [f"label {number}" for number in range(labels)]
        config = BertConfig(**SIZES).with_head(head, names if labels > 2 else ())
        folders[head].mkdir()
        huggingface.write_huggingface(str(folders[head]), tensors, config)
    return folders


def _logits(model, head: str, inputs) -> np.ndarray:
    given = dict(np.load(inputs))
    if head == "choices":
        given = {name: value[None] for name, value in given.items()}
    if head == "masked_lm":
        rows, length = given["input_ids"].shape
        given["masked_lm_positions"] = np.tile(np.arange(length, dtype=np.int32), [rows, 1])
    name = {"masked_lm": "masked_lm_logits", "next_sentence": "next_sentence_logits"}
    return model(given)[name.get(head, "logits")].numpy()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_transformers_opens_what_is_converted(examples, tmp_path, peer_python):
    python = peer_python("pytorch")
    folders = {}
    for example in sorted(path for path in examples.iterdir() if (path / "outputs.npz").exists()):
        result = checkpoints.convert(example, tmp_path / example.name, "huggingface")
        assert result.not_converted == [], example.name
        folders[example.name] = tmp_path / example.name
    heads = _written_heads(tmp_path)
    _opened_by(python, TRANSFORMERS, examples / "inputs.npz", [*folders.values(), *heads.values()])
    there = np.load(examples / "inputs.npz")["input_mask"] == 1
    for name, folder in folders.items():
        report = json.loads((folder / "report.json").read_text())
        assert not any(report["keys"].values()), (name, report)
        assert report["dtype"] == "torch.float32"
        theirs = np.load(folder / "theirs.npz")
        for output, wanted in np.load(examples / name / "outputs.npz").items():
            got = theirs[NAMES.get(output, output)]
            if wanted.shape[:2] == there.shape and wanted.ndim == 3:
                got, wanted = got[there], wanted[there]
            atol = 2e-5 if output == "prediction_logits" else 1e-5
            np.testing.assert_allclose(got, wanted, atol=atol, err_msg=f"{name}: {output}")
    for head, folder in heads.items():
        report = json.loads((folder / "report.json").read_text())
        assert not any(report["keys"].values()), (head, report)
        held = checkpoints.open_contents(folder)
        config = checkpoints.config_of_checkpoint(held)
        assert checkpoint_head(held.shapes, config) == head
        written = json.loads((folder / "config.json").read_text())
        assert written["architectures"] == [report["class"]]
        assert list(report["labels"].values()) == config.labels or config.labels is None
        theirs = np.load(folder / "theirs.npz")["logits"]
        ours = _logits(modeling.from_pretrained(folder).model, head, examples / "inputs.npz")
        if head in ("tags", "masked_lm"):
            ours, theirs = ours[there], theirs[there]
        np.testing.assert_allclose(ours, theirs, atol=2e-5, err_msg=head)
