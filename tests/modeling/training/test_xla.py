"""The whole training step under XLA, as a TPU would compile it: every objective, every head."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from data.pretraining.batches.pipeline import _predict_neighbours
from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.losses import ClassifierLosses, PretrainingLosses, SpanLosses, TaggingLosses
from modeling.models import BertClassifier, BertPretrainer, BertQuestionAnswering, BertTagger
from modeling.training.engine.precision import set_precision
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.sentences import KINDS, SentenceHead
from tests.modeling.training.test_training import records

CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    type_vocab_size=2,
)


HOURS = (pytest.mark.slow, pytest.mark.hours)


def sentence_case(name):
    """(model, losses, batch) of a kind of sentence task; with several rows some are missing."""
    kind = name.split()[0]
    batch = {key: tf.constant(value) for key, value in records(4).items() if key[0] == "i"}
    batch["segment_ids"] = tf.zeros_like(batch["input_ids"])
    if kind == "choices" or "windows" in name:
        there = tf.constant([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0]])[..., tf.newaxis]
        for key in ("input_ids", "input_mask", "segment_ids"):
            batch[key] = tf.repeat(batch[key][:, tf.newaxis], 3, 1) * there
        order = tf.constant([0, 3, 2, 1, 4, 5, 6, 7, 8, 9])
        second = tf.gather(batch["input_ids"][:, 1:], order, axis=-1)
        batch["input_ids"] = tf.concat([batch["input_ids"][:, :1], second], 1)
    batch["label_ids"] = {
        "classes": tf.constant([0, 2, 1, 0]),
        "choices": tf.constant([2, 1, 0, 0]),
        "multi_label": tf.constant([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]),
        "regression": tf.constant([1.5, 2.0, 0.0, 4.0]),
    }[kind]
    batch["is_real_example"] = tf.constant([1.0, 1, 1, 0])
    weights = (1.0, 2.0, 3.0) if "weights" in name else None
    head = SentenceHead(kind, 3 if kind in ("classes", "multi_label") else 1, weights)
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    model = head.make_model(config, row_pooling="max" if "max" in name else "mean")
    return model, head.losses, batch


def case(name):
    """(model, losses, batch) of one objective or head."""
    if name.split()[0] in KINDS:
        return sentence_case(name)
    batch = {key: tf.constant(value) for key, value in records(4).items()}
    config = CONFIG  # of two layers, one of which can be frozen
    if name != "classifier":
        config = dataclasses.replace(config, num_hidden_layers=1)
    if name.startswith("ltr"):
        config = dataclasses.replace(config, attention_direction=LEFT_TO_RIGHT)
        batch = _predict_neighbours(batch, from_left=True)
    if "classifier" in name:
        batch["label_ids"] = tf.constant([0, 2, 1, 0])
        batch = {key: value for key, value in batch.items() if "masked" not in key}
        model = BertClassifier(config, num_labels=3, bilstm="bilstm" in name)
        return model, ClassifierLosses(), batch
    if name == "question answering":
        batch["label_ids"] = tf.constant([[0, 0], [3, 5], [2, 2], [1, 4]])
        batch["is_real_example"] = tf.constant([1.0, 1, 1, 0])
        batch = {key: value for key, value in batch.items() if "masked" not in key}
        return BertQuestionAnswering(config), SpanLosses(), batch
    if name == "tags":
        labels = np.full(batch["input_ids"].shape, -1, np.int32)
        labels[:3, 1:4] = [[0, -1, 2], [1, 1, -1], [2, 0, 0]]
        batch["piece_labels"] = tf.constant(labels)
        batch = {key: value for key, value in batch.items() if "masked" not in key}
        return BertTagger(config, num_tags=3), TaggingLosses(), batch
    if "packed" in name:  # two sequences and some padding
        sequences = tf.constant([[1] * 4 + [2] * 5 + [0]] * 4)
        batch["input_mask"] = tf.minimum(sequences, 1)
        batch["position_ids"] = tf.constant([[*range(4), *range(5), 0]] * 4)
        batch["sequence_ids"] = sequences
    next_sentence = name == "mlm_nsp"
    model = BertPretrainer(config, next_sentence=next_sentence, remat="remat" in name)
    return model, PretrainingLosses(next_sentence), batch


def test_bfloat16_reaches_what_is_compiled():
    """The products of the compiled step are in the format that was asked for."""
    try:
        set_precision("bfloat16")
        model, losses, batch = case("mlm")
        model.build()
        step = make_train_step(model, losses, EngineSettings(1e-2, 10, 2, seed=0, jit_compile=True))
        arguments = (batch, tf.zeros([3], tf.int32), [tf.constant(4.0)], tf.constant(1.0))
        hlo = step._gradients.experimental_get_compiler_ir(*arguments)(stage="hlo")
        assert "bf16[" in hlo
    finally:
        set_precision("float32")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlm_nsp", {}),
        pytest.param(
            "mlm", {"optimizer": "lamb", "lr_schedule": "polynomial"}, marks=pytest.mark.slow
        ),
        pytest.param(
            "mlm remat",
            {"optimizer": "adamw", "accumulation_steps": 2},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "mlm packed",
            {"optimizer": "muon", "average_last": 0.9, "dropout": False},
            marks=pytest.mark.slow,
        ),
        pytest.param("ltr", {}, marks=pytest.mark.slow),
        pytest.param(
            "classifier", {"freeze_layers": 1, "layerwise_lr_decay": 0.9}, marks=pytest.mark.slow
        ),
        pytest.param("ltr classifier bilstm", {}, marks=pytest.mark.slow),
        pytest.param("choices", {"accumulation_steps": 2}, marks=pytest.mark.slow),
        pytest.param("classes weights windows", {}, marks=pytest.mark.slow),
        pytest.param("multi_label weights", {}, marks=HOURS),
        pytest.param("regression windows max", {}, marks=HOURS),
        pytest.param("question answering", {}, marks=pytest.mark.slow),
        pytest.param("tags", {"accumulation_steps": 2}, marks=pytest.mark.slow),
    ],
)
def test_compiles(name, options):
    """Static shapes, no float64, nothing that XLA has to call from outside."""
    keras.utils.set_random_seed(0)
    model, losses, batch = case(name)
    if not model.built:
        model.build()
    step = make_train_step(model, losses, EngineSettings(1e-2, 10, 2, seed=0, **options))
    compiled = tf.function(step._replica_step, jit_compile=True)
    arguments = (batch, tf.constant(5, tf.int64))
    hlo = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")
    assert "f64[" not in hlo and "custom-call" not in hlo
    assert "<=" not in hlo  # marks a dynamic dimension
    before = [variable.numpy() for variable in step.optimizer.variables]
    result = compiled(*arguments).numpy()
    assert np.isfinite(result).all()
    after = [variable.numpy() for variable in step.optimizer.variables]
    changed = [(a != b).any() for a, b in zip(after, before, strict=True)]
    assert np.mean(changed) > 0.8  # a pooler without next sentences has no gradient
