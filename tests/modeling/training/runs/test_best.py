"""The best checkpoint and early stopping, also over kills and resumptions at any moment."""

import json
import math

import keras
import numpy as np
import pytest

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier
from modeling.training.runs import best, run_state
from modeling.training.runs.best import BestKeeper, load_best

METRIC = "eval_accuracy"
SIZES = {
    "vocab_size": 5,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 4,
    "max_position_embeddings": 4,
    "type_vocab_size": 2,
}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    made = BertClassifier(BertConfig(**SIZES), num_labels=2)
    made.build()
    return made


def train_to(model, step):
    """Weights that tell the step."""
    for weight in model.weights:
        weight.assign(np.full(weight.shape, step, np.float32))


def step_in(model):
    values = {float(value) for w in model.weights for value in np.ravel(w.numpy())}
    assert len(values) == 1  # every weight, of one step
    return values.pop()


def save_training_checkpoint(folder, model, step):
    train_to(model, step)
    tensors = {n: w.numpy() for n, w in checkpoints.weights_by_name(model).items()}
    slots = {f"{name}/adam_m": tensor for name, tensor in tensors.items()}
    scale = {"loss_scale": np.float32(2), "loss_scale_good_steps": np.int32(1)}
    step_number = {"global_step": np.int64(step)}
    tf1.write_bundle(f"{folder}/model.ckpt-{step}", tensors | slots | scale | step_number)


def evaluate(keeper, model, values, metric=METRIC):
    """Updates with step → value; returns the step that it stopped at, or None."""
    for step, value in values.items():
        train_to(model, step)
        if keeper.update(step, {metric: value, "other": 0.0}, model):
            return step
    return None


def kept(folder):
    """The (step, value) that best.json names, after checking that all parts of best/ agree."""
    record = json.loads((folder / "best" / best.FILE).read_text())
    prefix = folder / "best" / record["checkpoint"]
    tensors = tf1.read_bundle(prefix)
    assert tensors.pop("global_step") == record["step"]
    assert {float(value) for t in tensors.values() for value in np.ravel(t)} == {record["step"]}
    assert checkpoints.find(folder / "best") == ("tf1", str(prefix))
    assert not list(folder.glob("best/.saving-*"))
    return record["step"], record["value"]


def bundles(folder):
    return sorted(int(p.stem.partition("-")[2]) for p in folder.glob("best/*.index"))


def test_keeps_the_best_and_stops(tmp_path, model):
    keeper = BestKeeper(str(tmp_path), METRIC, patience=3)
    save_training_checkpoint(tmp_path, model, 100)
    values = {10: 0.5, 20: 0.7, 30: 0.6, 40: 0.8, 50: 0.8, 60: math.nan, 70: 0.7, 80: 0.9}
    assert evaluate(keeper, model, values) == 70
    assert keeper.best == kept(tmp_path) == (40, 0.8)
    assert bundles(tmp_path) == [40]
    assert load_best(model, str(tmp_path)) == 40
    assert step_in(model) == 40


def test_a_folder_that_ended_with_the_best_stands_for_it(tmp_path, model):
    for step in (10, 20, 30):
        save_training_checkpoint(tmp_path, model, step)
    keeper = BestKeeper(str(tmp_path), METRIC)
    evaluate(keeper, model, {10: 0.5, 20: 0.7, 30: 0.6})
    folder, newest = str(tmp_path), tmp_path / "model.ckpt-30"
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{newest.name}"\n')
    assert best.ended_with_best(folder) is None
    assert run_state.load_trained_run(model, folder, None) == step_in(model) == 30
    assert checkpoints.find(folder) == ("tf1", str(newest))
    best.end_with_best(folder)
    assert best.ended_with_best(folder) == f"{folder}/best/model.ckpt-20"
    assert run_state.load_trained_run(model, folder, None) == step_in(model) == 20
    for there in (True, False):  # the run's own checkpoint of that step
        checkpoints.load(model, folder)
        assert step_in(model) == 20 and (tmp_path / "model.ckpt-20.index").exists() == there
        for path in tmp_path.glob("model.ckpt-20.*"):
            path.unlink()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert checkpoints.find(moved) == ("tf1", str(moved / "best/model.ckpt-20"))
    # Training on names its own again, and a best that is gone doesn't count.
    for path in (moved / "best").glob("*.index"):
        path.unlink()
    assert best.ended_with_best(str(moved)) is None


