"""Steps that minutes or operations hold: counted, kept for a run that goes on, refused."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from modeling.checkpoints import tf1
from modeling.errors import ModelingError
from modeling.training.phases import parse_phases
from modeling.training.runs import budget
from tests.modeling.training.test_training import tiny_model

PHASES = parse_phases("16:900:8,32:100:4")
SECONDS = {16: 0.25, 32: 0.5}
FLOPS = {16: 4e6, 32: 9e6}
DATASETS = [lambda length=length: tf.data.Dataset.from_tensors(length).repeat() for length in FLOPS]


class Step:
    """Stands in for the training step: takes its time by a clock of its own."""

    def __init__(self, clock):
        self.clock = clock
        self.seen = set()
        self.model = tiny_model()

    def run(self, iterator, steps):
        length = int(next(iterator))
        for weight in self.model.weights:  # as a gradient that isn't finite leaves it
            weight.assign(np.full(weight.shape, np.nan))
        # Compiling takes long, and isn't to be counted.
        self.clock.now += steps * SECONDS[length] + (0 if length in self.seen else 100)
        self.seen.add(length)
        return {"flops": [(FLOPS[length], 1.0)] * steps}


@pytest.fixture
def clock(monkeypatch):
    clock = types.SimpleNamespace(now=5.0)
    monkeypatch.setattr(budget.time, "perf_counter", lambda: clock.now)
    return clock


def planned(folder, clock, trained=False, stands=True, **given):
    """Steps of the phases and of the warm-up, and the settings that were measured with."""
    values = {"minutes": 0.0, "flops": 0.0, "num_warmup_steps": 100, "do_train": True} | given
    values |= dict.fromkeys(("optimizer", "lr_schedule"), "") | {"random_seed": 1, "xla": False}
    values |= dict.fromkeys(
        ("learning_rate", "lr_decay_power", "weight_decay_rate", "layerwise_lr_decay"), 0.5
    )
    values |= {"average_last": 0.0, "dropout": True, "adapt": False} | given
    values |= {"freeze_layers": 0, "gradient_accumulation_steps": 1, "output_dir": str(folder)}
    if trained:
        tf1.write_bundle(str(folder / "model.ckpt-7"), {"global_step": np.array(7)})
    measured, held = [], []

    def make_step(settings):
        measured.append(settings)
        step = Step(clock)
        held.extend((weight, weight.numpy()) for weight in step.model.weights)
        return step

    phases, warmup, keep = budget.budgeted_phases(
        types.SimpleNamespace(**values), PHASES, make_step, DATASETS
    )
    for weight, before in held:
        np.testing.assert_array_equal(weight.numpy(), before)
    if stands:
        keep()
    assert [p.first_step for p in phases] == [0, phases[0].num_steps]
    assert [p.batch_size for p in phases] == [8, 4]
    return [phase.num_steps for phase in phases], warmup, measured


def test_without_a_budget_nothing_changes(tmp_path, clock):
    assert planned(tmp_path, clock) == ([900, 100], 100, [])
    assert not list(tmp_path.iterdir())
    # What evaluates weights of given steps doesn't find an earlier budget's.
    planned(tmp_path, clock, trained=True, minutes=2.75)
    assert planned(tmp_path, clock, do_train=False)[:2] == ([540, 60], 60)
    planned(tmp_path, clock)
    assert planned(tmp_path, clock, do_train=False)[:2] == ([900, 100], 100)


def test_an_adaptation_takes_no_more_steps_than_its_passes(tmp_path, clock):
    assert planned(tmp_path, clock, minutes=11.0, adapt=True)[:2] == ([900, 100], 100)
    assert planned(tmp_path, clock, minutes=2.75, adapt=True)[:2] == ([540, 60], 60)


def test_minutes(tmp_path, clock):
    # 1,000 steps in their proportions take 900·0.25 + 100·0.5 = 275 s.
    steps, warmup, [settings] = planned(tmp_path, clock, minutes=11.0)
    assert (steps, warmup) == ([2160, 240], 240)
    assert settings.learning_rate == 0
    kept = json.loads((tmp_path / "budget.json").read_text())
    assert kept["steps"] == steps and kept["asked"]["minutes"] == 11


def test_operations(tmp_path, clock):
    steps, warmup, _ = planned(tmp_path, clock, flops=2 * (900 * 4e6 + 100 * 9e6))
    assert (steps, warmup) == ([1800, 200], 200)


def test_a_run_that_goes_on_keeps_its_steps(tmp_path, clock, monkeypatch):
    first = planned(tmp_path, clock, minutes=11.0)
    monkeypatch.setitem(SECONDS, 16, 2.5)
    # Nothing is trained yet: the machine or the model may be another one.
    again = planned(tmp_path, clock, minutes=11.0)
    assert again[0] != first[0] and len(again[2]) == 1
    monkeypatch.setitem(SECONDS, 16, 0.1)
    assert planned(tmp_path, clock, trained=True, minutes=11.0) == (*again[:2], [])
    assert planned(tmp_path, clock, trained=True, minutes=11.0, do_train=False)[:2] == again[:2]
    # Asked for something else, it is counted anew; a command that is refused then changes nothing.
    planned(tmp_path, clock, minutes=22.0, stands=False)
    assert planned(tmp_path, clock, minutes=11.0) == (*again[:2], [])
    other = planned(tmp_path, clock, trained=True, minutes=22.0)
    assert other[0] == [8486, 943] and len(other[2]) == 1


def test_what_is_refused(tmp_path, clock):
    with pytest.raises(ModelingError, match=r"--minutes=0.001 holds 0, 0 steps, at 0.25 s, 0.5 s"):
        planned(tmp_path, clock, minutes=0.001)
    (tmp_path / "budget.json").write_text("{")
    with pytest.raises(ModelingError, match=r"budget.json is damaged .*remove it"):
        planned(tmp_path, clock, trained=True, minutes=1.0)
