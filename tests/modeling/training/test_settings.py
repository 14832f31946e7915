"""From the values of flags to what training takes."""

import types

import pytest

from modeling.training.settings import training_settings

VALUES = types.SimpleNamespace(
    learning_rate=1e-4,
    random_seed=1,
    optimizer="adam",
    lr_schedule="linear",
    lr_decay_power=1.0,
    weight_decay_rate=0.01,
    layerwise_lr_decay=1.0,
    freeze_layers=0,
    average_last=0.0,
    dropout=True,
    gradient_accumulation_steps=1,
    xla=False,
)


@pytest.mark.parametrize(("steps", "warmup", "warned"), [(100, 10, 0), (10, 10, 1), (0, 10, 0)])
def test_a_rate_that_is_never_reached_is_told_of(caplog, steps, warmup, warned):
    settings = training_settings(VALUES, steps, warmup)
    assert (settings.num_train_steps, settings.num_warmup_steps) == (steps, warmup)
    assert caplog.text.count("--learning_rate is never reached") == warned
