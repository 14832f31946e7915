"""Losses of distillation against float64 NumPy, their gradients against differences."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from modeling.losses import (
    ClassifierLosses,
    MultiLabelLosses,
    RegressionLosses,
    SpanLosses,
    TaggingLosses,
)
from modeling.models import ABSENT
from modeling.training.distillation.soft_answers import (
    LABELLED,
    SOFT_LOSSES,
    TEACHER,
    TaughtLosses,
    binary_divergence,
    divergence,
)

DRAW = np.random.default_rng(7)
TEMPERATURES = (0.5, 1.0, 2.0, 8.0)


def draw(*shape) -> np.ndarray:
    return DRAW.normal(0, 3, shape).astype(np.float32)


def oracle(teacher, student, temperature: float) -> np.ndarray:
    """KL of the softmaxes times the temperature's square, in float64."""
    p = special.softmax(teacher.astype(np.float64) / temperature, -1)
    q = special.softmax(student.astype(np.float64) / temperature, -1)
    return temperature**2 * special.rel_entr(p, q).sum(-1)


def binary_oracle(teacher, student, temperature: float) -> np.ndarray:
    two = [np.stack([x, np.zeros_like(x)], -1) for x in (teacher, student)]
    return oracle(*two, temperature)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_divergences(temperature):
    teacher, student = draw(50, 7), draw(50, 7)
    got = divergence(teacher, student, temperature)
    np.testing.assert_allclose(got, oracle(teacher, student, temperature), rtol=2e-5, atol=1e-5)
    got = binary_divergence(teacher, student, temperature)
    expected = binary_oracle(teacher, student, temperature)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-5)
    # Nothing to learn where both say the same, nor from what makes no difference.
    np.testing.assert_allclose(divergence(teacher, teacher + 5, temperature), 0, atol=1e-4)
    assert np.isfinite(divergence(1e4 * teacher, -1e4 * student, temperature)).all()
    assert np.isfinite(binary_divergence(1e3 * teacher, -1e3 * student, temperature)).all()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_gradient_is_the_difference_of_probabilities(temperature):
    """T · (softmax(student / T) − softmax(teacher / T)), Hinton et al. 2015, equation 2."""
    teacher, student = draw(20, 5), tf.constant(draw(20, 5))
    with tf.GradientTape() as tape:
        tape.watch(student)
        loss = divergence(teacher, student, temperature)
    p, q = (
        special.softmax(x.astype(np.float64) / temperature, -1) for x in (teacher, student.numpy())
    )
    np.testing.assert_allclose(tape.gradient(loss, student), temperature * (q - p), atol=1e-5)


