"""Phases as they are written on the command line, and settings that contradict each other."""

import pytest

from modeling.errors import ModelingError
from modeling.losses import pretraining_losses
from modeling.training import fit
from modeling.training.phases import Phase, parse_phases
from modeling.training.setup import Settings, make_train_step
from tests.modeling.training.test_training import tiny_model


def test_phases_follow_each_other():
    assert parse_phases("128:90000:256, 512:10000:256:80") == [
        Phase(128, 90000, 256, 20, 0),
        Phase(512, 10000, 256, 80, 90000),
    ]
    assert parse_phases("512:3:1")[0].max_predictions_per_seq == 77
    assert parse_phases("8:2:1,8:3:1")[1].last_step == 5


@pytest.mark.parametrize("text", ["", "128:5", "128:0:4", "128:5:4:20:1", "a:5:4", "128:5:4,"])
def test_what_is_no_phase_is_refused(text):
    with pytest.raises(ModelingError, match="LENGTH:STEPS:BATCH"):
        parse_phases(text)


def test_best_weights_need_evaluations():
    with pytest.raises(ModelingError, match="give --eval_steps"):
        fit.check(fit.Options(1, best_metric="accuracy"))
    with pytest.raises(ModelingError, match="needs --best_metric"):
        fit.check(fit.Options(1, eval_steps=1, early_stopping_patience=2))


def test_more_layers_than_there_are_cannot_be_frozen():
    settings = Settings(1e-3, 10, 0, seed=0, freeze_layers=2)
    with pytest.raises(ModelingError, match="freeze_layers is 2, but the model has 1 layers"):
        make_train_step(tiny_model(), pretraining_losses, settings)
