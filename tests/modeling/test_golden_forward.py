"""The model against the forward pass of the original release (TensorFlow 1.15, float32)."""

import json

import numpy as np
import pytest

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer, BertQuestionAnswering


@pytest.fixture(scope="module")
def tiny(golden):
    model = BertPretrainer(BertConfig.from_json_file(golden / "tiny/bert_config.json"))
    report = checkpoints.load(model, golden / "tiny/bert_model.ckpt", required=("",))
    assert len(report.loaded) == 62
    assert not report.left_over
    return model


def _run(model, golden, name, keys=None):
    inputs = dict(np.load(golden / name))
    if keys:
        inputs = {key: inputs[key] for key in keys}
    return inputs, model(inputs)


def _close(ours, theirs, bound):
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=bound)


def _log_probs(logits):
    logits = np.asarray(logits, np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def _check_losses(outputs, inputs, want, bound):
    losses, _ = PretrainingLosses()(outputs, inputs)
    results = {name: mean.result() for name, mean in losses.items()}
    results["total_loss"] = results["masked_lm_loss"] + results["next_sentence_loss"]
    for name, loss in results.items():
        _close(loss, want[name], bound)


def test_forward(tiny, golden):
    inputs, outputs = _run(tiny, golden, "forward_inputs.npz")
    want = np.load(golden / "forward_outputs.npz")
    _close(outputs["embedding_output"], want["embedding_output"], 1e-5)
    assert len(outputs["encoder_outputs"]) == 3
    for i, layer in enumerate(outputs["encoder_outputs"]):
        _close(layer, want[f"encoder_layer_{i}"], 1e-5)
    _close(outputs["sequence_output"], want["sequence_output"], 1e-5)
    _close(outputs["pooled_output"], want["pooled_output"], 1e-5)
    log_probs = _log_probs(outputs["masked_lm_logits"]).reshape(40, -1)
    _close(log_probs, want["masked_lm_log_probs"], 2e-5)
    _close(_log_probs(outputs["next_sentence_logits"]), want["next_sentence_log_probs"], 1e-5)
    _check_losses(outputs, inputs, want, 1e-6)


def test_edge_masks(tiny, golden):
    inputs, outputs = _run(tiny, golden, "forward_edge_inputs.npz")
    want = np.load(golden / "forward_edge_outputs.npz")
    for i, layer in enumerate(outputs["encoder_outputs"]):
        _close(layer, want[f"encoder_layer_{i}"], 1e-4)
    _close(outputs["pooled_output"], want["pooled_output"], 1e-4)
    _check_losses(outputs, inputs, want, 1e-5)


def test_without_mask_and_segments(tiny, golden):
    _, outputs = _run(tiny, golden, "forward_inputs.npz", keys=["input_ids"])
    want = np.load(golden / "forward_nomask_outputs.npz")
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        _close(outputs[name], want[name], 1e-5)


def test_variables_are_the_original_s(tiny, golden):
    recorded = json.loads((golden / "tiny/variables.json").read_text("utf-8"))["variables"]
    ours = {name: list(v.shape) for name, v in checkpoints.weights_by_name(tiny).items()}
    assert ours == dict(recorded)
    assert [name for name, _ in recorded] == list(ours)


def test_trained_checkpoint_names(golden):
    """What the original's training writes is our weights, their Adam slots and the step."""
    path = golden / "trained_checkpoint_variables.json"
    checked = 0
    for run, variables in json.loads(path.read_text("utf-8")).items():
        recorded = {name: shape for name, shape in variables if "/adam_" not in name}
        assert recorded.pop("global_step") == []
        layers = checkpoints.names.number_of_checkpoint_layers(recorded)
        vocab, hidden = recorded["bert/embeddings/word_embeddings"]
        config = BertConfig(
            vocab_size=vocab,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=recorded["bert/encoder/layer_0/intermediate/dense/bias"][0],
            max_position_embeddings=recorded["bert/embeddings/position_embeddings"][0],
            type_vocab_size=recorded["bert/embeddings/token_type_embeddings"][0],
        )
        if "cls/predictions/output_bias" in recorded:
            model = BertPretrainer(config)
        elif "output_weights" in recorded:
            model = BertClassifier(config, recorded["output_weights"][0])
        else:
            model = BertQuestionAnswering(config)
        ours = {name: list(v.shape) for name, v in checkpoints.weights_by_name(model).items()}
        assert ours == recorded, run
        checked += 1
    assert checked == 3


def test_task_head_checkpoint(golden):
    config = BertConfig.from_json_file(golden / "tiny2/bert_config.json")
    model = BertClassifier(config, num_labels=2)
    report = checkpoints.load(model, golden / "tiny2/model.ckpt", required=("",))
    assert report.left_over == ["cls/squad/output_bias", "cls/squad/output_weights"]
    assert len(report.loaded) == 41


def test_public_toy_checkpoint(shared_data):
    """A third-party pre-training checkpoint, with optimizer slots and a step counter."""
    folder = shared_data / "checkpoints/keras-bert-toy"
    model = BertPretrainer(BertConfig.from_json_file(folder / "bert_config.json"))
    report = checkpoints.load(model, folder, required=("",))
    assert not report.left_over
    # 46 weights with two Adam slots each, and the step.
    assert (len(report.loaded), len(report.ignored)) == (46, 93)
    ids = np.array([[2, 3, 4, 5, 0]], np.int32)
    outputs = model({"input_ids": ids, "input_mask": (ids > 0).astype(np.int32)})
    assert np.isfinite(outputs["sequence_output"]).all()
