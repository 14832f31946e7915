"""Phases as they are written on the command line, and settings that contradict each other."""

import dataclasses
import types

import pytest
from absl import flags

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.errors import ModelingError
from modeling.losses import PretrainingLosses
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.phases import Phase, given_phases, parse_phases, phase_folders
from modeling.training.runs import fit
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import prepare_run_folder
from tests.modeling.training.test_training import batches, tiny_model


def test_phases_follow_each_other():
    assert parse_phases("128:90000:256, 512:10000:256:80") == [
        Phase(128, 90000, 256, 20, 0),
        Phase(512, 10000, 256, 80, 90000),
    ]
    assert parse_phases("512:3:1")[0].max_predictions_per_seq == 77
    assert parse_phases("8:2:1,8:3:1")[1].last_step == 5


def test_two_budgets_are_refused():
    values = types.SimpleNamespace(phases="8:2:1", minutes=1.0, flops=1e9)
    with pytest.raises(ModelingError, match="two budgets"):
        given_phases(values)


def test_only_equal_records_share_a_folder():
    names = phase_folders(parse_phases("24:1:4:4,24:1:8:4,16:1:4:4"))
    assert names == ["length-24", "length-24", "length-16"]
    assert phase_folders(parse_phases("24:1:4:4,24:1:4:2")) == ["length-24-4", "length-24-2"]


@pytest.mark.parametrize("text", ["", "128:5", "128:0:4", "128:5:4:20:1", "a:5:4", "128:5:4,"])
def test_what_is_no_phase_is_refused(text):
    with pytest.raises(ModelingError, match="LENGTH:STEPS:BATCH"):
        parse_phases(text)


def test_best_weights_need_evaluations():
    with pytest.raises(ModelingError, match="give --eval_steps"):
        fit.check_run_options(fit.LoopOptions(1, best_metric="accuracy"))
    with pytest.raises(ModelingError, match="needs --best_metric"):
        fit.check_run_options(fit.LoopOptions(1, eval_steps=1, early_stopping_patience=2))


class Small:
    """A run of two stages, whose evaluations give what `values` says."""

    stages = (fit.RunStage(4, batches, "first data", 8), fit.RunStage(8, batches, "second data", 8))

    def __init__(self, directory, values):
        prepare_run_folder(str(directory))
        self.directory = str(directory)
        self.values = values
        self.reporter = Reporter(self.directory, 8, 8)
        self.step = make_train_step(
            tiny_model(), PretrainingLosses(), EngineSettings(1e-3, 8, 0, seed=0)
        )

    def fit(self, stages=stages, **options):
        options = fit.LoopOptions(4, log_steps=4, eval_steps=1, best_metric="accuracy", **options)

        def evaluate(step):
            results = {"accuracy": self.values[step]}
            self.reporter.write("eval", step, results)
            return results

        names = lambda: ["accuracy"]  # noqa: E731
        return fit.fit_run(
            *(self.step, stages, self.directory, None, self.reporter, options, evaluate),
            result_names=names,
        )


def test_what_is_left_is_judged_by_the_places_of_batches(tmp_path):
    lengths = zip(Small.stages, (2, 8), strict=True)
    stages = [dataclasses.replace(stage, length=n) for stage, n in lengths]
    run = Small(tmp_path, dict.fromkeys(range(9), 0.5))
    run.fit(stages)
    assert [run.reporter.work(n) for n in (1, 4, 5, 8)] == [16.0, 64.0, 128.0, 320.0]


def test_only_the_last_stage_is_judged(tmp_path):
    """Stages may have other held-out data; and the run isn't for a first stage's weights."""
    values = {1: 0.9, 2: 0.8, 3: 0.8, 4: 0.8, 5: 0.4, 6: 0.5, 7: 0.3, 8: 0.2}
    run = Small(tmp_path, values)
    assert run.fit(early_stopping_patience=2) == 6
    assert [step for step, _ in run.reporter.curve("eval", "accuracy")] == list(values)
    again = Small(tmp_path, values)
    assert again.fit(early_stopping_patience=2) == 6
    stored = tf1.read_bundle(tmp_path / "best/model.ckpt-6")
    for step in (run.step, again.step):
        for name, weight in checkpoints.weights_by_name(step.model).items():
            assert (weight.numpy() == stored[name]).all()


def test_phases_have_the_length_of_exports(caplog):
    names = ("max_seq_length", "num_train_steps", "train_batch_size", "max_predictions_per_seq")
    values = flags.FlagValues()
    flags.DEFINE_string("phases", None, "", flag_values=values)
    for name in ("minutes", "flops", *names):
        flags.DEFINE_integer(name, 0, "", flag_values=values)
    values(["", "--phases=64:5:8,512:5:4,128:1:4", "--num_train_steps=7"])
    assert [phase.num_steps for phase in given_phases(values)] == [5, 5, 1]
    assert values.max_seq_length == 512
    assert "--num_train_steps: not looked at, as --phases has them" in caplog.text


def test_mistyped_metric_is_found_before_training(tmp_path):
    run = Small(tmp_path, {})
    with pytest.raises(ModelingError, match=r"'acuracy'.*Choose one of accuracy"):
        fit.fit_run(
            *(run.step, Small.stages, run.directory, None, run.reporter),
            fit.LoopOptions(4, eval_steps=1, best_metric="acuracy"),
            result_names=lambda: ["accuracy"],
        )
    assert int(run.step.global_step) == 0


def test_more_layers_than_there_are_cannot_be_frozen():
    settings = EngineSettings(1e-3, 10, 0, seed=0, freeze_layers=2)
    with pytest.raises(ModelingError, match="freeze_layers is 2, but the model has 1 layers"):
        make_train_step(tiny_model(), PretrainingLosses(), settings)
