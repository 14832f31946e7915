"""The model against the float64 NumPy oracle on random weights; needs no recorded data."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer
from tests.reference import numpy_bert

BASE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_act": "gelu",
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}
CONFIGS = {
    "tanh gelu": {},
    "erf gelu": {"hidden_act": "gelu_erf"},
    "quick gelu": {"hidden_act": "quick_gelu"},
    "relu": {"hidden_act": "relu"},
    "silu": {"hidden_act": "silu"},
    "mish": {"hidden_act": "mish"},
    "tanh": {"hidden_act": "tanh"},
    "linear": {"hidden_act": "linear"},
    "16 segment types": {"type_vocab_size": 16},
    "one head": {"num_attention_heads": 1},
    "as many heads as units": {"num_attention_heads": 32},
    "four layers": {"num_hidden_layers": 4},
    "odd inner size": {"intermediate_size": 37},
    "large layer norm epsilon": {"layer_norm_eps": 0.01},
    "another masked-LM head": {
        "masked_lm_hidden_act": "gelu_erf",
        "masked_lm_layer_norm_eps": 0.01,
    },
}


def _pretrainer(config, weights):
    model = BertPretrainer(BertConfig(**config))
    _assign(model, weights)
    return model


def _assign(model, weights):
    ours = checkpoints.weights_by_name(model)
    assert ours.keys() == weights.keys()
    for name, variable in ours.items():
        variable.assign(weights[name])


def _difference(ours, theirs):
    return float(np.abs(np.asarray(ours, np.float64) - theirs).max())


@pytest.mark.parametrize("name", CONFIGS)
def test_pretrainer(name):
    config = BASE | CONFIGS[name]
    weights = numpy_bert.random_weights(config, seed=1)
    inputs = numpy_bert.random_inputs(config, batch=3, length=17, predictions=5, seed=2)
    want = numpy_bert.forward(weights, config, inputs)
    want_losses = numpy_bert.losses(want, inputs)
    got = _pretrainer(config, weights)(inputs)
    for key in ("embedding_output", "sequence_output", "pooled_output"):
        assert _difference(got[key], want[key]) <= 1e-5, key
    assert len(got["encoder_outputs"]) == config["num_hidden_layers"]
    for ours, theirs in zip(got["encoder_outputs"], want["encoder_outputs"], strict=True):
        assert _difference(ours, theirs) <= 1e-5
    log_probs = tf.nn.log_softmax(got["masked_lm_logits"])
    assert _difference(log_probs, want["masked_lm_log_probs"]) <= 1e-5
    log_probs = tf.nn.log_softmax(got["next_sentence_logits"])
    assert _difference(log_probs, want["next_sentence_log_probs"]) <= 1e-5
    losses, _ = PretrainingLosses()(got, inputs)
    for key, mean in losses.items():
        assert float(mean.result()) == pytest.approx(want_losses[key], rel=3e-6), key


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_classifier(labels):
    weights = numpy_bert.random_weights(BASE, seed=3, heads=("classifier",), labels=labels)
    inputs = numpy_bert.random_inputs(BASE, batch=3, length=9, predictions=1, seed=4)
    model = BertClassifier(BertConfig(**BASE), labels)
    _assign(model, weights)
    want = numpy_bert.forward(weights, BASE, inputs)
    got = model({key: inputs[key] for key in ("input_ids", "input_mask", "segment_ids")})
    assert _difference(got["logits"], want["logits"]) <= 1e-5


def test_activations_differ_enough_for_this_test_to_see_it():
    weights = numpy_bert.random_weights(BASE, seed=1)
    inputs = numpy_bert.random_inputs(BASE, batch=3, length=17, predictions=5, seed=2)
    one = numpy_bert.forward(weights, BASE, inputs)["sequence_output"]
    other = numpy_bert.forward(weights, BASE | {"hidden_act": "gelu_erf"}, inputs)
    assert _difference(one, other["sequence_output"]) > 1e-4


def test_segment_id_outside_the_table_adds_nothing():
    weights = numpy_bert.random_weights(BASE, seed=5)
    inputs = numpy_bert.random_inputs(BASE, batch=2, length=6, predictions=2, seed=6)
    inputs["segment_ids"][0, 2] = 7
    want = numpy_bert.forward(weights, BASE, inputs)
    got = _pretrainer(BASE, weights)(inputs)
    assert _difference(got["sequence_output"], want["sequence_output"]) <= 1e-5


def test_gradients_equal_finite_differences():
    """The loss's slope along random directions, by central differences of the oracle."""
    config = BASE | {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    weights = numpy_bert.random_weights(config, seed=7)
    inputs = numpy_bert.random_inputs(config, batch=2, length=7, predictions=3, seed=8)
    model = _pretrainer(config, weights)
    variables = {n: v.value for n, v in checkpoints.weights_by_name(model).items()}
    with tf.GradientTape() as tape:
        losses, _ = PretrainingLosses()(model(inputs), inputs)
        total = tf.add_n([mean.result() for mean in losses.values()])
    gradients = tape.gradient(total, variables)
    rng = np.random.default_rng(9)

    def loss(step, direction):
        moved = dict(weights) | {
            n: weights[n].astype(np.float64) + step * d for n, d in direction.items()
        }
        outputs = numpy_bert.forward(moved, config, inputs)
        return numpy_bert.losses(outputs, inputs)["total_loss"]

    for name, gradient in gradients.items():
        direction = {name: rng.normal(size=weights[name].shape)}
        slope = (loss(1e-5, direction) - loss(-1e-5, direction)) / 2e-5
        ours = float((tf.convert_to_tensor(gradient).numpy() * direction[name]).sum())
        assert ours == pytest.approx(slope, rel=2e-4, abs=2e-6), name
