"""One step: micro-batches against the whole batch, loss scaling, XLA, what it tells."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.execution import Execution
from modeling.losses import ClassifierLosses, PretrainingLosses
from modeling.models import BertClassifier
from modeling.training.engine.distribution import check_replica_batch_sizes
from modeling.training.engine.optimizers import BertAdam
from modeling.training.engine.precision import LossScale
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.training.engine.step import TrainStep
from tests.modeling.training.test_training import batches, records, tiny_model


def make_step(model, losses=PretrainingLosses(), rate=1e-2, **options):
    weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
    optimizer = BertAdam(weights, make_schedule("linear", rate, 40, 3))
    return TrainStep(model, losses, optimizer, seed=7, **options), weights


def run(steps=20, dropout_prob=0.0, **options):
    step, weights = make_step(tiny_model(dropout_prob=dropout_prob), **options)
    history = step.run(iter(batches()), steps)
    return history, {name: weight.numpy() for name, weight in weights.items()}


@pytest.fixture(scope="module")
def whole():
    return run()


def assert_equal_runs(one, other):
    for name in ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm", "tokens"):
        means = [[total / weight for total, weight in history[0][name]] for history in (one, other)]
        tolerance = 1e-5 if name == "gradient_norm" else 1e-6
        np.testing.assert_allclose(*means, rtol=tolerance, err_msg=name)
    for name, value in one[1].items():
        if "key/bias" not in name:  # its true gradient is zero; Adam amplifies the rounding
            np.testing.assert_allclose(value, other[1][name], atol=2e-5, err_msg=name)


@pytest.mark.parametrize("number", [2, 4, 8])
def test_micro_batches_make_up_the_batch(whole, number):
    """Their masked words are unequally many, so means of means would differ."""
    assert_equal_runs(whole, run(accumulation_steps=number))


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        ((2, 3), {}),  # the latter of 2, 3 and 3 examples
        ((2,), {"accumulation_steps": 2}),
        pytest.param((2,), {"execution": Execution(compile_chains=True)}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_parts_side_by_side_are_the_batch(whole, parts, options):
    """With the same dropout masks, which are drawn for the places of the whole batch."""
    alone = run(8, dropout_prob=0.3, parts=1, **options)
    for number in parts:
        assert_equal_runs(alone, run(8, dropout_prob=0.3, parts=number, **options))
    assert alone[0]["loss"] != whole[0]["loss"][:8]


def test_parts_without_a_next_sentence():
    """The pooler has no gradient in either of them."""

    def losses(parts):
        model = tiny_model(dropout_prob=0.3)
        step, _ = make_step(model, PretrainingLosses(next_sentence=False), parts=parts)
        return [total for total, _ in step.run(iter(batches()), 4)["loss"]]

    np.testing.assert_allclose(losses(2), losses(1), rtol=1e-6)


def test_parts_of_a_model_with_a_second_encoder():
    """Whose masks are others, and in parts those of its own whole."""
    config = tiny_model(dropout_prob=0.3).config
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {name: value for name, value in records(4).items() if name in names}
    batch["label_ids"] = np.array([0, 1, 1, 0], np.int32)

    def losses(parts):
        keras.utils.set_random_seed(1)
        model = BertClassifier(config, 2, second=config)
        model.build()
        step, _ = make_step(model, ClassifierLosses(), parts=parts)
        history = step.run(iter(tf.data.Dataset.from_tensors(batch).repeat()), 4)
        return [total for total, _ in history["loss"]]

    np.testing.assert_allclose(losses(2), losses(1), rtol=1e-5)


@pytest.mark.parametrize("at_once", [2], indirect=True)
def test_parts_are_as_many_as_threads_are_divided_among(at_once, monkeypatch):
    asked = []
    monkeypatch.setattr(tf.config.optimizer, "set_experimental_options", asked.append)
    for compiled, parts in ((True, 1), (False, 2)):
        assert not asked
        settings = EngineSettings(1e-3, 10, 0, seed=1, jit_compile=compiled)
        assert make_train_step(tiny_model(), PretrainingLosses(), settings).parts == parts
    assert asked == [{"arithmetic_optimization": False}]


@pytest.mark.parametrize(("size", "expected"), [(1, [1]), (2, [1, 1]), (5, [2, 3]), (None, [5])])
def test_parts_have_all_examples(size, expected):
    """A batch whose size isn't known when the graph is made is computed as a whole."""
    step, _ = make_step(tiny_model(), parts=2)
    batch = records(size or 5)
    seen = []
    original = step._examples_gradients

    def spy(part, *others):
        tf.py_function(lambda ids: seen.append(len(ids)), [part["input_ids"]], [])
        return original(part, *others)

    step._examples_gradients = spy
    step._part_gradients = tf.function(spy, autograph=False)
    signature = {n: tf.TensorSpec([size, *v.shape[1:]], v.dtype) for n, v in batch.items()}
    dataset = tf.data.Dataset.from_generator(lambda: iter([batch]), output_signature=signature)
    step.run(iter(dataset), 1)
    assert sorted(seen) == expected


