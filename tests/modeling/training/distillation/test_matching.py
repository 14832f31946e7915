"""Losses of matched layers against float64 NumPy."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertModel
from modeling.training.distillation.matching import LayerLosses

TEACHER = BertConfig.named("tiny", 40)


def config(hidden: int, heads: int, layers: int, **more) -> BertConfig:
    values = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    values |= {"vocab_size": 40, "intermediate_size": 2 * hidden, "initializer_range": 0.3}
    return BertConfig(**values, **more)


def model(of: BertConfig, seed: int, kind=BertModel, **more):
    keras.utils.set_random_seed(seed)
    made = kind(of, **more)
    made.build()
    return made


def batch(rows: int = 4, length: int = 7, **more) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    counts = np.array([length, 3, 5, 0][:rows])[:, np.newaxis]  # the last one only fills
    mask = (np.arange(length) < counts).astype(np.int32)
    ids = draw.integers(5, 40, (rows, length)).astype(np.int32) * mask
    return {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids, **more}


def relations(of: BertModel, inputs, layer: int, heads: int, visible) -> np.ndarray:
    """Probabilities float64 [3, B, heads, T, T] of queries, keys and values."""
    outputs = of(inputs)
    below = outputs["encoder_outputs"][layer - 1] if layer else outputs["embedding_output"]
    below = below.numpy().astype(np.float64)
    attention = of.encoder.layers[layer].attention
    found = []
    for dense in (attention.query, attention.key, attention.value):
        x = below @ dense.kernel.numpy().astype(np.float64) + dense.bias.numpy()
        size = x.shape[-1] // heads
        x = x.reshape(*x.shape[:2], heads, size).transpose(0, 2, 1, 3)
        scores = x @ x.transpose(0, 1, 3, 2) / math.sqrt(size)
        found.append(special.softmax(scores - 10000.0 * ~visible[:, np.newaxis], -1))
    return np.array(found)


def relation_oracle(student, teacher, inputs, pairs, heads, visible=None) -> float:
    mask = inputs["input_mask"] > 0
    if visible is None:
        visible = np.broadcast_to(mask[:, np.newaxis], (*mask.shape, mask.shape[1]))
    parts = []
    for ours, theirs in pairs:
        p = relations(teacher, inputs, theirs, heads, visible)
        q = relations(student, inputs, ours, heads, visible)
        parts.append(special.rel_entr(p, q).sum(-1).mean((0, 2))[mask])
    return float(np.mean(parts))


@pytest.mark.parametrize(
    ("student", "teacher", "given", "heads"),
    [
        (config(24, 4, 2), config(24, 4, 3), 0, 4),
        (config(16, 4, 2), config(24, 3, 3), 0, 4),
        (config(12, 6, 2), config(20, 2, 3), 0, 2),
        (config(16, 4, 2), config(24, 3, 3), 8, 8),
    ],
)
def test_relations_of_any_two_widths(student, teacher, given, heads):
    student, teacher = model(student, 1, BertClassifier, num_labels=2), model(teacher, 2)
    pairs = [(0, 0), (1, 2)]
    losses = LayerLosses(student, teacher, relations=pairs, relation_heads=given)
    assert losses.relation_heads == heads
    inputs = batch()
    found, metrics = losses(student(inputs), inputs)
    assert metrics == {} and list(found) == ["relation_loss"]
    expected = relation_oracle(student, teacher, inputs, pairs, heads)
    assert float(found["relation_loss"].result()) == pytest.approx(expected, rel=1e-4)
    weights = losses.weights(inputs)
    assert float(weights["relation_loss"]) == inputs["input_mask"].sum()
    assert float(found["relation_loss"].weight) == inputs["input_mask"].sum()


def test_sequences_of_a_row_do_not_see_each_other():
    student, teacher = model(config(16, 4, 2), 1), model(config(24, 4, 2), 2)
    inputs = batch(2)
    sequences = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 2, 2, 0, 0, 0, 0]], np.int32)
    inputs |= {"sequence_ids": sequences}
    visible = sequences[:, :, np.newaxis] == sequences[:, np.newaxis]
    visible &= inputs["input_mask"][:, np.newaxis] > 0
    losses = LayerLosses(student, teacher, relations=[(1, 1)])
    found, _ = losses(student(inputs), inputs)
    expected = relation_oracle(student, teacher, inputs, [(1, 1)], 4, visible)
    assert float(found["relation_loss"].result()) == pytest.approx(expected, rel=1e-4)


def test_hidden_states():
    student, teacher = model(config(24, 4, 2), 1), model(config(24, 3, 3), 2)
    inputs, pairs = batch(), [(0, 1), (1, 2)]
    losses = LayerLosses(student, teacher, hidden=pairs, weight=3.0)
    found, _ = losses(student(inputs), inputs)
    real = inputs["input_mask"] > 0
    ours, theirs = (m(inputs)["encoder_outputs"] for m in (student, teacher))
    squares = [
        (ours[a].numpy().astype(np.float64) - theirs[b].numpy())[real] ** 2 for a, b in pairs
    ]
    assert float(found["hidden_loss"].result()) == pytest.approx(3 * np.mean(squares), rel=1e-5)


def test_only_the_student_learns():
    student, teacher = model(config(24, 4, 2), 1), model(config(24, 4, 2), 1)
    inputs = batch()
    losses = LayerLosses(student, teacher, [(1, 1)], [(1, 1)])
    with tf.GradientTape() as tape:
        found, _ = losses(student(inputs), inputs)
        total = tf.add_n([mean.result() for mean in found.values()])
    # Twins have nothing to learn.
    assert float(total) == pytest.approx(0, abs=1e-6)
    noise = tf.random.stateless_normal([24, 24], [1, 2])
    student.encoder.layers[0].attention.query.kernel.assign_add(noise)
    with tf.GradientTape(persistent=True) as tape:
        found, _ = losses(student(inputs), inputs)
        total = tf.add_n([mean.result() for mean in found.values()])
    values = [weight.value for weight in teacher.trainable_weights]
    assert all(gradient is None for gradient in tape.gradient(total, values))
    kernel = student.encoder.layers[0].attention.query.kernel.value
    assert float(tf.norm(tape.gradient(total, kernel))) > 1e-4


def test_what_widths_do_not_allow():
    student, teacher = model(config(16, 4, 1), 1), model(config(24, 4, 1), 2)
    with pytest.raises(ModelingError, match=r"16 wide, the teacher's 24.*attention relations"):
        LayerLosses(student, teacher, hidden=[(0, 0)])
    with pytest.raises(ModelingError, match=r"into 5 heads.*16.*24"):
        LayerLosses(student, teacher, relations=[(0, 0)], relation_heads=5)
