"""Peaks of devices, and the operations of a batch."""

import itertools

import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.costs import utilisation
from modeling.costs.peaks import gpu_peak, tpu_peak
from modeling.costs.utilisation import peak_flops
from modeling.models import BertClassifier
from modeling.training.engine.flops import (
    batch_flops,
    forward_flops,
    step_flops,
    train_step_flops,
)

CONFIG = BertConfig.named("tiny", 100)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (
            {"input_ids": [3, 16], "masked_lm_positions": [3, 5], "next_sentence_labels": [3, 1]},
            train_step_flops(CONFIG, 3, 16, 5, 2),
        ),
        ({"input_ids": [3, 16], "label_ids": [3]}, train_step_flops(CONFIG, 3, 16, 0, 2)),
        ({"input_ids": [3, 4, 16]}, train_step_flops(CONFIG, 12, 16)),
    ],
    ids=["pre-training", "classes", "choices"],
)
def test_flops_of_a_batch(batch, expected):
    tensors = {name: tf.zeros(shape, tf.int32) for name, shape in batch.items()}
    assert float(batch_flops(CONFIG, tensors)) == pytest.approx(expected, rel=1e-6)


def test_no_gradient_goes_through_frozen_layers():
    """Against the operations of each pass that is computed."""
    config = BertConfig.named("mini", 100)
    batch = {"input_ids": tf.zeros([3, 16], tf.int32), "label_ids": tf.zeros([3], tf.int32)}
    one_layer = forward_flops(config, 3, 16) / config.num_hidden_layers
    whole = forward_flops(config, 3, 16, 0, 2)
    for frozen in range(config.num_hidden_layers + 1):
        expected = whole + 2 * (whole - frozen * one_layer)
        assert float(batch_flops(config, batch, frozen)) == pytest.approx(expected, rel=1e-6)
    both = BertClassifier(config, 2, second=config)
    assert float(step_flops(both, batch, 1)) == pytest.approx(
        2 * float(batch_flops(config, batch, 1))
    )


def test_flops_of_a_models_encoders():
    batch = {"input_ids": tf.zeros([3, 16], tf.int32), "label_ids": tf.zeros([3], tf.int32)}
    wide = BertConfig.named("mini", 100)
    expected = [train_step_flops(config, 3, 16, 0, 2) for config in (CONFIG, wide)]
    one, both = BertClassifier(CONFIG, 2), BertClassifier(CONFIG, 2, second=wide)
    assert float(step_flops(one, batch)) == pytest.approx(expected[0], rel=1e-6)
    assert float(step_flops(both, batch)) == pytest.approx(sum(expected), rel=1e-6)
    assert step_flops(one, {"features": tf.zeros([3, 16, 8])}) is None
    assert step_flops(object(), batch) is None


@pytest.mark.parametrize(
    ("name", "half", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", True, 312e12),
        ("NVIDIA A100-SXM4-80GB", False, 156e12),
        ("NVIDIA A10G", True, 70e12),
        ("NVIDIA A10", True, 125e12),
        ("NVIDIA H100 80GB HBM3", True, 989e12),
        ("NVIDIA H100 PCIe", True, 756e12),
        ("Tesla T4", False, 8.1e12),
        ("Tesla V100-SXM2-16GB", True, 125e12),
        ("NVIDIA L40S", True, 362e12),
        ("NVIDIA Something 9000", True, None),
        ("", True, None),
    ],
)
def test_gpus_by_name(name, half, expected):
    assert gpu_peak(name, half) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("v5litepod-16", 197e12), ("v4-8", 275e12), ("v3-8", 61.5e12), ("v2-8", 22.5e12), ("", None)],
)
def test_tpus_by_type(kind, expected):
    assert tpu_peak(kind) == expected


def test_the_speed_of_this_processor_is_measured(monkeypatch):
    asked = []
    monkeypatch.setattr(utilisation, "_cpu_speed", lambda dtype: asked.append(dtype) or 5e9)
    assert peak_flops() == 5e9
    assert asked == [tf.float32]


@pytest.mark.parametrize("at_once", [1, 2], indirect=True)
def test_measured_speed_is_that_of_products(at_once, monkeypatch):
    """Four times 2,048 rows with a matrix of 1,024², here in a quarter of a second."""
    clock = itertools.count(step=0.25)
    monkeypatch.setattr(utilisation.time, "perf_counter", lambda: next(clock))
    measured = utilisation._cpu_speed.__wrapped__(tf.float32)
    assert measured == 4 * 2 * 2048 * 1024 * 1024 / 0.25
