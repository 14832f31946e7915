"""Where a new head begins, in which unit numbers are learned, and what is said of constants."""

import json
import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the export)

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.checkpoints.heads import UNIT_OF_OTHERS, is_other_unit
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.heads import class_log_priors, label_log_odds
from modeling.losses import RegressionLosses
from modeling.models import BertClassifier
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_state import RunState, load_trained_run, start_or_resume
from modeling.training.sentences import SentenceHead
from tests.fine_tuning import learnable_cases as cases
from tests.fine_tuning.tiny_tasks import classifier, sentences, write_model
from tests.scripts import messages, succeed

CONFIG = BertConfig.named("tiny", 30)
IDS = np.array([[2, 5, 6, 3], [2, 9, 4, 3]], np.int32)
BATCH = {"input_ids": IDS, "input_mask": np.ones_like(IDS), "segment_ids": 0 * IDS}
NUMBERS = np.array([1900.0, 2000.0, 2100.0, 2040.0], np.float32)


def answers(model) -> np.ndarray:
    return model(BATCH)["logits"].numpy()[:, 0]


def numbers_model(labels=NUMBERS):
    """With a head that matters; always the same encoder."""
    keras.utils.set_random_seed(1)
    model = SentenceHead("regression", train_labels=labels).make_model(CONFIG)
    rng = np.random.default_rng(0)
    model.output_weights.assign(rng.normal(size=model.output_weights.shape))
    model.output_bias.assign([0.3])
    return model


def test_the_bias_gives_the_labels_shares():
    labels = np.array([0, 0, 0, 1], np.int32)
    model = SentenceHead("classes", 2, None, labels).make_model(CONFIG)
    np.testing.assert_allclose(tf.nn.softmax(model.output_bias.value), [0.75, 0.25], rtol=1e-6)
    # As the training loss counts them.
    weighted = SentenceHead("classes", 2, (1.0, 3.0), labels).make_model(CONFIG)
    np.testing.assert_allclose(tf.nn.softmax(weighted.output_bias.value), [0.5, 0.5], rtol=1e-6)
    sets = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]], np.float32)
    model = SentenceHead("multi_label", 3, None, sets).make_model(CONFIG)
    np.testing.assert_allclose(tf.sigmoid(model.output_bias.value)[1], 0.25, rtol=1e-6)
    assert np.isfinite(model.output_bias.numpy()).all()
    # What never occurs is rare, not impossible.
    assert np.argmin(class_log_priors(np.array([5, 0, 2]))) == 1
    np.testing.assert_allclose(label_log_odds(np.array([0, 4]), 4), [-np.log(7), np.log(7)])
    for kind in ("classes", "multi_label"):
        assert not SentenceHead(kind, 3).make_model(CONFIG).output_bias.numpy().any()


def test_numbers_are_learned_in_their_own_unit():
    model = SentenceHead("regression", train_labels=NUMBERS).make_model(CONFIG)
    mean, deviation = NUMBERS.mean(), NUMBERS.std()
    # A new head begins near the mean; its loss is one variance.
    assert abs(answers(model) - mean).max() < 0.5 * deviation
    losses, _ = RegressionLosses()(
        {"logits": tf.fill([4, 1], mean), "target_scale": model.target_scale.value},
        {"label_ids": NUMBERS},
    )
    assert float(losses["loss"].result()) == pytest.approx(1)
    results = SentenceHead("regression").evaluate(
        np.full((4, 1), mean), NUMBERS, ("mse",), deviation
    )
    assert results == pytest.approx({"eval_mse": deviation**2, "eval_loss": 1})
    # All alike: no unit to divide by.
    model = SentenceHead("regression", train_labels=np.full(3, 7, np.float32)).make_model(CONFIG)
    assert (model.target_mean.numpy(), model.target_scale.numpy()) == (7, 1)
    # Mean and scale aren't trained.
    step = make_train_step(numbers_model(), RegressionLosses(), EngineSettings(1e-3, 10, 0, seed=1))
    assert not [name for name in step.optimizer.slots() if name.startswith("target_")]