def cases() -> dict[str, tuple]:
    """Head → losses of labels, outputs, batch, and the teacher's loss at a temperature of 2."""
    real = np.array([1, 1, 0, 1], np.float32)
    batch = {"is_real_example": real, "label_ids": np.array([0, 2, 0, 1], np.int32)}
    mask = np.arange(6) < np.array([6, 4, 0, 2])[:, np.newaxis]
    pieces = batch | {"input_mask": mask.astype(np.int32)}
    mean = real / real.sum()

    teacher, student = draw(4, 3), draw(4, 3)
    classes = oracle(teacher, student, 2.0) @ mean
    cases = {
        "classes": (ClassifierLosses(), {"logits": student}, batch | {TEACHER: teacher}, classes)
    }
    sets = np.array([[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 1]], np.float32)
    expected = binary_oracle(teacher, student, 2.0).mean(-1) @ mean
    cases["multi_label"] = (
        MultiLabelLosses(),
        {"logits": student},
        batch | {TEACHER: teacher, "label_ids": sets},
        expected,
    )

    scale = np.float32(4)
    numbers = {"logits": student[:, :1], "target_scale": scale}
    squares = ((student[:, 0] - teacher[:, 0]).astype(np.float64) / 4) ** 2
    labels = batch["label_ids"].astype(np.float32)
    cases["regression"] = (
        RegressionLosses(),
        numbers,
        batch | {TEACHER: teacher[:, :1], "label_ids": labels},
        squares @ mean,
    )

    # Three choices, of which the second example has two; the filling row has none.
    there = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    rows = np.repeat(there[..., np.newaxis], 5, -1).astype(np.int32)
    choices = [oracle(teacher[i][there[i]], student[i][there[i]], 2.0) for i in (0, 1, 3)]
    cases["choices"] = (
        ClassifierLosses(),
        {"logits": np.where(there, student, np.float32(ABSENT))},
        batch
        | {
            TEACHER: np.where(there, teacher, 0)[..., np.newaxis],
            "input_mask": rows,
            "label_ids": np.array([0, 1, 0, 2], np.int32),
        },
        np.mean(choices),
    )

    teacher, student = draw(4, 6, 2), draw(4, 6, 2)
    spans = [
        oracle(teacher[i, : mask[i].sum(), end], student[i, : mask[i].sum(), end], 2.0)
        for i in (0, 1, 3)
        for end in (0, 1)
    ]
    cases["spans"] = (
        SpanLosses(),
        {"start_logits": student[..., 0], "end_logits": student[..., 1]},
        pieces | {TEACHER: teacher * mask[..., np.newaxis], "label_ids": np.ones((4, 2), np.int32)},
        np.mean(spans),
    )

    teacher, student = draw(4, 6, 3), draw(4, 6, 3)
    labels = np.where(mask & (np.arange(6) % 2 == 1), np.arange(6) % 3, -1).astype(np.int32)
    scored = labels >= 0
    cases["tags"] = (
        TaggingLosses(),
        {"logits": student},
        pieces | {TEACHER: teacher, "piece_labels": labels},
        oracle(teacher[scored], student[scored], 2.0).mean(),
    )
    return cases


@pytest.mark.parametrize("head", SOFT_LOSSES)
@pytest.mark.parametrize("label_share", [0.0, 0.25])
def test_every_head(head, label_share):
    labels, outputs, batch, expected = cases()[head]
    taught = TaughtLosses(labels, SOFT_LOSSES[head](2.0), label_share)
    losses, metrics = taught(outputs, batch)
    assert list(losses) == ["label_loss", "teacher_loss"]
    alone, own_metrics = labels(outputs, batch)
    assert metrics.keys() == own_metrics.keys()
    got = {name: float(mean.result()) for name, mean in losses.items()}
    assert got["teacher_loss"] == pytest.approx((1 - label_share) * expected, rel=1e-4)
    assert got["label_loss"] == pytest.approx(label_share * float(alone["loss"].result()), rel=1e-5)
    # What the weights are divided by is known before the model has run.
    known = taught.weights(batch)
    assert list(known) == list(losses)
    for name, mean in losses.items():
        assert float(known[name]) == pytest.approx(float(mean.weight))


@pytest.mark.parametrize("head", SOFT_LOSSES)
def test_examples_without_a_label_have_a_teacher_only(head):
    labels, outputs, batch, expected = cases()[head]
    taught = TaughtLosses(labels, SOFT_LOSSES[head](2.0), 0.5)
    hidden = batch | {LABELLED: np.array([1, 0, 0, 1], np.float32)}
    if head == "tags":  # whose labels say so themselves
        unknown = np.where(batch["piece_labels"] >= 0, -2, -1)
        known = np.array([1, 0, 0, 1], bool)[:, np.newaxis]
        hidden = batch | {"piece_labels": np.where(known, batch["piece_labels"], unknown)}
    losses, _ = taught(outputs, hidden)
    assert float(losses["teacher_loss"].result()) == pytest.approx(0.5 * expected, rel=1e-4)
    some = {name: tf.gather(values, [0, 3]) for name, values in batch.items()}
    outputs = {
        name: values if np.ndim(values) == 0 else tf.gather(values, [0, 3])
        for name, values in outputs.items()
    }
    alone, _ = labels(outputs, some)
    expected = 0.5 * float(alone["loss"].result())
    assert float(losses["label_loss"].result()) == pytest.approx(expected, rel=1e-5)
    assert float(taught.weights(hidden)["label_loss"]) == pytest.approx(
        float(labels.weights(some)["loss"])
    )
