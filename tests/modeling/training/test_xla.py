"""The whole training step under XLA, as a TPU would compile it: every objective, every head."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from data.pretraining.pipeline import predict_every_next
from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.losses import PretrainingLosses, classifier_losses
from modeling.models import BertClassifier, BertPretrainer
from modeling.training.setup import Settings, make_train_step
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


def case(name):
    """(model, losses, batch) of one objective or head."""
    batch = {key: tf.constant(value) for key, value in records(4).items()}
    config = CONFIG
    if name.startswith("ltr"):
        config = dataclasses.replace(CONFIG, attention_direction=LEFT_TO_RIGHT)
        batch = predict_every_next(batch)
    if "classifier" in name:
        batch["label_ids"] = tf.constant([0, 2, 1, 0])
        batch = {key: value for key, value in batch.items() if "masked" not in key}
        model = BertClassifier(config, num_labels=3, bilstm="bilstm" in name)
        return model, classifier_losses, batch
    next_sentence = name == "mlm_nsp"
    model = BertPretrainer(config, next_sentence=next_sentence, remat="remat" in name)
    return model, PretrainingLosses(next_sentence), batch


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlm_nsp", {}),
        ("mlm", {"optimizer": "lamb", "lr_schedule": "polynomial"}),
        ("mlm remat", {"optimizer": "adamw", "accumulation_steps": 2}),
        ("ltr", {}),
        ("classifier", {"freeze_layers": 1, "layerwise_lr_decay": 0.9}),
        ("ltr classifier bilstm", {}),
    ],
)
def test_compiles(name, options):
    """Static shapes, no float64, nothing that XLA has to call from outside."""
    keras.utils.set_random_seed(0)
    model, losses, batch = case(name)
    model.build()
    step = make_train_step(model, losses, Settings(1e-2, 10, 2, seed=0, **options))
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