def test_releases_answer_in_the_same_unit(tmp_path):
    """As TF1, as Hugging Face's, and through a training checkpoint converted to either."""
    model = numbers_model()
    expected = answers(model)
    assert np.ptp(expected) > 1 and 1500 < expected.mean() < 2500
    tensors = {n: w.numpy() for n, w in checkpoints.weights_by_name(model).items()}
    tf1.write_bundle(tmp_path / "run/model.ckpt-3", tensors | {"global_step": np.int64(3)})
    (tmp_path / "run/bert_config.json").write_text(CONFIG.to_json_string())
    plain = BertClassifier(CONFIG, 1)
    assert not checkpoints.load(plain, tmp_path / "run/model.ckpt-3").left_over
    np.testing.assert_allclose(answers(plain), expected, rtol=1e-6)
    for form in checkpoints.FORMATS:
        checkpoints.save(model, tmp_path / form, format=form)
        done = checkpoints.convert(
            tmp_path / "run/model.ckpt-3", tmp_path / f"converted-{form}", form
        )
        assert done.not_converted == [] and "folded into output_weights" in done.notes[0]
        for folder in (tmp_path / form, tmp_path / f"converted-{form}"):
            assert not UNIT_OF_OTHERS.keys() & checkpoints.open_contents(folder).shapes.keys()
            # The unit of what is loaded counts, whatever the model had before.
            other = numbers_model(NUMBERS * 3)
            assert not checkpoints.load(other, folder, required=("",)).newly_initialised
            np.testing.assert_allclose(answers(other), expected, rtol=1e-6)
            assert load_trained_run(numbers_model(), str(tmp_path / "empty"), str(folder)) == 0


def begun(model, folder, init_checkpoint) -> RunState:
    """A run of the model in a new folder, begun from there."""
    step = make_train_step(model, RegressionLosses(), EngineSettings(1e-3, 10, 0, seed=1))
    folder.mkdir()
    state = RunState(str(folder), step)
    start_or_resume(state, Reporter(str(folder), 10, 2), str(init_checkpoint))
    return state


def test_a_trained_head_goes_on_in_the_unit_of_the_new_targets(tmp_path):
    checkpoints.save(numbers_model(), tmp_path / "release")
    expected = answers(numbers_model())
    model = numbers_model(NUMBERS / 10)
    unit = model.target_scale.numpy()
    state = begun(model, tmp_path / "run", tmp_path / "release")
    np.testing.assert_allclose(answers(model), expected, rtol=1e-5)
    np.testing.assert_array_equal(model.target_scale, unit)
    # A run of an older version has no unit; it goes on without one.
    state.save()
    stored = tf1.read_bundle(tmp_path / "run/model.ckpt-0")
    old = {name: value for name, value in stored.items() if name not in UNIT_OF_OTHERS}
    tf1.write_bundle(tmp_path / "run/model.ckpt-0", old)
    state.restore(str(tmp_path / "run/model.ckpt-0"))
    assert (model.target_mean.numpy(), model.target_scale.numpy()) == (0, 1)


@pytest.mark.parametrize(("logits", "labels"), [([4, 1], [4, 1]), ([4, 3], [4]), ([4, 3], [4, 3])])
def test_numbers_of_other_shapes_are_refused(logits, labels):
    """[B, 1] against [B, 1] would be every answer against every number."""
    with pytest.raises(ModelingError, match=r"label_ids \[B\], but received"):
        RegressionLosses()({"logits": tf.zeros(logits)}, {"label_ids": tf.zeros(labels)})


@pytest.mark.parametrize(
    ("targets", "is_far"),
    [(NUMBERS, 0), (NUMBERS * 2 - 2000, 0), (NUMBERS / 1000, 1), (NUMBERS * 9, 1), (-NUMBERS, 1)],
)
def test_a_head_of_numbers_of_another_size_is_left(tmp_path, caplog, targets, is_far):
    """Rewritten for targets a thousandth as large, it never came back to them."""
    tensors = {n: w.numpy() for n, w in checkpoints.weights_by_name(numbers_model()).items()}
    tf1.write_bundle(tmp_path / "old/model.ckpt-3", tensors | {"global_step": np.int64(3)})
    model = SentenceHead("regression", train_labels=targets).make_model(CONFIG)
    found = checkpoints.open_contents(tmp_path / "old/model.ckpt-3")
    # --original_head measures no unit.
    assert not is_other_unit(found, np.zeros(1, np.float32), np.ones(1, np.float32))
    head = model.output_weights.numpy()
    begun(model, tmp_path / "run", tmp_path / "old/model.ckpt-3")
    np.testing.assert_allclose(model.target_scale.numpy(), [targets.std()], rtol=1e-6)
    assert np.array_equal(model.output_weights.numpy(), head) == is_far
    assert ("a new head is trained" in caplog.text) == is_far