@pytest.mark.slow
def test_micro_batches_draw_masks_of_their_own():
    one = run(3, dropout_prob=0.5, accumulation_steps=2)
    again = run(3, dropout_prob=0.5, accumulation_steps=2)
    assert one[0] == again[0]
    step, _ = make_step(tiny_model(dropout_prob=0.5), accumulation_steps=2)
    same = {
        name: np.tile(value[:4], (2,) + (1,) * (value.ndim - 1))
        for name, value in records(4).items()
    }
    seen = []
    original = step._micro_batch_gradients

    def spy(part, key, *others):
        tf.py_function(lambda k: seen.append(k.numpy().tolist()), [key], [])
        return original(part, key, *others)

    step._micro_batch_gradients = spy
    step.run(iter(tf.data.Dataset.from_tensors(same).repeat()), 2)
    assert sorted(seen) == [[7, 0, 0], [7, 0, 1], [7, 1, 0], [7, 1, 1]]


def test_batch_that_cannot_be_cut_is_refused():
    check_replica_batch_sizes(4, train_batch_size=8, eval_batch_size=3)
    check_replica_batch_sizes(1, train_batch_size=7, eval_batch_size=3)
    with pytest.raises(ModelingError, match=r"train_batch_size is 8, .* multiple of 3"):
        check_replica_batch_sizes(3, train_batch_size=8)


@pytest.mark.slow
def test_xla_gives_the_same(whole):
    assert_equal_runs(whole, run(jit_compile=True))
    assert_equal_runs(whole, run(jit_compile=True, accumulation_steps=4))


def test_examples_of_each_step():
    data = tf.data.Dataset.from_tensor_slices(records(64) | {"index": np.arange(64)})
    step, _ = make_step(tiny_model())
    iterator = iter(data.batch(8).repeat())
    step.run(iterator, 2)
    step.run(iterator, 3)
    np.testing.assert_array_equal(step.example_ids, np.arange(16, 40).reshape(3, 8))


def test_tokens_are_counted():
    padded = records(8)
    padded["input_mask"][:, 7:] = 0
    step, _ = make_step(tiny_model())
    history = step.run(iter(tf.data.Dataset.from_tensors(padded)), 1)
    assert history["tokens"] == [(56.0, 80.0)]


def test_loss_scale_follows_the_gradient(tmp_path):
    """A gradient that isn't finite changes nothing but the scale; good ones let it grow."""
    data = [records(8, seed) for seed in range(6)]
    data[2]["masked_lm_weights"][0, 0] = np.inf
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(data),
        output_signature=tf.nest.map_structure(
            tf.TensorSpec.from_tensor, {name: tf.constant(value) for name, value in data[0].items()}
        ),
    )
    loss_scale = LossScale(initial=1024.0, growth_steps=2)
    step, weights = make_step(tiny_model(dropout_prob=0.0), loss_scale=loss_scale)
    state = weights | step.optimizer.slots()
    iterator = iter(dataset)
    step.run(iterator, 2)
    before = {name: value.numpy() for name, value in state.items()}
    history = step.run(iterator, 1)
    assert history["skipped_updates"] == [(1.0, 1.0)]
    assert history["gradient_norm"] == [(0.0, 0.0)]
    assert all((before[name] == value.numpy()).all() for name, value in state.items())
    history = step.run(iterator, 3)
    scales = [total for total, _ in history["loss_scale"]]
    assert scales == [1024.0, 1024.0, 2048.0]
    assert not np.array_equal(
        before["bert/pooler/dense/kernel"], weights["bert/pooler/dense/kernel"]
    )


