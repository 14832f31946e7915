"""The step against its parts, the loop against interruptions."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints import files
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.losses import ClassifierLosses, Mean, PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer
from modeling.training.engine import loop
from modeling.training.engine.evaluation import Evaluator
from modeling.training.engine.optimizers import BertAdam, make_optimizer
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.step import TrainStep
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import latest_run_checkpoint, prepare_run_folder
from modeling.training.runs.run_state import RunState, load_trained_run, start_or_resume
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


@pytest.mark.slow
def test_same_seed_same_run_and_other_seed_other_run(tmp_path):
    runs = [Run(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))]
    for run in runs:
        run.go()
    first, again, other = (run.values() for run in runs)
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


@pytest.mark.parametrize("optimizer", ["adam", pytest.param("muon", marks=pytest.mark.slow)])
def test_resumed_run_is_the_uninterrupted_one(tmp_path, optimizer):
    """Interrupted among the steps whose weights are averaged, too."""
    whole = Run(tmp_path / "whole", optimizer=optimizer)
    whole.go()
    parted = Run(tmp_path / "parted", optimizer=optimizer)
    parted.go(steps=6)
    resumed = Run(tmp_path / "parted", optimizer=optimizer)
    for variable in resumed.weights.values():
        variable.assign(variable + 1)  # other initial weights, to be overwritten
    start_or_resume(resumed.state, resumed.reporter, None)
    resumed.go()
    expected, values = whole.values(), resumed.values()
    assert all((expected[name] == values[name]).all() for name in expected)
    lines = (tmp_path / "parted" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6, 8, 10, 12]


def test_position_in_other_data_is_not_restored(tmp_path, caplog):
    Run(tmp_path).go(steps=4)
    other = Run(tmp_path, dataset=batches(count=24))
    other.state.data_id, other.state.former_data_id = "other records", "once others, too"
    start_or_resume(other.state, other.reporter, None)
    assert "belongs to other data" in caplog.text
    first = next(iter(batches(count=24)))
    np.testing.assert_array_equal(next(other.iterator)["input_ids"], first["input_ids"])
    # What an earlier version called the same is the same.
    same = Run(tmp_path)
    same.state.former_data_id, same.state.data_id = same.state.data_id, "a new name"
    caplog.clear()
    start_or_resume(same.state, same.reporter, None)
    assert "belongs to other data" not in caplog.text


def test_checkpoints_are_the_originals_and_old_ones_go(tmp_path):
    run = Run(tmp_path)
    run.go()
    assert {p.name for p in tmp_path.glob("model.ckpt-*.index")} == {
        "model.ckpt-8.index",
        "model.ckpt-12.index",
    }
    assert tf.train.latest_checkpoint(str(tmp_path)) == latest_run_checkpoint(str(tmp_path))
    reader = tf.train.load_checkpoint(latest_run_checkpoint(str(tmp_path)))
    names = set(reader.get_variable_to_shape_map())
    assert reader.get_tensor("global_step") == 12
    assert "cls/predictions/output_bias/adam_m" in names
    assert len(names) == 3 * len(run.weights) + 1
    assert not list(tmp_path.glob(".saving*"))


def test_signal_saves_and_ends_with_its_code(tmp_path, caplog):
    run = Run(tmp_path, steps=100000)
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(SystemExit) as end, caplog.at_level("INFO"):
        run.go(save_checkpoints_steps=10**6)
    assert end.value.code == 143
    stopped = int(run.step.global_step.numpy())
    assert latest_run_checkpoint(str(tmp_path)).endswith(f"-{stopped}")
    assert "To go on:" in caplog.text


def test_signal_during_an_evaluation_loses_nothing(tmp_path):
    run = Run(tmp_path, steps=100)

    saved = []

    def evaluate(step):
        os.kill(os.getpid(), signal.SIGTERM)
        # A machine may not wait for the evaluation's end.
        saved.append(latest_run_checkpoint(str(tmp_path)))

    with pytest.raises(SystemExit):
        run.go(save_checkpoints_steps=50, eval_steps=7, evaluate=evaluate)
    assert saved == [latest_run_checkpoint(str(tmp_path))] and saved[0].endswith("model.ckpt-7")


def test_last_step_is_evaluated_once(tmp_path):
    evaluated = []
    run = Run(tmp_path, steps=4)

    def evaluate(step):
        evaluated.append(step)

    run.go(eval_steps=2, evaluate=evaluate)
    assert evaluated == [2, 4]
    # Killed between saving and evaluating.
    run.reporter.write("eval", 2, {"loss": 1.0})
    run.go(eval_steps=2, evaluate=evaluate)
    assert evaluated == [2, 4, 4]
    run.reporter.write("eval", 4, {"loss": 1.0})
    run.go(eval_steps=2, evaluate=evaluate)
    assert evaluated == [2, 4, 4]


def test_what_a_killed_process_left_is_cleared(tmp_path):
    run = Run(tmp_path)
    run.go(steps=4)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = files._HOST
    names = [f"{host}-{ended.pid}-1", f"{host}-{os.getpid()}-1", "elsewhere-1-1", "elsewhere-1-2"]
    for name in names:
        (tmp_path / f".saving-{name}").mkdir()
    (tmp_path / ".saving-elsewhere-1-1/model.ckpt-9.index").write_text("")
    long_ago = time.time() - 10**5
    for name in (".saving-elsewhere-1-1/model.ckpt-9.index", ".saving-elsewhere-1-2"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "st')
    # What may be under way stays: of this process, of a living one, of another machine.
    (tmp_path / f".saving-{host}-{os.getppid()}-1").mkdir()
    (tmp_path / ".saving-elsewhere-2-1").mkdir()
    with files.staged(str(tmp_path)) as own:
        again = Run(tmp_path)
        left = {path.name for path in tmp_path.glob(".saving-*")}
        alive = {f".saving-{host}-{os.getppid()}-1", ".saving-elsewhere-2-1"}
        assert left == alive | {os.path.basename(own)}
    start_or_resume(again.state, again.reporter, None)
    assert [step for step, _ in again.reporter.curve("train", "loss")] == [2, 4]


def test_damaged_position_in_the_data_falls_back(tmp_path, caplog):
    whole = Run(tmp_path)
    whole.go(steps=8)
    expected = whole.values()
    index, data = (tmp_path / f"data-8.{part}" for part in ("index", "data-00000-of-00001"))
    whole_index = index.read_bytes()
    index.write_bytes(b"")
    assert latest_run_checkpoint(str(tmp_path)).endswith("-4")
    index.write_bytes(whole_index)
    assert latest_run_checkpoint(str(tmp_path)).endswith("-8")
    data.write_bytes(data.read_bytes()[:-100])
    assert latest_run_checkpoint(str(tmp_path), to_train=False).endswith(
        "-8"
    )  # to evaluate it is good enough
    resumed = Run(tmp_path)
    start_or_resume(resumed.state, resumed.reporter, None)
    assert "Damaged, so the checkpoint before it counts: the position" in caplog.text
    assert int(resumed.step.global_step) == 4
    resumed.go(steps=8)
    values = resumed.values()
    assert all((expected[name] == values[name]).all() for name in expected)
    for step in (4, 8):
        (tmp_path / f"data-{step}.index").write_bytes(b"")
    last = Run(tmp_path)
    start_or_resume(last.state, last.reporter, None)
    assert int(last.step.global_step) == 8 and "from the beginning of the data" in caplog.text


def test_folder_wins_where_a_release_would_hide_the_run(tmp_path):
    run = Run(tmp_path / "run")
    run.go(steps=4)
    checkpoints.save(tiny_model(seed=3), str(tmp_path / "release"))
    release = str(tmp_path / "release" / "bert_model.ckpt")
    model = tiny_model(seed=5)
    assert load_trained_run(model, str(tmp_path / "run"), release) == 0
    assert load_trained_run(model, str(tmp_path / "run"), release, prefer_directory=True) == 4
    for named in (tmp_path / "run", tmp_path / "run" / "model.ckpt-4"):
        assert load_trained_run(model, str(tmp_path / "elsewhere"), str(named)) == 4
    trained = checkpoints.weights_by_name(model)
    assert all((trained[name].numpy() == value).all() for name, value in run.values().items())


def test_head_for_other_classes_is_left_out(tmp_path):
    config = tiny_model().config
    pairs = [BertClassifier(config, labels) for labels in (3, 2)]
    for model in pairs:
        model.build()
    checkpoints.save(pairs[0], str(tmp_path / "tuned"))
    weights = {n: w.value for n, w in checkpoints.weights_by_name(pairs[1]).items()}
    optimizer = BertAdam(weights, make_schedule("linear", 1e-3, 5, 0))
    step = TrainStep(pairs[1], ClassifierLosses(), optimizer, seed=0)
    state = RunState(str(tmp_path), step)
    head = weights["output_weights"].numpy()
    release = str(tmp_path / "tuned" / "bert_model.ckpt")
    start_or_resume(state, Reporter(str(tmp_path), 5, 8), release)
    np.testing.assert_array_equal(weights["output_weights"], head)
    np.testing.assert_array_equal(
        weights["bert/pooler/dense/kernel"], pairs[0].encoder.pooler.kernel
    )


@pytest.mark.slow
def test_loss_that_is_not_finite_stops_the_run(tmp_path):
    poisoned = records(64)
    poisoned["masked_lm_weights"][40:48] = np.inf
    data = tf.data.Dataset.from_tensor_slices(poisoned).batch(8).repeat()
    run = Run(tmp_path, dataset=data)
    with pytest.raises(ModelingError, match=r"at step 5 .*learning rate .*step 4, is kept"):
        run.go(save_checkpoints_steps=2)


def test_first_loss_that_is_not_finite_points_to_the_weights(tmp_path):
    run = Run(tmp_path)
    run.weights["bert/pooler/dense/bias"].assign(np.full(8, np.nan))
    with pytest.raises(ModelingError, match="pooler/dense/bias isn't finite before the first step"):
        run.go()
    run.weights["bert/pooler/dense/bias"].assign(np.zeros(8))
    words = run.weights["bert/embeddings/word_embeddings"]
    words.assign(words * 1e30)
    message = r"at step 0 .*learning rate isn't the reason.* word_embeddings, and hardly above"
    with pytest.raises(ModelingError, match=message.replace(" word", r" bert/embeddings/word")):
        run.go()


def test_checkpoint_of_another_model_is_refused(tmp_path):
    Run(tmp_path).go(steps=4)
    other = Run(tmp_path)
    other.state.train_step.model = BertPretrainer(BertConfig.named("tiny", 30))
    other.state.train_step.model.build()
    with pytest.raises(ModelingError, match="bert/embeddings/word_embeddings"):
        start_or_resume(other.state, other.reporter, None)


def test_evaluation_is_exact_whatever_the_batch_size():
    model = tiny_model()
    data = records(30)
    evaluate = Evaluator(model, PretrainingLosses())
    expected = evaluate(tf.data.Dataset.from_tensor_slices(data).batch(30))
    padded = {k: np.concatenate([v, np.zeros_like(v[:2])]) for k, v in data.items()}
    results = evaluate(tf.data.Dataset.from_tensor_slices(padded).batch(8))
    with pytest.raises(ModelingError, match="nothing to evaluate"):
        evaluate(tf.data.Dataset.from_tensor_slices(data).batch(8).take(0))
    assert set(Evaluator(model, PretrainingLosses()).names(batches())) == set(results)
    assert set(results) == {
        "loss",
        "masked_lm_loss",
        "masked_lm_accuracy",
        "next_sentence_loss",
        "next_sentence_accuracy",
    }
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=2e-6, err_msg=name)
    total = results["masked_lm_loss"] + results["next_sentence_loss"]
    assert results["loss"] == pytest.approx(total)


def test_output_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelingError, match=r"file/out can't be written"):
        prepare_run_folder(str(tmp_path / "file" / "out"))


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
