"""Kinds of sentence tasks: models, results, and predictions of batches of any shape."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.losses import ClassifierLosses, MultiLabelLosses, RegressionLosses
from modeling.models import (
    ABSENT,
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
)
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.sentences import SentenceHead, load_second_encoder

CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    type_vocab_size=2,
)


@pytest.mark.parametrize(
    ("kind", "number", "model_class", "losses"),
    [
        ("classes", 3, BertClassifier, ClassifierLosses),
        ("multi_label", 3, BertClassifier, MultiLabelLosses),
        ("regression", 1, BertClassifier, RegressionLosses),
        ("choices", 1, BertMultipleChoice, ClassifierLosses),
    ],
)
def test_models_and_losses(kind, number, model_class, losses):
    head = SentenceHead(kind, 3 if number == 3 else 1)
    model = head.make_model(CONFIG, row_pooling="max")
    assert type(model) is model_class and type(head.losses) is losses
    assert model.output_weights.shape == (number, 8)
    if kind != "choices":
        assert model.row_pooling == "max"
        assert head.make_model(CONFIG, bilstm=True).output_weights.shape == (number, 16)


def test_class_weights_are_for_training_only():
    head = SentenceHead("classes", 2, (1.0, 9.0))
    logits, labels = np.array([[0, 1], [3, 1.0]], np.float32), np.array([0, 1], np.int32)
    losses = np.log(np.exp(logits).sum(1)) - [0, 1]
    found = head.losses({"logits": logits}, {"label_ids": tf.constant(labels)})[0]["loss"].result()
    np.testing.assert_allclose(found, (losses * [1, 9]).sum() / 10, rtol=1e-6)
    results = head.evaluate(logits, labels, ("accuracy",))
    np.testing.assert_allclose(results["eval_loss"], losses.mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ranking",), "'ranking' isn't one of classes, multi_label, regression, choices"),
        (("regression", 1, (1.0,)), "need classes, but the task's labels are regression"),
        (("choices", 1, (1.0,)), "need classes, but the task's labels are choices"),
        (("classes", 3, (1.0, 2.0)), "2 class weights for 3 labels"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ModelingError, match=message):
        SentenceHead(*arguments)


def test_no_bilstm_over_choices():
    with pytest.raises(ModelingError, match="multiple choice"):
        SentenceHead("choices").make_model(CONFIG, bilstm=True)


def test_a_second_encoder_stands_beside_the_first(tmp_path):
    second = dataclasses.replace(CONFIG, hidden_size=12, attention_direction="right_to_left")
    pretrained = BertPretrainer(second)
    pretrained.build()
    rng = np.random.default_rng(0)
    for weight in pretrained.trainable_weights:
        weight.assign(rng.normal(scale=0.5, size=weight.shape))
    checkpoints.save(pretrained, tmp_path)
    model = SentenceHead("classes", 3).make_model(CONFIG, second=second)
    load_second_encoder(model, str(tmp_path))
    ids = rng.integers(1, 30, (2, 12)).astype(np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    outputs = model(batch)
    vectors = [outputs["pooled_output"], pretrained(batch)["pooled_output"]]
    expected = np.concatenate(vectors, 1) @ model.output_weights.numpy().T
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-6)
    # Weights have names of their own, in the second encoder too, and all are trained.
    names = checkpoints.weights_by_name(model)
    own = [name for name in names if name.startswith("second_bert/")]
    assert len(own) == sum(name.startswith("bert/") for name in names)
    step = make_train_step(model, ClassifierLosses(), EngineSettings(1e-2, 10, 0, seed=1))
    before = {name: weight.numpy() for name, weight in names.items()}
    labels = {"label_ids": np.array([0, 2], np.int32)}
    step.run(iter(tf.data.Dataset.from_tensors(batch | labels).repeat()), 1)
    still = [n for n, w in names.items() if (w.numpy() == before[n]).all()]
    assert not [name for name in still if not name.endswith("key/bias")]


@pytest.mark.parametrize(
    ("kind", "changes", "options", "message"),
    [
        ("choices", {}, {}, "not for multiple choice"),
        ("classes", {"vocab_size": 31}, {}, "vocab_size is 31, the first one's 30"),
        ("classes", {}, {"bilstm": True}, "on one encoder"),
    ],
)
def test_no_second_encoder(kind, changes, options, message):
    second = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(ModelingError, match=message):
        SentenceHead(kind, 1).make_model(CONFIG, second=second, **options)


def test_probabilities_and_results():
    logits = np.array([[2.0, 0, -1], [0, 1, 0], [1, 1.5, -2]], np.float32)
    exponentials = np.exp(logits.astype(np.float64))
    softmax = exponentials / exponentials.sum(1, keepdims=True)
    head = SentenceHead("classes", 3)
    np.testing.assert_allclose(head.probabilities(logits), softmax, rtol=1e-6)
    results = head.evaluate(logits, np.array([0, 1, 0]), ("accuracy", "macro_f1"))
    assert list(results) == ["eval_accuracy", "eval_macro_f1", "eval_loss"]
    np.testing.assert_allclose(results["eval_accuracy"], 2 / 3)
    np.testing.assert_allclose(results["eval_macro_f1"], 2 / 3)
    wanted = -np.log(softmax[[0, 1, 2], [0, 1, 0]]).mean()
    np.testing.assert_allclose(results["eval_loss"], wanted, rtol=1e-6)

    head = SentenceHead("multi_label", 3)
    sigmoid = exponentials / (1 + exponentials)
    np.testing.assert_allclose(head.probabilities(logits), sigmoid, rtol=1e-6)
    labels = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0]], np.float32)
    results = head.evaluate(logits, labels, ("accuracy", "micro_f1"))
    # A logit of 0 is a probability of one half, which counts as a label.
    np.testing.assert_allclose(results["eval_accuracy"], 2 / 3)
    np.testing.assert_allclose(results["eval_micro_f1"], 12 / 13)
    wanted = -np.log(np.where(labels == 1, sigmoid, 1 - sigmoid)).mean()
    np.testing.assert_allclose(results["eval_loss"], wanted, rtol=1e-6)

    head = SentenceHead("regression")
    assert head.probabilities(logits[:, :1]).tolist() == [2, 0, 1]
    labels = np.array([2.5, 0, 0], np.float32)
    results = head.evaluate(logits[:, :1], labels, ("pearson", "mse"))
    np.testing.assert_allclose(results["eval_pearson"], np.corrcoef([2, 0, 1], labels)[0, 1])
    np.testing.assert_allclose([results["eval_mse"], results["eval_loss"]], 1.25 / 3, rtol=1e-6)


def test_results_of_different_numbers_of_choices():
    logits = np.array([[1, 2, 0], [3, 0, ABSENT]], np.float32)
    head = SentenceHead("choices")
    results = head.evaluate(logits, np.array([1, 1]), ("accuracy",))
    assert results["eval_accuracy"] == 0.5
    losses = [np.log(np.exp([-1, 0, -2]).sum()), np.log(np.exp([3, 0]).sum())]
    np.testing.assert_allclose(results["eval_loss"], np.mean(losses), rtol=1e-6)
    assert head.probabilities(logits)[1, 2] == 0


@pytest.mark.parametrize("kind", ["classes", "multi_label", "regression", "choices"])
def test_nothing_to_evaluate_on(kind):
    with pytest.raises(ModelingError, match="no examples"):
        SentenceHead(kind, 2).evaluate(np.zeros((0, 1), np.float32), np.zeros(0), ("accuracy",))


def make_rows(counts, index, width=6, seed=0):
    """A batch of examples with so many rows; -1 in `index` only fills."""
    rng = np.random.default_rng(seed)
    shape = (len(counts), max(counts), width)
    there = np.arange(shape[1]) < np.array(counts)[:, None]
    return {
        "input_ids": tf.constant(rng.integers(1, 30, shape), tf.int32),
        "input_mask": tf.constant(np.broadcast_to(there[..., None], shape), tf.int32),
        "segment_ids": tf.zeros(shape, tf.int32),
        "label_ids": tf.zeros([len(counts)], tf.int32),
        "is_real_example": tf.constant(np.array(index) >= 0, tf.float32),
        "index": tf.constant(index, tf.int64),
    }


def as_dataset(rows: list[dict]) -> tf.data.Dataset:
    signature = {
        name: tf.TensorSpec([None] * len(tensor.shape), tensor.dtype)
        for name, tensor in rows[0].items()
    }
    return tf.data.Dataset.from_generator(lambda: rows, output_signature=signature)


def test_predictions_of_different_numbers_of_choices():
    model = SentenceHead("choices").make_model(CONFIG)
    model.output_weights.assign(model.output_weights * 50)
    rows = [
        make_rows([4, 3], [3, 0]),
        make_rows([2, 2, 0], [1, 4, -1], width=9, seed=1),
        make_rows([2], [2], seed=2),
    ]
    predictor = ReplicaPredictor(model)
    found = predictor(as_dataset(rows))
    assert found.shape == (5, 4) and found.dtype == np.float32
    wanted = np.full((5, 4), ABSENT, np.float32)
    for batch in rows:
        for place, example in enumerate(batch["index"].numpy()):
            if example >= 0:
                logits = model(batch)["logits"][place]
                wanted[example, : len(logits)] = logits
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert (found[2:3] > ABSENT).tolist() == [[True, True, False, False]]
    # Again, and of other data, with the same program.
    np.testing.assert_array_equal(predictor(as_dataset(rows)), found)
    assert predictor(as_dataset([make_rows([2], [0])])).shape == (1, 2)


def test_predictions_of_no_examples():
    predictor = ReplicaPredictor(SentenceHead("classes", 2).make_model(CONFIG))
    assert predictor(as_dataset([make_rows([1], [0])]).take(0)).shape[0] == 0
    assert predictor(as_dataset([make_rows([1, 1], [-1, -1])])).shape == (0, 2)


def test_steps_with_batches_of_different_sizes():
    """As a budget of tokens makes them, several in one call."""
    head = SentenceHead("choices")
    step = make_train_step(
        head.make_model(CONFIG), head.losses, EngineSettings(1e-3, 10, 1, seed=0)
    )
    rows = [make_rows([4, 3], [3, 0]), make_rows([2, 2, 2], [1, 4, -1], 9), make_rows([2], [2])]
    history = step.run(iter(as_dataset(rows)), 3)
    assert [weight for _, weight in history["accuracy"]] == [2, 2, 1]
    assert [ids.tolist() for ids in step.example_ids] == [[3, 0], [1, 4, -1], [2]]