@pytest.mark.parametrize("metric", ["eval_loss", "masked_lm_perplexity"])
def test_less_loss_is_better(tmp_path, model, metric):
    keeper = BestKeeper(str(tmp_path), metric)
    values = {1: math.nan, 2: 3.0, 3: 2.0, 4: -math.inf, 5: 2.5}
    assert evaluate(keeper, model, values, metric) is None  # patience 0 never stops
    assert kept(tmp_path) == (3, 2.0)


def test_nothing_is_kept_of_values_that_are_not_finite(tmp_path, model):
    keeper = BestKeeper(str(tmp_path), METRIC, patience=2)
    assert evaluate(keeper, model, {1: math.nan, 2: math.inf, 3: 1.0}) == 2
    assert keeper.best is None
    with pytest.raises(ModelingError, match="no best checkpoint"):
        load_best(model, str(tmp_path))


def test_a_step_evaluated_again_counts_once(tmp_path, model):
    keeper = BestKeeper(str(tmp_path), METRIC, patience=2)
    assert evaluate(keeper, model, {1: 0.5, 2: 0.4}) is None
    assert evaluate(keeper, model, {2: 0.4}) is None
    assert evaluate(keeper, model, {3: 0.4}) == 3


def test_unknown_metric_lists_those_there_are(tmp_path, model):
    keeper = BestKeeper(str(tmp_path), "f1")
    with pytest.raises(ModelingError, match=r"'f1'.*step 3.*accuracy, eval_loss"):
        keeper.update(3, {"eval_loss": 1.0, "accuracy": 0.5}, model)


VALUES = {10: 0.3, 20: 0.6, 30: 0.5, 40: 0.65, 50: 0.6, 60: 0.64, 70: 0.4, 80: 0.9}


@pytest.mark.parametrize(
    ("killed", "saved"),
    [(killed, saved) for killed in (20, 40, 50, 60) for saved in range(0, killed + 1, 10)],
)
def test_resumed_as_if_never_stopped(tmp_path, model, killed, saved):
    """Training checkpoints lag behind evaluations; the steps since are trained again."""
    first = BestKeeper(str(tmp_path), METRIC, patience=3)
    for step in range(10, killed + 1, 10):
        evaluate(first, model, {step: VALUES[step]})
        if step == saved:
            save_training_checkpoint(tmp_path, model, step)
    history = [(step, value) for step, value in VALUES.items() if step <= saved]
    again = BestKeeper(str(tmp_path), METRIC, patience=3, history=history)
    if history:
        assert kept(tmp_path) == again.best == max(history, key=lambda pair: pair[1])
    rest = {step: value for step, value in VALUES.items() if step > saved}
    assert evaluate(again, model, rest) == 70
    assert kept(tmp_path) == (40, 0.65)
    finished = BestKeeper(str(tmp_path), METRIC, patience=3, history=list(VALUES.items())[:7])
    assert finished.should_stop  # the same command once more trains no further


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(1, 12))
def test_killed_at_any_moment_of_keeping(tmp_path, model, monkeypatch, moment):
    """At every call that writes, renames or removes there is a whole best."""
    keeper = BestKeeper(str(tmp_path), METRIC)
    evaluate(keeper, model, {10: 0.5})
    save_training_checkpoint(tmp_path, model, 20)
    calls = []

    def dying(function):
        def call(*arguments, **options):
            calls.append(function)
            if len(calls) == moment:
                raise Killed
            return function(*arguments, **options)

        return call

    file_system = best.tf.io.gfile
    with monkeypatch.context() as patched:
        for name in ("rename", "remove", "makedirs", "listdir"):
            patched.setattr(file_system, name, dying(getattr(file_system, name)))
        try:
            evaluate(keeper, model, {20: 0.6})
            died = False
        except Killed:
            died = True
    assert died  # so the moments end before the calls do
    assert load_best(model, str(tmp_path)) in (10, 20)
    assert step_in(model) in (10, 20)
    # Its evaluation had been written, so the resumed run takes the weights from where they are.
    again = BestKeeper(str(tmp_path), METRIC, history=[(10, 0.5), (20, 0.6)])
    assert again.best == kept(tmp_path) == (20, 0.6)
    assert bundles(tmp_path) == [20]