def test_loss_scale_leaves_the_update_alone(whole):
    assert_equal_runs(whole, run(loss_scale=LossScale(initial=4096.0)))


def test_float16_trains_as_float32():
    """The same losses to float16's precision."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        history, _ = run(loss_scale=LossScale())
    finally:
        keras.config.set_dtype_policy("float32")
    expected = run()[0]
    losses = [[total for total, _ in h["loss"]] for h in (history, expected)]
    np.testing.assert_allclose(*losses, rtol=5e-3)
    assert losses[0][-1] < losses[0][0]


def test_classifier_in_micro_batches():
    """Rows that only fill a batch up count in no micro-batch."""
    config = tiny_model(dropout_prob=0.0).config
    batch = {name: records(8)[name] for name in ("input_ids", "input_mask", "segment_ids")}
    batch["label_ids"] = np.array([0, 1, 1, 0, 1, 0, 0, 0], np.int32)
    batch["is_real_example"] = np.array([1, 1, 1, 1, 1, 0, 0, 0], np.float32)
    losses = []
    for number in (1, 2):
        keras.utils.set_random_seed(1)
        model = BertClassifier(config, num_labels=2, dropout_rate=0.0)
        model.build()
        step, _ = make_step(model, ClassifierLosses(), accumulation_steps=number)
        history = step.run(iter(tf.data.Dataset.from_tensors(batch).repeat()), 5)
        assert history["accuracy"][0][1] == 5
        losses.append([total for total, _ in history["loss"]])
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_rows_of_equal_ids_are_added_before_they_are_squared():
    """The word embedding's gradient and Adam's second moment against sums done in NumPy.

    A twin with a row of its own for each place of the batch gives the gradient place by place.
    """
    ids = np.array([[3, 3, 5, 3], [5, 3, 3, 7]], np.int32)
    sizes = {
        "num_hidden_layers": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    slots, tables = [], []
    for rows in (ids, np.arange(ids.size, dtype=np.int32).reshape(ids.shape)):
        keras.utils.set_random_seed(2)
        model = BertClassifier(
            BertConfig.named("tiny", 8, max_position_embeddings=4, **sizes), 2, dropout_rate=0.0
        )
        model.build()
        step, weights = make_step(model, ClassifierLosses())
        words = weights["bert/embeddings/word_embeddings"]
        if tables:
            words.assign(tables[0][ids.reshape(-1)])
        tables.append(words.numpy())
        batch = {"input_ids": rows, "label_ids": np.array([0, 1], np.int32)}
        norm = step.run(iter(tf.data.Dataset.from_tensors(batch)), 1)["gradient_norm"][0][0]
        slot = step.optimizer.slots()
        scale = min(1.0, 1.0 / norm)
        first = slot["bert/embeddings/word_embeddings/adam_m"].numpy() / 0.1 / scale
        second = slot["bert/embeddings/word_embeddings/adam_v"].numpy() / 0.001 / scale**2
        slots.append((first.astype(np.float64), second.astype(np.float64)))
    summed = np.zeros_like(tables[0], np.float64)
    np.add.at(summed, ids.reshape(-1), slots[1][0])
    largest = np.abs(summed).max()
    assert largest > 0
    np.testing.assert_allclose(slots[0][0], summed, atol=1e-5 * largest)
    np.testing.assert_allclose(slots[0][1], summed**2, atol=3e-5 * largest**2)
