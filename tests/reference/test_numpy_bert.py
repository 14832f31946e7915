"""The NumPy oracle itself against numbers printed by the original release."""

import json

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 11,
    "hidden_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
}


@pytest.fixture(scope="module")
def tiny(golden):
    config = json.loads((golden / "tiny/bert_config.json").read_text("utf-8"))
    reader = tf.train.load_checkpoint(str(golden / "tiny/bert_model.ckpt"))
    return config, {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def _outputs(tiny, golden, inputs_name):
    config, weights = tiny
    inputs = dict(np.load(golden / inputs_name))
    outputs = numpy_bert.forward(weights, config, inputs)
    return outputs, numpy_bert.losses(outputs, inputs)


def test_variable_table_is_the_original_s(tiny, golden):
    recorded = json.loads((golden / "tiny/variables.json").read_text("utf-8"))["variables"]
    assert [[n, list(s)] for n, s in numpy_bert.variable_shapes(tiny[0]).items()] == recorded


def test_forward(tiny, golden):
    outputs, losses = _outputs(tiny, golden, "forward_inputs.npz")
    want = np.load(golden / "forward_outputs.npz")
    for i in range(3):
        _close(outputs["encoder_outputs"][i], want[f"encoder_layer_{i}"], 5e-6)
        _close(outputs["attention_probs"][i], want[f"attention_probs_{i}"], 1e-6)
    _close(outputs["embedding_output"], want["embedding_output"], 2e-6)
    _close(outputs["pooled_output"], want["pooled_output"], 5e-6)
    _close(outputs["masked_lm_log_probs"].reshape(40, -1), want["masked_lm_log_probs"], 2e-5)
    _close(outputs["next_sentence_log_probs"], want["next_sentence_log_probs"], 5e-6)
    for name, loss in losses.items():
        _close(loss, want[name], 1e-6)


def test_edge_masks(tiny, golden):
    # The original adds -10000 in float32, which costs an all-padding row the last digits of its
    # scores; float64 keeps them.
    outputs, losses = _outputs(tiny, golden, "forward_edge_inputs.npz")
    want = np.load(golden / "forward_edge_outputs.npz")
    for i in range(3):
        _close(outputs["encoder_outputs"][i], want[f"encoder_layer_{i}"], 2e-4)
    _close(outputs["pooled_output"], want["pooled_output"], 1e-4)
    _close(losses["total_loss"], want["total_loss"], 5e-6)


def test_without_mask_and_segments(tiny, golden):
    config, weights = tiny
    ids = np.load(golden / "forward_inputs.npz")["input_ids"]
    outputs = numpy_bert.forward(weights, config, {"input_ids": ids})
    want = np.load(golden / "forward_nomask_outputs.npz")
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        _close(outputs[name], want[name], 5e-6)


def test_learning_rates(golden):
    for table in json.loads((golden / "lr_tables.json").read_text("utf-8")):
        for step, rate in table["lr"]:
            ours = numpy_bert.learning_rate(
                step, table["init_lr"], table["num_train_steps"], table["num_warmup_steps"]
            )
            # The table was computed in float32.
            assert ours == pytest.approx(rate, rel=2e-6, abs=table["init_lr"] * 2e-7), step


def test_first_adam_steps_by_hand():
    weights = {"w": np.array([2.0]), "LayerNorm/beta": np.array([2.0])}
    slots = {}
    gradients = {"w": np.array([0.3]), "LayerNorm/beta": np.array([0.4])}
    numpy_bert.adam_step(weights, gradients, slots, 0.0)
    assert weights["w"] == 2.0
    assert slots["w"][0] == pytest.approx(0.03) and slots["w"][1] == pytest.approx(0.00009)
    numpy_bert.adam_step(weights, gradients, slots, 0.1)
    # Two equal gradients g: m = 0.19 g and v = 0.001999 g².
    update = 0.19 * 0.3 / (np.sqrt(0.001999) * 0.3 + 1e-6)
    assert weights["w"] == pytest.approx(2.0 - 0.1 * (update + 0.01 * 2.0), rel=1e-12)
    update = 0.19 * 0.4 / (np.sqrt(0.001999) * 0.4 + 1e-6)
    assert weights["LayerNorm/beta"] == pytest.approx(2.0 - 0.1 * update, rel=1e-12)


def test_adam_follows_the_recorded_trajectory(golden):
    """Twelve steps of the original's optimizer, with gradients taken from the Keras model."""
    record = json.loads((golden / "optimizer_pretrain.json").read_text("utf-8"))
    model = BertPretrainer(BertConfig.from_json_file(golden / "tiny/bert_config.json"))
    checkpoints.load(model, golden / "tiny", required=("",))
    variables = checkpoints.weights_by_name(model)
    weights = {name: variable.numpy().astype(np.float64) for name, variable in variables.items()}
    slots = {}
    inputs = dict(np.load(golden / "forward_inputs.npz"))
    for row in record["rows"]:
        with tf.GradientTape() as tape:
            losses, _ = PretrainingLosses()(model(inputs), inputs)
            total = tf.add_n([mean.result() for mean in losses.values()])
        assert float(total) == pytest.approx(row["loss"], rel=2e-6), row["step"]
        if "lr" not in row:  # The last row is the loss after the twelfth step.
            break
        gradients = tape.gradient(total, {name: v.value for name, v in variables.items()})
        gradients = {name: tf.convert_to_tensor(g).numpy() for name, g in gradients.items()}
        norm = numpy_bert.global_norm(gradients)
        assert norm == pytest.approx(row["global_norm_dense"], rel=1e-5)
        rate = numpy_bert.learning_rate(
            row["step"], record["init_lr"], record["num_train_steps"], record["num_warmup_steps"]
        )
        numpy_bert.adam_step(weights, gradients, slots, rate)
        for name, variable in variables.items():
            variable.assign(weights[name])
    final = np.load(golden / "optimizer_pretrain_final.npz")
    checked = [name for name in weights if name.replace("/", "|") in final.files]
    assert len(checked) == len(weights) - 1  # Of the word embeddings, only some rows.
    for name in checked:
        _close(weights[name], final[name.replace("/", "|")], 5e-6)
    words = "bert/embeddings/word_embeddings"
    for rows, ids in (("touched", "touched_ids"), ("untouched_sample", "untouched_sample_ids")):
        recorded = final[f"{words}[{rows}]".replace("/", "|")]
        _close(weights[words][final[ids]], recorded, 5e-6)
    for name in record["three"]:
        for moment, slot in zip(slots[name], ("adam_m", "adam_v"), strict=True):
            _close(moment, final[f"{name}/{slot}".replace("/", "|")], 1e-6)


def test_adam_clips_all_gradients_together():
    slots = {}
    weights = {"a": np.zeros(1), "b": np.zeros(1)}
    numpy_bert.adam_step(weights, {"a": np.array([3.0]), "b": np.array([4.0])}, slots, 1.0)
    assert [slots[n][0][0] for n in "ab"] == pytest.approx([0.06, 0.08])


def test_random_weights_leave_nothing_at_its_initial_value():
    weights = numpy_bert.random_weights(CONFIG, heads=("pretraining", "classifier", "squad"))
    assert all(np.all(value != 0) for value in weights.values())
    assert all(np.all(v != 1) for n, v in weights.items() if n.endswith("gamma"))
    again = numpy_bert.random_weights(CONFIG, heads=("pretraining", "classifier", "squad"))
    assert all(np.array_equal(weights[name], again[name]) for name in again)


def test_segment_out_of_range_adds_nothing():
    weights = numpy_bert.random_weights(CONFIG)
    ids = np.array([[1, 2]])
    outside = numpy_bert.forward(weights, CONFIG, {"input_ids": ids, "segment_ids": ids * 0 + 9})
    zeroed = weights | {"bert/embeddings/token_type_embeddings": np.zeros((2, 6))}
    plain = numpy_bert.forward(zeroed, CONFIG, {"input_ids": ids})
    np.testing.assert_array_equal(outside["sequence_output"], plain["sequence_output"])


def _close(ours, theirs, bound):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
