"""Losses of sentence tasks against float64 NumPy, and how they add up."""

import numpy as np
import pytest
import tensorflow as tf

from modeling.losses import ClassifierLosses, MultiLabelLosses, RegressionLosses
from modeling.models import ABSENT

REAL = np.array([1, 1, 0, 1, 1, 1, 0, 1.0])
WEIGHTS = [0.5, 3.0, 1.25]


def make_case(name: str):
    """(losses, logits, label_ids, loss per example and its weight, right or not)."""
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 3, (8, 3))
    if name.startswith("classes"):
        labels = rng.integers(0, 3, 8)
        weights = np.array(WEIGHTS) if "weighted" in name else np.ones(3)
        each = np.log(np.exp(logits).sum(1)) - logits[np.arange(8), labels]
        right = logits.argmax(1) == labels
        losses = ClassifierLosses(WEIGHTS if "weighted" in name else None)
        return losses, logits, labels.astype(np.int32), each, weights[labels], right
    if name.startswith("labels"):
        labels = rng.integers(0, 2, (8, 3))
        labels[:3] = logits[:3] > 0
        weights = np.array(WEIGHTS) if "weighted" in name else np.ones(3)
        probabilities = 1 / (1 + np.exp(-logits))
        entropy = -np.log(np.where(labels == 1, probabilities, 1 - probabilities))
        right = ((probabilities >= 0.5) == labels).all(1)
        losses = MultiLabelLosses(WEIGHTS if "weighted" in name else None)
        return losses, logits, labels, (entropy * weights).mean(1), np.ones(8), right
    labels = rng.normal(0, 3, 8)
    return RegressionLosses(), logits[:, :1], labels, (logits[:, 0] - labels) ** 2, np.ones(8), None


def tensors(logits, labels, real, rows=slice(None)):
    if labels.dtype != np.int32:
        labels = labels.astype(np.float32)
    batch = {"label_ids": tf.constant(labels[rows])}
    if real is not None:
        batch["is_real_example"] = tf.constant(real[rows], tf.float32)
    return {"logits": tf.constant(logits[rows], tf.float32)}, batch


CASES = ["classes", "classes weighted", "labels", "labels weighted", "numbers"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("real", [None, REAL])
def test_against_float64(name, real):
    losses, logits, labels, each, weights, right = make_case(name)
    there = np.ones(8) if real is None else real
    found, found_metrics = losses(*tensors(logits, labels, real))
    wanted = (each * weights * there).sum() / (weights * there).sum()
    np.testing.assert_allclose(found["loss"].result(), wanted, rtol=1e-6)
    if right is None:
        assert not found_metrics
    else:
        assert 0 < right.mean() < 1
        wanted = (right * there).sum() / there.sum()
        np.testing.assert_allclose(found_metrics["accuracy"].result(), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up(name):
    """Totals and weights of micro-batches sum to those of the batch; weights() knows them."""
    losses, logits, labels, *_ = make_case(name)
    outputs, batch = tensors(logits, labels, REAL)
    (whole,) = losses(outputs, batch)[0].values()
    weights = losses.weights(batch)
    assert list(weights) == ["loss"] and weights["loss"].dtype == tf.float32
    np.testing.assert_allclose(weights["loss"], whole.weight, rtol=1e-6)
    total = weight = known = 0.0
    for rows in (slice(0, 2), slice(2, 3), slice(3, 8)):
        outputs, batch = tensors(logits, labels, REAL, rows)
        part = losses(outputs, batch)[0]["loss"]
        total += part.total
        weight += part.weight
        known += losses.weights(batch)["loss"]
    np.testing.assert_allclose([total, weight, known], [whole.total, *[whole.weight] * 2], 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_batch_of_fillings_only(name):
    losses, logits, labels, *_ = make_case(name)
    logits = tf.Variable(logits, dtype=tf.float32)
    _, batch = tensors(logits.numpy(), labels, np.zeros(8))
    with tf.GradientTape() as tape:
        loss = losses({"logits": logits}, batch)[0]["loss"].result()
    assert float(loss) == 0
    assert not np.any(tape.gradient(loss, logits))


def test_missing_choices_count_for_nothing():
    """The same loss and gradient as without the places that are left over."""
    labels = {"label_ids": tf.constant([1, 0])}
    few = tf.Variable([[0.5, -1.0], [2.0, 1.0]])
    with tf.GradientTape() as tape:
        many = tf.concat([few, tf.fill([2, 2], ABSENT)], 1)
        loss = ClassifierLosses()({"logits": many}, labels)[0]["loss"].result()
    with tf.GradientTape() as other:
        wanted = ClassifierLosses()({"logits": few}, labels)[0]["loss"].result()
    np.testing.assert_allclose(loss, wanted, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, few), other.gradient(wanted, few), rtol=1e-6)
