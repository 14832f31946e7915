"""A run that diverges goes back and leaves out the batches, as if its data had never had them."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.errors import DivergedError, ModelingError
from modeling.losses import PretrainingLosses
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.runs import rollback
from modeling.training.runs.fit import LoopOptions, RunStage, fit_run
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import prepare_run_folder
from modeling.training.runs.run_state import RunState
from tests.modeling.training.test_training import records, tiny_model

STEPS = 260


def easy_data(spoilt=(), how="nan", left_out=()):
    """Batches of 8 with one right answer, which is soon learned.

    Args:
        spoilt: Numbers of the batches that are spoilt.
        how: "nan", or "other answers".
        left_out: Numbers of batches that aren't there at all.
    """
    count = STEPS + 500
    data = records(count * 8)
    data["masked_lm_ids"][:] = 5
    data["next_sentence_labels"][:] = 0
    for batch in spoilt:
        rows = slice(batch * 8, batch * 8 + 8)
        if how == "nan":
            data["masked_lm_weights"][rows] = np.inf
        else:
            data["masked_lm_ids"][rows] = 9
            data["next_sentence_labels"][rows] = 1
    kept = [number for number in range(count) if number not in set(left_out)]
    order = np.concatenate([np.arange(number * 8, number * 8 + 8) for number in kept])
    taken = {name: values[order] for name, values in data.items()}
    return lambda: tf.data.Dataset.from_tensor_slices(taken).batch(8, drop_remainder=True)


def train(folder, make_dataset, stop=STEPS, before=(), **options):
    """Weights after training, in the strategy's scope, with a rate that soon learns.

    Args:
        before: Stages that come before that of `make_dataset`.
    """
    prepare_run_folder(str(folder))
    model = tiny_model(dropout_prob=0.1)
    settings = EngineSettings(1e-2, STEPS, 10, seed=7, lr_schedule="constant")
    fit_run(
        make_train_step(model, PretrainingLosses(), settings),
        [*before, RunStage(stop, make_dataset, "easy data", 8)],
        str(folder),
        None,
        Reporter(str(folder), stop, 8),
        LoopOptions(**{"save_checkpoints_steps": 20, "log_steps": 20, "rollback": True} | options),
    )
    return {name: w.value.numpy() for name, w in checkpoints.weights_by_name(model).items()}


def kept(folder):
    return json.loads((folder / "rollbacks.json").read_text())["rollbacks"]


def check_left_out(folder, spoilt, how, before):
    """The run ends as one without the batches from the checkpoint to where it was seen."""
    disturbed = train(folder / "disturbed", easy_data(spoilt, how))
    [entry] = kept(folder / "disturbed")
    assert entry["to"] == before and entry["step"] > spoilt[0]
    assert entry["to"] + entry["batches_ahead"] == entry["step"] + rollback.MARGIN
    left_out = range(entry["to"], entry["step"] + rollback.MARGIN)
    whole = train(folder / "whole", easy_data(left_out=left_out), rollback=False)
    for name, value in whole.items():
        np.testing.assert_array_equal(disturbed[name], value, err_msg=name)
    return entry


def test_a_loss_that_is_not_finite(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    # A checkpoint right before the bad batch may hold the weights that it is bad with.
    entry = check_left_out(tmp_path, [160], "nan", 140)
    assert entry["step"] == 161
    assert (
        "Going back to step 140, and 121 batches are left out: time 1 of at most 3" in caplog.text
    )
    lines = (tmp_path / "disturbed" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(20, STEPS + 1, 20))
    assert not list((tmp_path / "disturbed").glob("*.damaged"))


@pytest.mark.slow
def test_a_loss_that_jumps(tmp_path, caplog):
    entry = check_left_out(tmp_path, range(170, 186), "other answers", 160)
    assert "The loss has jumped from" in caplog.text and "at step 170." in caplog.text
    assert entry["step"] == 175  # five of the last ten were high


@pytest.mark.slow
def test_an_interrupted_run_leaves_out_the_same(tmp_path):
    data = easy_data([150, 151, 330])
    whole = train(tmp_path / "whole", data)
    train(tmp_path / "parted", data, stop=200)
    parted = train(tmp_path / "parted", data)
    assert kept(tmp_path / "whole") == kept(tmp_path / "parted")
    assert [entry["to"] for entry in kept(tmp_path / "whole")] == [140, 200]
    for name, value in whole.items():
        np.testing.assert_array_equal(parted[name], value, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("spoilt, going_on", [([150, 256], True), ([150], False)])
def test_killed_right_behind_its_record(tmp_path, monkeypatch, spoilt, going_on):
    """It counts, without --rollback too, and what it was to leave out is left out."""
    data = easy_data(spoilt)
    whole = train(tmp_path / "whole", data)

    class KilledError(Exception):
        pass

    written = rollback._write_rollbacks

    def killed_then(*arguments):
        written(*arguments)
        raise KilledError

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(rollback, "_write_rollbacks", killed_then)
        train(tmp_path / "killed", data)
    killed = train(tmp_path / "killed", data, rollback=going_on)
    assert kept(tmp_path / "whole") == kept(tmp_path / "killed") != []
    for name, value in whole.items():
        np.testing.assert_array_equal(killed[name], value, err_msg=name)


def test_what_it_goes_back_to_stays_as_it_is(tmp_path, monkeypatch):
    """A kill finds no half of it, and other readers are led to it."""

    class LookedError(Exception):
        pass

    def read():
        paths = [p for n in ("model.ckpt", "data") for p in tmp_path.glob(f"{n}-40.*")]
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    def look(*arguments):
        before = read()
        rollback.roll_back(*arguments)
        assert len(before) > 4 and read() == before
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-40")
        raise LookedError

    monkeypatch.setattr("modeling.training.runs.fit.roll_back", look)
    with pytest.raises(LookedError):
        train(tmp_path, easy_data([60]), stop=80)


@pytest.mark.parametrize("chief", [True, False])
def test_every_worker_sees_spoilt_weights(tmp_path, monkeypatch, chief):
    """They go back together, though one alone writes checkpoints."""
    monkeypatch.setattr("modeling.training.runs.run_state.is_chief", lambda: chief)
    model = tiny_model()
    step = make_train_step(model, PretrainingLosses(), EngineSettings(1e-2, STEPS, 10, seed=7))
    state = RunState(str(tmp_path), step)
    state.save()
    assert (tmp_path / "model.ckpt-0.index").exists() == chief
    step.global_step.assign(1)
    name, weight = next(iter(checkpoints.weights_by_name(model).items()))
    weight.value.assign(tf.fill(weight.shape, np.nan))
    with pytest.raises(DivergedError, match=f"1 variables are not finite, {name} among them"):
        state.save()


def test_a_jump_counts_before_the_nan_that_it_ends_in(tmp_path):
    """Both in one call to the device, which is as long as the machine is fast."""
    wrong, bad = easy_data(range(156, 164), "other answers"), easy_data([168])

    def data():
        parts = wrong().take(168), bad().skip(168)
        return parts[0].concatenate(parts[1])

    train(tmp_path / "long", data, iterations_per_loop=20)
    train(tmp_path / "single", data, iterations_per_loop=1)
    assert [entry["to"] for entry in kept(tmp_path / "long")] == [140]
    assert kept(tmp_path / "long") == kept(tmp_path / "single")


def test_records_of_what_the_weights_have_not_seen_are_dropped(tmp_path, caplog):
    entries = [{"step": 3 * n, "to": 2 * n, "batches_ahead": n} for n in (10, 20, 30)]
    (tmp_path / "rollbacks.json").write_text(json.dumps({"rollbacks": entries}))
    for step, left in ((60, 3), (45, 2), (20, 1), (-1, 0)):
        rollback.forget_later_rollbacks(str(tmp_path), step)
        assert rollback.read_rollbacks(str(tmp_path)) == entries[:left]
    assert caplog.text.count("haven't seen") == 3
    # One from before a further one back has happened to these weights, too.
    entries = [{"step": 230, "to": n, "batches_ahead": n} for n in (200, 180, 220)]
    (tmp_path / "rollbacks.json").write_text(json.dumps({"rollbacks": entries}))
    rollback.forget_later_rollbacks(str(tmp_path), 180)
    assert rollback.read_rollbacks(str(tmp_path)) == entries[:2]


@pytest.mark.slow
def test_a_later_stage_goes_back_to_its_first_step(tmp_path, monkeypatch):
    """Twice, and killed in between; that its loss is another is no jump."""
    first = RunStage(140, easy_data(), "the first stage", 8)
    wrong = range(STEPS + 500)
    data = easy_data(wrong, "other answers")

    def spoilt():
        batches = data().enumerate()
        bad = lambda n: tf.reduce_any(n == [5, 108])  # noqa: E731

        def spoil(number, batch):
            weights = batch["masked_lm_weights"]
            weights = tf.where(bad(number), tf.fill(tf.shape(weights), np.inf), weights)
            return batch | {"masked_lm_weights": weights}

        return batches.map(spoil)

    class KilledError(Exception):
        pass

    def killed_then(*arguments):
        rollback.roll_back(*arguments)
        raise KilledError

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr("modeling.training.runs.fit.roll_back", killed_then)
        train(tmp_path / "disturbed", spoilt, before=[first])
    disturbed = train(tmp_path / "disturbed", spoilt, before=[first])
    assert kept(tmp_path / "disturbed") == [
        {"step": 146, "to": 140, "batches_ahead": 106},
        {"step": 143, "to": 140, "batches_ahead": 209},
    ]
    left = easy_data(wrong, "other answers", left_out=range(209))
    whole = train(tmp_path / "whole", left, before=[first], rollback=False)
    for name, value in whole.items():
        np.testing.assert_array_equal(disturbed[name], value, err_msg=name)


def test_checkpoints_of_an_interruption_are_no_place_to_go_back_to(tmp_path):
    data = easy_data([150])
    train(tmp_path, data, stop=147)
    assert (tmp_path / "model.ckpt-147.index").exists()
    train(tmp_path, data)
    assert [entry["to"] for entry in kept(tmp_path)] == [140]


def test_the_first_batch_of_a_later_stage(tmp_path):
    """No step of the stage has spoilt its first checkpoint."""
    train(tmp_path, easy_data([0]), stop=160, before=[RunStage(130, easy_data(), "first", 8)])
    assert kept(tmp_path) == [{"step": 131, "to": 130, "batches_ahead": 101}]


def test_they_do_not_push_out_those_to_go_back_to(tmp_path):
    data = easy_data([58])
    few = {"save_checkpoints_minutes": 1e-9, "log_steps": 4, "iterations_per_loop": 4}
    train(tmp_path, data, stop=76, keep_checkpoint_max=2, **few)
    assert [entry["to"] for entry in kept(tmp_path)] == [40]
    steps = sorted(int(path.stem.split("-")[1]) for path in tmp_path.glob("model.ckpt-*.index"))
    assert steps == [40, 60, 76]


def test_nor_the_beginning_of_a_stage(tmp_path):
    few = {"save_checkpoints_minutes": 1e-9, "log_steps": 4, "iterations_per_loop": 4}
    first = RunStage(30, easy_data(), "first", 8)
    train(tmp_path, easy_data([8]), stop=60, before=[first], keep_checkpoint_max=1, **few)
    assert [entry["to"] for entry in kept(tmp_path)] == [30]


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "rollbacks.json").write_text("{}")
    with pytest.raises(ModelingError, match=r"rollbacks.json is damaged \(it lacks rollbacks\)"):
        rollback.read_rollbacks(str(tmp_path))


@pytest.mark.slow
def test_often_enough_is_enough(tmp_path):
    with pytest.raises(DivergedError, match=r"loss is nan.*has gone back 3 times already"):
        train(tmp_path, easy_data(range(130, STEPS + 500)))
    assert [entry["to"] for entry in kept(tmp_path)] == [120, 120, 120]
    with pytest.raises(DivergedError, match="has gone back 3 times already"):
        train(tmp_path, easy_data(range(130, STEPS + 500)))


def test_nothing_to_go_back_to(tmp_path):
    with pytest.raises(DivergedError, match="finds no checkpoint from before that"):
        train(tmp_path, easy_data([5]))
    with pytest.raises(DivergedError, match="Lower the learning rate"):
        train(tmp_path / "plain", easy_data([35]), rollback=False)


# ---- What counts as a jump ----


def history(losses):
    return {"loss": [(loss, 1.0) for loss in losses]}


def test_noise_and_learning_are_no_jumps():
    rng = np.random.default_rng(1)
    steps = np.arange(30_000)
    losses = 2 + 8 * np.exp(-steps / 4000) + rng.normal(size=steps.size) * 0.3
    losses[::997] += 3  # single hard batches
    watch = rollback.SpikeWatch()
    for first in range(0, steps.size, 50):
        watch(first, history(losses[first : first + 50]))


def test_a_jump_is_dated():
    rng = np.random.default_rng(2)
    losses = 5 + rng.normal(size=400) * 0.1
    losses[333:] += np.linspace(0.5, 3, 67)
    with pytest.raises(DivergedError, match="has jumped from 4") as caught:
        rollback.SpikeWatch()(1000, history(losses))
    assert caught.value.step == 1333


def test_hard_batches_are_no_jump_until_half_of_ten_are():
    watch = rollback.SpikeWatch()
    watch(0, history([5.0] * 150))
    watch(150, history([50.0] * 4))
    with pytest.raises(DivergedError) as caught:
        watch(154, history([5.0, 50.0, 5.0]))
    assert (caught.value.step, caught.value.until) == (150, 156)


def test_overflows_of_float16_are_no_news():
    watch = rollback.SpikeWatch()
    for first in range(0, 300, 3):
        watch(first, history([5.0, np.inf, np.nan]))
    assert watch.losses.numpy().tolist() == [5.0] * 110


def test_how_far_the_data_are_ahead():
    rollbacks = [
        {"step": 40, "to": 30, "batches_ahead": 10},
        {"step": 130, "to": 110, "batches_ahead": 20},
        {"step": 160, "to": 120, "batches_ahead": 60},
    ]
    ahead = {
        step: rollback.batches_ahead(rollbacks, 100, step) for step in (100, 110, 115, 120, 500)
    }
    assert ahead == {100: 0, 110: 20, 115: 20, 120: 60, 500: 60}
    assert rollback.batches_ahead(rollbacks, 0, 35) == 10
    at_first = [rollback.batches_ahead(rollbacks, 100, s, saved=True) for s in (110, 120, 121)]
    assert at_first == [0, 20, 60]
