"""The driver with a task of a few lines: what it asks of it, and in which order."""

import dataclasses
import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints.model_folder import open_model_folder
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.losses import ClassifierLosses
from modeling.models import BertClassifier
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.engine.precision import set_precision
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.fine_tuning import fine_tune
from modeling.training.runs.fit import LoopOptions
from modeling.training.runs.run_state import RunState, load_trained_run, start_or_resume
from modeling.training.runs.summary import RunSummary
from modeling.training.search import Trial
from modeling.training.settings import FineTuningSettings
from modeling.training.task import TaskEvaluation


@pytest.fixture(autouse=True)
def policy():
    yield
    keras.config.set_dtype_policy("float32")


@dataclasses.dataclass
class Split:
    """Texts of one word, whose class is whether its number is even."""

    name: str
    words: np.ndarray
    epochs: float | None = None
    fingerprint: str = "a"

    def __len__(self) -> int:
        return len(self.words)

    def batches(self, batch_size, seed=None, *, fixed_shapes, multiple, num_parts, parts):
        ids = np.stack([np.full_like(self.words, 1), self.words], axis=1).astype(np.int32)
        columns = {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "label_ids": (self.words % 2).astype(np.int32),
            "is_real_example": np.ones(len(ids), np.float32),
            "index": np.arange(len(ids), dtype=np.int64),
        }
        dataset = tf.data.Dataset.from_tensor_slices(columns)
        if seed is not None:
            dataset = dataset.shuffle(len(ids), seed=seed).repeat()
        return dataset.batch(batch_size)

    def steps_per_epoch(self, batch_size, fixed_shapes, multiple):
        return len(self) / batch_size

    def describe(self, index):
        return f"words {index}"


class ToyTask:
    """Writes down what it is asked."""

    losses = ClassifierLosses()
    result_names = ("eval_accuracy", "eval_loss")
    config = BertConfig.named("tiny", 30)

    def __init__(self):
        self.asked: list = []
        self.formats: set = set()
        self.identity = {"labels": ["odd", "even"]}
        self.splits = {"train": [Split("train", np.arange(4, 28))]}
        self.splits |= {name: [Split(name, np.arange(4, 12))] for name in ("dev", "test")}

    def read(self, purpose):
        self.asked.append(f"read {purpose}")
        return self.splits[purpose]

    def make_model(self):
        model = BertClassifier(self.config, 2)
        model.build()
        self.formats.add((model.compute_dtype, model.encoder.embeddings.compute_dtype))
        return model

    def predictor(self, model):
        predictor = ReplicaPredictor(model)
        return lambda split, batches: predictor(batches(split))

    def evaluate(self, split, answers):
        right = answers.argmax(-1) == split.words % 2
        return TaskEvaluation({"eval_accuracy": float(right.mean()), "eval_loss": 0.5})

    def write_evaluation(self, split, answers, results, first):
        self.asked.append(("evaluation", split.name, results["global_step"], first))

    def write_predictions(self, split, answers, step, first):
        self.asked.append(("predictions", split.name, answers.shape, step, first))

    def export(self, model):
        self.asked.append("export")
        return "nowhere"


def run(task, folder, seeds=(1,), loop=None, **changes):
    trials = [Trial(1e-3, 8, 1.0, seed) for seed in seeds]
    settings = FineTuningSettings(
        output_dir=str(folder),
        init_checkpoint=None,
        do_train=True,
        do_eval=True,
        do_predict=True,
        do_export=True,
        trials=trials,
        optimization=EngineSettings(1e-3, 0, 0, seed=1),
        loop=LoopOptions(save_checkpoints_steps=100, log_steps=1, **(loop or {})),
        num_train_steps=0,
        warmup_proportion=0.0,
        eval_batch_size=4,
        predict_batch_size=4,
        length_buckets=True,
    )
    with RunSummary(str(folder)) as summary:
        fine_tune(task, dataclasses.replace(settings, **changes), summary)
    return task


def steps(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["kind"], line["step"]) for line in lines]


@pytest.mark.slow
def test_everything_in_its_order(tmp_path):
    task = run(ToyTask(), tmp_path, loop={"eval_steps": 2})
    assert task.asked[:3] == ["read train", "read dev", "read test"]
    assert task.asked[3:] == [
        ("evaluation", "dev", 3, True),
        ("predictions", "test", (8, 2), 3, True),
        "export",
    ]
    assert ("eval", 2) in steps(tmp_path) and ("eval", 3) in steps(tmp_path)
    # Again: nothing is trained, the weights are those of before.
    again = run(ToyTask(), tmp_path, do_train=False, do_export=False)
    assert again.asked == ["read dev", "read test", *task.asked[3:5]]


