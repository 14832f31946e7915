"""What is converted, opened by the libraries that own the formats, in environments of their own.

    python -m pytest -m slow tests/modeling/checkpoints/formats/test_way_back.py

Minutes, most of them for installing; BERT_PEERS_DIR names a folder that keeps the environments.
"""

import json
import subprocess

import numpy as np
import pytest

import modeling
from data.tokenization import Tokenizer
from modeling import checkpoints
from modeling.checkpoints import huggingface
from modeling.checkpoints.formats.configs import KERAS_HUB_MASKED_LM
from modeling.checkpoints.heads import checkpoint_head
from modeling.checkpoints.vocabularies import TextFolding
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
# Presets' own classes load; BertTokenizer and the task's preprocessor where there is a vocabulary.
KERAS_HUB = """
import json, pathlib, sys
import numpy as np, keras_hub

inputs, *folders = map(pathlib.Path, sys.argv[1:])
given = np.load(inputs)
batch = {"token_ids": given["input_ids"], "segment_ids": given["segment_ids"],
         "padding_mask": given["input_mask"]}
for folder in folders:
    task = folder / "task.json"
    kind = json.loads(task.read_text())["class_name"] if task.exists() else "BertBackbone"
    model = getattr(keras_hub.models, kind).from_preset(str(folder))
    backbone = keras_hub.models.BertBackbone.from_preset(str(folder))
    arrays = {name: np.asarray(value) for name, value in backbone(batch).items()}
    report = {"class": type(model).__name__, "tokens": None, "packed": None}
    if kind == "BertTextClassifier":
        arrays["logits"] = np.asarray(model(batch))
    if kind == "BertMaskedLM":
        rows, length = batch["token_ids"].shape
        every = np.tile(np.arange(length), [rows, 1])
        arrays["masked_lm_logits"] = np.asarray(model({**batch, "mask_positions": every}))
    texts = folder / "texts.json"
    if texts.exists():
        texts = json.loads(texts.read_text())
        tokenizer = keras_hub.models.BertTokenizer.from_preset(str(folder))
        report["tokens"] = [np.asarray(tokenizer(text)).tolist() for text in texts]
        preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(str(folder))
        report["packed"] = np.asarray(preprocessor(texts)["token_ids"]).tolist()
        arrays["of_texts"] = np.asarray(model.predict(texts, verbose=0)) if task.exists() else 0
    np.savez(folder / "theirs.npz", **arrays)
    (folder / "report.json").write_text(json.dumps(report))
"""
TEXTS = [
    "t0 T1, t2",
    "t\u03010 t3\u4e2dt4",
    "",
]  # of the first, case counts; of the second, accents
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


def _written_tasks(folder, vocab) -> dict:
    """A preset for each task, head → folder; all but the masked LM's with a tokenizer."""
    folders = {}
    for head, part, folding in (
        ("masked_lm", "pretraining", None),
        ("classes", "classifier", TextFolding(True)),
        ("multi_label", "classifier", TextFolding(True, False)),
        ("regression", "classifier", TextFolding(False)),
    ):
        shapes = numpy_bert.variable_shapes(SIZES, (part,), labels=1 if head == "regression" else 3)
        rng = np.random.default_rng(len(head))
        tensors = {n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in shapes.items()}
        tensors = {n: t for n, t in tensors.items() if "seq_relationship" not in n}
        form = KERAS_HUB_MASKED_LM if head == "masked_lm" else {}
        config = BertConfig(**SIZES, **form, head=head)
        folders[head] = folder / head
        checkpoints.write_checkpoint(
            folders[head], tensors, config, folding and vocab, "keras_hub", folding
        )
        if folding:
            (folders[head] / "texts.json").write_text(json.dumps(TEXTS))
    return folders


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_keras_hub_opens_what_is_converted(examples, tmp_path, peer_python):
    python = peer_python("keras_hub")
    folders = {}
    for name in (
        *("mg_release", "mg_trainer", "mg_classifier", "tfhub"),
        *("kh_preset", "kh_keras", "kh_classifier"),
    ):
        result = checkpoints.convert(examples / name, tmp_path / name, "keras_hub")
        assert result.not_converted == [], name
        folders[name] = tmp_path / name
    tasks = _written_tasks(tmp_path, examples / "vocab.txt")
    _opened_by(python, KERAS_HUB, examples / "inputs.npz", [*folders.values(), *tasks.values()])
    there = np.load(examples / "inputs.npz")["input_mask"] == 1
    for name, folder in folders.items():
        theirs = np.load(folder / "theirs.npz")
        wanted = dict(np.load(examples / name / "outputs.npz"))
        assert wanted.keys() <= set(theirs.files)
        for output, array in wanted.items():
            got = theirs[output]
            if output == "sequence_output":
                got, array = got[there], array[there]
            np.testing.assert_allclose(got, array, atol=1e-5, err_msg=f"{name}: {output}")
    for head, folder in tasks.items():
        report = json.loads((folder / "report.json").read_text())
        theirs = np.load(folder / "theirs.npz")
        model = modeling.from_pretrained(folder).model
        logits = _logits(model, head, examples / "inputs.npz")
        if head == "masked_lm":
            assert report["class"] == "BertMaskedLM"
            got = theirs["masked_lm_logits"][there]
            np.testing.assert_allclose(got, logits[there], atol=2e-5)
            continue
        assert report["class"] == "BertTextClassifier"
        np.testing.assert_allclose(theirs["logits"], logits, atol=1e-5, err_msg=head)
        lower, cased = (
            Tokenizer(str(examples / "vocab.txt"), do_lower_case).tokenize(TEXTS).to_list()
            for do_lower_case in (True, False)
        )
        wanted = {"classes": lower, "multi_label": [lower[0], *cased[1:]], "regression": cased}
        assert lower[0] != cased[0] and lower[1] != cased[1]
        assert report["tokens"] == wanted[head], head
        rows = [[2, *ids, 3] for ids in wanted[head]]
        rows = [ids + [0] * (SIZES["max_position_embeddings"] - len(ids)) for ids in rows]
        assert report["packed"] == rows
        ids = np.array(rows, np.int32)
        mask = (ids != 0).astype(np.int32)
        packed = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
        of_texts = model(packed)["logits"].numpy()
        np.testing.assert_allclose(theirs["of_texts"], of_texts, atol=1e-5, err_msg=head)