# ---- From the command line ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    write_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "flat.json").write_text(json.dumps(config | {"initializer_range": 1e-12}))
    # Without pre-training the original's 0.02 is too little to learn from.
    (folder / "config.json").write_text(json.dumps(config | {"initializer_range": 0.2}))
    for name, count, seed in (("train", 160, 0), ("dev", 40, 1)):
        rows = sentences(count, seed, labels=("2090", "1910"))
        cases.write_rows(
            folder / f"{name}.jsonl", [row | {"year": int(row["verdict"])} for row in rows]
        )
    texts = [{"text": row["text"]} for row in sentences(40, 1)]
    cases.write_rows(folder / "new.jsonl", texts)
    return folder


def results(path: pathlib.Path) -> dict[str, str]:
    return dict(line.split(" = ") for line in path.read_text().splitlines())


def years(folder, out, *more):
    columns = ("--text_columns=text", "--label_column=year", "--label_kind=regression")
    files = ("--train_file=train.jsonl", "--dev_file=dev.jsonl", "--test_file=new.jsonl")
    return classifier(folder, out, *columns, *files, "--learning_rate=0.003", *more)


@pytest.mark.slow
def test_years_are_learned_exported_and_predicted(folder):
    everything = ("--do_train", "--do_eval", "--do_predict", "--do_export")
    succeed(*years(folder, "years", *everything, "--num_train_epochs=4"))
    scores = {
        name: float(text) for name, text in results(folder / "years/eval_results.txt").items()
    }
    assert scores["eval_pearson"] > 0.9 and scores["eval_mse"] < 0.25 * 90**2
    assert scores["eval_loss"] == pytest.approx(scores["eval_mse"] / 90**2, rel=1e-4)
    lines = (folder / "years/predictions.tsv").read_text().splitlines()
    predicted = np.array([float(line.split("\t")[1]) for line in lines[1:]])
    assert 1850 < predicted.min() < 1960 < 2040 < predicted.max() < 2150
    loaded = tf.saved_model.load(str(folder / "years/export/1"))
    texts = [row["text"] for row in sentences(40, 1)]
    served = loaded.signatures["serving_default"](text_a=tf.constant(texts))["score"]
    np.testing.assert_allclose(served, predicted, rtol=1e-4)


@pytest.mark.slow
def test_what_is_constant_is_said(folder):
    """A learning rate of next to nothing and the original's head: nothing is learned."""
    nothing = ("--learning_rate=1e-12", "--num_train_steps=2", "--eval_steps=1", "--original_head")
    nothing += (f"--bert_config_file={folder}/flat.json", "--best_metric=eval_pearson")
    log = succeed(*years(folder, "constant", "--do_train", "--do_eval", *nothing))
    assert "dev: the model answers the number" in log and "to every example" in log
    assert "eval_pearson is undefined at step 1" in log
    assert "No evaluation gave eval_pearson a finite value" in log
    scores = results(folder / "constant/eval_results.txt")
    assert scores["eval_pearson"] == scores["eval_spearman"] == "undefined"
    text = (folder / "constant/metrics.jsonl").read_text()
    evaluations = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "eval"]
    assert {line["eval_pearson"] for line in evaluations} == {None}
    # A search has nothing to choose by; a head of another kind is another run.
    search = years(folder, "searched", "--do_train", "--num_runs=2", *nothing)
    resumed = [flag for flag in nothing if flag != "--original_head"]
    other = years(folder, "constant", "--do_train", *resumed)
    said = messages("run_classifier.py", search[1:], other[1:])
    assert "has a finite eval_pearson" in said[0] and "compare the runs by another" in said[0]
    assert "original_head was true and is false now" in said[1]


def test_what_every_example_is_answered():
    head = SentenceHead("multi_label", 2)
    sets = np.array([[1, 0], [0, 1]])
    assert head.constant_answer(np.full((2, 2), 0.2), sets, ("a", "b")) == "no label"
    assert head.constant_answer(np.array([[0.9, 0.2]] * 2), sets, ("a", "b")) == "the labels a"
    assert not head.constant_answer(sets, sets, ("a", "b"))
    classes = SentenceHead("classes", 2)
    assert classes.constant_answer(np.array([[0.1, 0.9]] * 2), [0, 1], ("a", "b")) == "the class b"
    choices = SentenceHead("choices")
    assert choices.constant_answer(np.array([[0.1, 0.9]] * 2), [0, 1], ()) == "choice 1"
    number = SentenceHead("regression").constant_answer(np.full(2, 4.25), [1, 2], ())
    assert number == "the number 4.25"
    assert SentenceHead("regression").constant_answer(np.full(2, math.nan), [1, 2], ())