def test_splits_to_train_on_follow_each_other(tmp_path):
    """Each with its own passes over it, and the data of each is part of the run's identity."""
    task = ToyTask()
    task.splits["train"] = [
        Split("first", np.arange(4, 20), epochs=2.0),
        Split("second", np.arange(4, 28), fingerprint="b"),
    ]
    only_train = {"do_eval": False, "do_predict": False, "do_export": False}
    run(task, tmp_path, **only_train)
    assert steps(tmp_path)[-1] == ("train", 7)
    kept = json.loads((tmp_path / "training.json").read_text())
    assert kept["train_file"] == ["a", "b"] and kept["labels"] == ["odd", "even"]
    task.splits["train"][1].fingerprint = "c"
    with pytest.raises(ModelingError, match=r"has come to step 7.*train_file.*overwrite_output"):
        run(task, tmp_path, **only_train)


@pytest.mark.slow
def test_what_is_older_than_the_weights_is_named(tmp_path, caplog):
    """Card and export of before, and what was tuned for weights that have gone on."""
    alone = {"do_eval": False, "do_predict": False, "do_export": False}
    run(ToyTask(), tmp_path, num_train_steps=2, **alone)
    (tmp_path / "model_card.md").write_text("of step 2")
    (tmp_path / "export").mkdir()
    (tmp_path / "temperature.json").write_text("{}")
    run(ToyTask(), tmp_path, num_train_steps=2, **alone)
    assert "of the weights before this training" not in caplog.text
    assert (tmp_path / "temperature.json").exists()
    run(ToyTask(), tmp_path, num_train_steps=4, **alone)
    assert f"model_card.md and export in {tmp_path}: of the weights before" in caplog.text
    assert not (tmp_path / "temperature.json").exists()


def test_too_little_to_train_on(tmp_path):
    task = ToyTask()
    task.splits["train"] = [Split("train", np.arange(4, 20), epochs=0.25)]
    with pytest.raises(
        ModelingError, match=r"16 rows in batches of 8, for 0\.25 passes, make less"
    ):
        run(task, tmp_path)


@pytest.mark.slow
def test_models_of_a_search_compute_in_the_format_that_was_set(tmp_path):
    set_precision("bfloat16")
    task = run(ToyTask(), tmp_path, seeds=(1, 2), do_export=False)
    assert task.formats == {("bfloat16", "bfloat16")}
    assert task.asked[-1][3] == 3 and len(list(tmp_path.glob("runs/*/result.json"))) == 2


@pytest.mark.parametrize("trains", [True, False])
def test_a_head_with_the_labels_in_another_order_is_put_in_the_tasks(tmp_path, trains, caplog):
    """config.json tells the labels, and its weights what they are of: no class names the head."""
    config = BertConfig.named("tiny", 30).with_head("classes", ["Pos", "neutral", "NEG"])
    source = BertClassifier(config, 3)
    source.build()
    source.output_bias.assign([1.0, 2.0, 3.0])
    checkpoints.save(source, tmp_path, format="huggingface")
    values = json.loads((tmp_path / "config.json").read_text())
    values.pop("architectures")
    values.pop("problem_type")
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert open_model_folder(tmp_path).config.head == "classes"
    model = BertClassifier(config.with_head("classes", ["neg", "neutral", "pos"]), 3)
    if trains:
        step = make_train_step(model, ClassifierLosses(), EngineSettings(1e-3, 1, 0, 0))
        state = RunState(str(tmp_path / "out"), step)
        start_or_resume(state, types.SimpleNamespace(resume=lambda step: None), str(tmp_path))
    else:
        load_trained_run(model, str(tmp_path / "out"), str(tmp_path))
    assert model.output_bias.numpy().tolist() == [3.0, 2.0, 1.0]
    rows = source.output_weights.numpy()[::-1]
    np.testing.assert_array_equal(model.output_weights.numpy(), rows)
    assert "in another order: put in this" in caplog.text


def test_a_head_of_other_labels_is_told(tmp_path, caplog):
    config = BertConfig.named("tiny", 30).with_head("classes", ["no", "yes"])
    checkpoints.save(BertClassifier(config, 2), tmp_path, format="huggingface")
    model = BertClassifier(config.with_head("classes", ["0", "1"]), 2)
    load_trained_run(model, str(tmp_path / "out"), str(tmp_path))
    assert "answers no, yes: taken for the task's labels 0, 1, in this order" in caplog.text


ALONE = {"do_eval": False, "do_predict": False, "do_export": False}