def test_recovered_from_a_training_checkpoint(tmp_path, model, caplog):
    """best/ was removed, or its bundle is damaged."""
    save_training_checkpoint(tmp_path, model, 20)
    history = [(10, 0.3), (20, 0.6), (30, 0.5)]
    with caplog.at_level("INFO"):
        BestKeeper(str(tmp_path), METRIC, history=history)
    assert kept(tmp_path) == (20, 0.6)
    assert load_best(model, str(tmp_path)) == 20  # Adam's slots and the loss scale left behind
    names = tf1.read_bundle(tmp_path / "best" / "model.ckpt-20").keys()
    assert names == checkpoints.weights_by_name(model).keys() | {"global_step"}
    assert "0.6 at step 20; evaluations since then without improvement: 1" in caplog.text
    data = tmp_path / "best" / "model.ckpt-20.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:50])
    BestKeeper(str(tmp_path), METRIC, history=history)
    assert kept(tmp_path) == (20, 0.6)


def test_older_checkpoint_resumed_by_hand(tmp_path, model, caplog):
    """The weights of the best of that time are gone: it is said, and the next ones are kept."""
    keeper = BestKeeper(str(tmp_path), METRIC)
    evaluate(keeper, model, {10: 0.5, 20: 0.9})
    save_training_checkpoint(tmp_path, model, 30)
    evaluate(keeper, model, {30: 0.8})
    assert bundles(tmp_path) == [20]
    with caplog.at_level("INFO"):
        again = BestKeeper(str(tmp_path), METRIC, patience=4, history=[(10, 0.5)])
    assert "at step 10, but its weights are gone" in caplog.text
    assert "holds the weights of step 20" in caplog.text
    evaluate(again, model, {15: 0.4})
    assert kept(tmp_path) == (15, 0.4)
    evaluate(again, model, {20: 0.3, 25: 0.45})
    assert kept(tmp_path) == (25, 0.45)
    assert again.best == (10, 0.5)  # patience goes by all evaluations
    assert evaluate(again, model, {30: 0.45}) == 30
    caplog.clear()
    with caplog.at_level("INFO"):
        BestKeeper(str(tmp_path), METRIC)
    assert "holds the weights of step 25, which this run hasn't evaluated" in caplog.text


def test_other_workers_decide_alike_and_write_nothing(tmp_path, model, monkeypatch):
    monkeypatch.setattr(best, "is_chief", lambda: False)
    keeper = BestKeeper(str(tmp_path), METRIC, patience=3)
    assert evaluate(keeper, model, VALUES) == 70
    assert not list(tmp_path.iterdir())


def test_broken_record_is_an_error_for_who_asks(tmp_path, model):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / best.FILE).write_text('{"step": 3')
    with pytest.raises(ModelingError, match="no best checkpoint"):
        load_best(model, str(tmp_path))
    evaluate(BestKeeper(str(tmp_path), METRIC), model, {1: 0.5})
    assert kept(tmp_path) == (1, 0.5)
