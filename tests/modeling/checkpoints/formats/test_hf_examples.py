"""Every example of Hugging Face's formats computes here what it computed in its own library."""

import json
import shutil

import numpy as np
import pytest

from modeling import checkpoints
from modeling.checkpoints import huggingface, loading
from modeling.checkpoints.formats import hf_h5, hf_objects, torch_file
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertPretrainer, BertQuestionAnswering, BertTagger

POOLER = ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
HEAD = ["output_bias", "output_weights"]
FOLDERS = {
    "TFBertModel": HEAD,
    "TFBertForPreTraining": [],
    "TFBertForSequenceClassification": [],
    "TFBertForTokenClassification": POOLER,
    "TFBertForQuestionAnswering": POOLER,
}
EXAMPLES = [
    (f"{name}.{end}", new) for name, new in FOLDERS.items() for end in ("safetensors", "h5")
]
EXAMPLES += [("hf_checkpoint", []), ("pytorch_bin", [])]


OTHERS = ("mg_release", "mg_trainer", "mg_classifier", "tfhub")
OTHERS += ("kh_preset", "kh_keras", "kh_classifier", "pytorch_safetensors")
FINDERS = (hf_h5.hf_h5_file, hf_objects.hf_objects_file, torch_file.torch_file)


@pytest.mark.parametrize(("folder", "new"), EXAMPLES)
def test_outputs(golden, folder, new):
    examples = golden / "formats"
    config = BertConfig.from_json_file(examples / folder / "config.json")
    wanted = dict(np.load(examples / folder / "outputs.npz"))
    inputs = dict(np.load(examples / "inputs.npz"))
    if "prediction_logits" in wanted:
        model = BertPretrainer(config)
        length = inputs["input_ids"].shape[1]
        inputs["masked_lm_positions"] = np.tile(np.arange(length, dtype=np.int32), (3, 1))
    elif "start_logits" in wanted:
        model = BertQuestionAnswering(config)
    elif wanted.get("logits", np.empty(0)).ndim == 3:
        model = BertTagger(config, num_tags=3)
    else:
        model = BertClassifier(config, num_labels=3)
    report = checkpoints.load(model, examples / folder)
    assert (report.newly_initialised, report.left_over) == (new, [])
    outputs = model(inputs)
    there = inputs["input_mask"].astype(bool)
    for name, values in wanted.items():
        ours = np.asarray(outputs[OURS.get(name, name)])
        if values.shape[:2] == there.shape:
            ours, values = ours[there], values[there]
        within = 2e-5 if name == "prediction_logits" else 1e-5
        np.testing.assert_allclose(ours, values, rtol=0, atol=within, err_msg=name)


def test_safetensors_come_first(golden, tmp_path):
    examples = golden / "formats"
    for folder, name in (
        ("TFBertForSequenceClassification.safetensors", "model.safetensors"),
        ("TFBertForSequenceClassification.h5", "tf_model.h5"),
        ("pytorch_bin", "pytorch_model.bin"),
    ):
        shutil.copy(examples / folder / name, tmp_path)
        format, file = loading.find(tmp_path / name)
        assert file == str(tmp_path / name)
    assert format == "pytorch"
    assert loading.find(tmp_path) == ("huggingface", str(tmp_path / "model.safetensors"))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelingError, match="several checkpoints"):
        loading.find(tmp_path)


def test_shards_of_safetensors_come_first_too(golden, tmp_path):
    examples = golden / "formats"
    shutil.copy(examples / "pytorch_bin" / "pytorch_model.bin", tmp_path)
    shutil.copy(examples / "TFBertModel.h5" / "tf_model.h5", tmp_path)
    source = examples / "pytorch_safetensors" / "model.safetensors"
    shutil.copy(source, tmp_path / "model-00001-of-00001.safetensors")
    stored = huggingface.SafetensorsFile(str(source)).shapes
    index = tmp_path / "model.safetensors.index.json"
    shard = "model-00001-of-00001.safetensors"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(stored, shard)}))
    assert loading.find(tmp_path) == ("huggingface", str(index))
    alone = checkpoints.open_contents(source)
    assert checkpoints.open_contents(tmp_path).file_names == alone.file_names


@pytest.mark.parametrize("folder", OTHERS)
def test_other_examples_are_not_claimed(golden, folder):
    paths = [golden / "formats" / folder, *(golden / "formats" / folder).rglob("*")]
    assert not [(path, find) for path in paths for find in FINDERS if find(str(path))]


OURS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
}
