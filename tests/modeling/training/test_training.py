"""The step against its parts, the loop against interruptions."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.losses import Mean, PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.engine import loop
from modeling.training.engine.optimizers import make_optimizer
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.step import TrainStep
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import prepare_run_folder
from modeling.training.runs.run_state import RunState
from tests import scripts


def tiny_model(seed=0, dropout_prob=0.1):
    tf.keras.utils.set_random_seed(seed)
    model = BertPretrainer(
        BertConfig(
            vocab_size=30,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=12,
            type_vocab_size=2,
            hidden_dropout_prob=dropout_prob,
            attention_probs_dropout_prob=dropout_prob,
        )
    )
    model.build()
    return model


def records(count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(0, 30, (count, 10)).astype(np.int32),
        "input_mask": np.ones((count, 10), np.int32),
        "segment_ids": np.zeros((count, 10), np.int32),
        "masked_lm_positions": rng.integers(0, 10, (count, 2)).astype(np.int32),
        "masked_lm_ids": rng.integers(0, 30, (count, 2)).astype(np.int32),
        "masked_lm_weights": (rng.random((count, 2)) < 0.8).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)).astype(np.int32),
        "is_real_example": np.ones(count, np.float32),
    }


def batches(count=64, batch_size=8):
    data = tf.data.Dataset.from_tensor_slices(records(count))
    return data.shuffle(count, seed=1).repeat().batch(batch_size, drop_remainder=True)


class Run:
    """A whole small run in one folder."""

    def __init__(self, directory, steps=12, dataset=None, seed=0, optimizer="adam"):
        prepare_run_folder(str(directory))
        self.model = tiny_model(seed)
        names = checkpoints.weights_by_name(self.model)
        self.weights = {name: weight.value for name, weight in names.items()}
        schedule = make_schedule("linear", 1e-2, steps, 3)
        averaged = range(5, steps + 1) if optimizer == "muon" else None
        optimizer = make_optimizer(optimizer, self.weights, schedule, averaged=averaged)
        self.step = TrainStep(self.model, PretrainingLosses(), optimizer, seed=7)
        self.iterator = iter(dataset or batches())
        self.state = RunState(str(directory), self.step, keep=2)
        self.state.change_data(self.iterator, "", 0)
        self.reporter = Reporter(str(directory), steps, 8)
        self.steps = steps

    def go(self, steps=None, **options):
        settings = {"save_checkpoints_steps": 4, "iterations_per_loop": 3, "log_steps": 2} | options
        evaluate = settings.pop("evaluate", None)
        loop.train_steps(
            self.step,
            self.iterator,
            self.state,
            self.reporter,
            steps or self.steps,
            loop.LoopOptions(**settings),
            evaluate=evaluate,
        )

    def values(self):
        return {name: value.numpy() for name, value in self.weights.items()}


def test_schedule_needs_steps():
    with pytest.raises(ModelingError, match="training steps is 0"):
        make_schedule("linear", 1e-4, 0, 0)


def test_mean_of_nothing_is_zero():
    assert float(Mean(tf.constant(0.0), tf.constant(0.0)).result()) == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", ["steps", "micro-batches", "xla", "muon"])
def test_two_replicas_equal_one(tmp_path, part):
    # In a process of its own: logical devices have to be made before TensorFlow starts.
    result = scripts.run("-m", "tests.modeling.training.two_replicas", tmp_path, part)
    assert result.returncode == 0 and "equal" in result.stdout, result.stderr[-3000:]