def test_a_refused_command_leaves_what_the_folder_says_of_a_run_that_stopped_early(tmp_path):
    """It stands before its last step, but has come to its end."""
    loop = {"eval_steps": 1, "best_metric": "eval_loss", "early_stopping_patience": 1}
    run(ToyTask(), tmp_path, loop=loop, do_predict=False, do_export=False)
    assert max(step for _, step in steps(tmp_path)) == 2
    names = ("training.json", "reading.json", "metrics.jsonl")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    other = {"trials": [Trial(1e-2, 8, 1.0, 1)], "reading": {"max_seq_length": 5}}
    for _ in range(2):
        with pytest.raises(ModelingError, match=r"has come to step 2.*learning_rate was 0\.001"):
            run(ToyTask(), tmp_path, loop=loop, **ALONE | {"do_eval": True}, **other)
        assert {name: (tmp_path / name).read_bytes() for name in names} == before
    # The same command goes on to what comes after training, with what was found out about the
    # weights, which stay.
    (tmp_path / "temperature.json").write_text("{}")
    task = run(ToyTask(), tmp_path, loop=loop, do_predict=False, do_export=False)
    assert task.asked[-1] == ("evaluation", "dev", 1, True)
    assert (tmp_path / "temperature.json").exists()
    # Without patience it is trained on.
    patient = {**loop, "early_stopping_patience": 0}
    run(ToyTask(), tmp_path, loop=patient, do_predict=False, do_export=False)
    assert not (tmp_path / "temperature.json").exists()


def test_best_weights_are_not_chosen_by_two_dev_sets(tmp_path):
    loop = {"eval_steps": 1, "best_metric": "eval_accuracy"}
    only = ALONE | {"do_eval": True}
    run(ToyTask(), tmp_path, loop=loop, num_train_steps=2, **only)
    other = ToyTask()
    other.splits["dev"][0].fingerprint = "b"
    for number in (2, 4):
        with pytest.raises(ModelingError, match=r"dev_file .*--overwrite_output_dir"):
            run(other, tmp_path, loop=loop, num_train_steps=number, **only)
    # Another one besides doesn't choose.
    task = ToyTask()
    task.splits["dev"].append(Split("dev_more", np.arange(4, 9), fingerprint="c"))
    run(task, tmp_path, loop=loop, num_train_steps=2, **only)
    # Flags that an evaluation depends on count as data does.
    task.judging = {"max_answer_length": 30}
    run(task, tmp_path, loop=loop, num_train_steps=3, **only)
    task.judging = {"max_answer_length": 20}
    with pytest.raises(ModelingError, match="max_answer_length was 30 and is 20 now"):
        run(task, tmp_path, loop=loop, num_train_steps=4, **only)
    # Where nothing is chosen, another one may judge; then none can choose by both any more.
    run(other, tmp_path, loop={"eval_steps": 1}, num_train_steps=4, **only)
    for one in (ToyTask(), other):
        with pytest.raises(ModelingError, match=r"dev_file .*--overwrite_output_dir"):
            run(one, tmp_path, loop=loop, num_train_steps=5, **only)


def test_a_search_takes_no_folder_that_holds_a_run_of_its_own(tmp_path):
    run(ToyTask(), tmp_path, **ALONE)
    with pytest.raises(
        ModelingError, match=r"none of a search .*model\.ckpt-3.*--overwrite_output"
    ):
        run(ToyTask(), tmp_path, seeds=(1, 2), **ALONE | {"do_eval": True})
    assert not (tmp_path / "runs").exists()


def test_a_search_goes_on_with_no_run_that_was_begun_otherwise(tmp_path):
    """A run of it was stopped; with other data it isn't taken up."""
    task = ToyTask()
    only = ALONE | {"do_eval": True}
    folder = tmp_path / "runs" / Trial(1e-3, 8, 1.0, 1).name
    # What a run of the search leaves that was stopped.
    run(task, folder, num_train_steps=1, **only)
    task.splits["train"][0].fingerprint = "b"
    with pytest.raises(ModelingError, match=r"was begun by another search: train_file "):
        run(task, tmp_path, seeds=(1, 2), num_train_steps=2, **only)
    task.splits["train"][0].fingerprint = "a"
    run(task, tmp_path, seeds=(1, 2), num_train_steps=2, **only)
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 2


def test_nothing_to_compare_runs_by(tmp_path):
    task = ToyTask()
    with pytest.raises(ModelingError, match=r"'eval_f1'.*eval_accuracy, eval_loss"):
        run(task, tmp_path, loop={"eval_steps": 2, "best_metric": "eval_f1"})
