"""What is converted, opened by the libraries that own the formats, in environments of their own.

    python -m pytest -m slow tests/modeling/checkpoints/formats/test_way_back.py

Minutes, most of them for installing; BERT_PEERS_DIR names a folder that keeps the environments.
"""

import json

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
from tests.modeling.checkpoints.formats.owners.running import assert_equal, opened
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
TEXTS = [
    "t0 T1, t2",
    "t\u03010 t3\u4e2dt4",
    "",
]  # of the first, case counts; of the second, accents
# What some of the examples call it → what we do.
NAMES = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
}


@pytest.fixture
def examples(formats):
    return formats


def _outputs(example) -> dict[str, np.ndarray]:
    """What the example's own library computed, under our names."""
    return {NAMES.get(n, n): array for n, array in np.load(example / "outputs.npz").items()}


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


def _computed(model, head: str, inputs) -> dict[str, np.ndarray]:
    """What a model answers; the rows are choices, if it has any."""
    given = dict(np.load(inputs))
    if head == "choices":
        given = {name: value[None] for name, value in given.items()}
    if head == "masked_lm":
        rows, length = given["input_ids"].shape
        given["masked_lm_positions"] = np.tile(np.arange(length, dtype=np.int32), [rows, 1])
    name = {"masked_lm": "masked_lm_logits", "next_sentence": "next_sentence_logits"}
    name = name.get(head, "logits")
    return {name: model(given)[name].numpy()}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_transformers_opens_what_is_converted(examples, tmp_path, peer_python):
    inputs, python = examples / "inputs.npz", peer_python("pytorch")
    folders = {}
    for example in sorted(path for path in examples.iterdir() if (path / "outputs.npz").exists()):
        result = checkpoints.convert(example, tmp_path / example.name, "huggingface")
        assert result.not_converted == [], example.name
        folders[example.name] = tmp_path / example.name
    heads = _written_heads(tmp_path)
    every = [*folders.values(), *heads.values()]
    found = opened(python, "open_transformers", dict.fromkeys(every, inputs))
    mask = np.load(inputs)["input_mask"]
    for name, folder in folders.items():
        report, theirs = found[folder]
        assert (report["keys"], report["dtype"]) == ([], "torch.float32"), name
        assert_equal(theirs, _outputs(examples / name), mask, name)
    for head, folder in heads.items():
        report, theirs = found[folder]
        assert report["keys"] == [], head
        held = checkpoints.open_contents(folder)
        config = checkpoints.config_of_checkpoint(held)
        assert checkpoint_head(held.shapes, config) == head
        written = json.loads((folder / "config.json").read_text())
        assert written["architectures"] == [report["class"]]
        assert report["labels"] == config.labels or config.labels is None
        ours = _computed(modeling.from_pretrained(folder).model, head, inputs)
        assert_equal(theirs, ours, mask, head)


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
    inputs, python = examples / "inputs.npz", peer_python("keras_hub")
    folders = {}
    for name in (
        *("mg_release", "mg_trainer", "mg_classifier", "tfhub"),
        *("kh_preset", "kh_keras", "kh_classifier"),
    ):
        result = checkpoints.convert(examples / name, tmp_path / name, "keras_hub")
        assert result.not_converted == [], name
        folders[name] = tmp_path / name
    tasks = _written_tasks(tmp_path, examples / "vocab.txt")
    every = [*folders.values(), *tasks.values()]
    found = opened(python, "open_keras_hub", dict.fromkeys(every, inputs))
    mask = np.load(inputs)["input_mask"]
    for name, folder in folders.items():
        assert_equal(found[folder][1], _outputs(examples / name), mask, name)
    for head, folder in tasks.items():
        report, theirs = found[folder]
        model = modeling.from_pretrained(folder).model
        assert_equal(theirs, _computed(model, head, inputs), mask, head)
        if head == "masked_lm":
            assert report["class"] == "BertMaskedLM"
            continue
        assert report["class"] == "BertTextClassifier"
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
        of_texts = {"of_texts": model(packed)["logits"].numpy()}
        assert_equal(theirs, of_texts, mask, head)
