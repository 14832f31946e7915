"""Batches side by side: the same results in the same order, and threads divided among them."""

import os
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from modeling import side_by_side as module
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.side_by_side import batches_at_once, divide_threads, side_by_side
from modeling.training.engine.evaluation import Evaluator, ReplicaPredictor
from modeling.vectors.extraction import Extractor
from modeling.vectors.vector_models import BertVectors
from tests.scripts import succeed

VARIABLES = ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")
CONFIG = BertConfig.named("tiny", 50)


@pytest.mark.parametrize("at_once", [1, 2, 3], indirect=True)
def test_results_have_the_order_of_the_items(at_once):
    busy, most, taken = [], [], []
    together = threading.Barrier(at_once, timeout=60)

    def items():
        for number in range(6 * at_once):
            taken.append(number)
            yield number

    def compute(number):
        busy.append(number)
        together.wait()  # as many as are promised are computed at the same time
        most.append(len(busy))
        busy.remove(number)
        return number * number

    for place, result in enumerate(side_by_side(compute, items())):
        assert result == place * place
        # Memory doesn't grow with the number of items.
        assert len(taken) <= place + 1 + at_once
    assert place + 1 == 6 * at_once
    assert max(most) <= at_once


@pytest.mark.parametrize("at_once", [1, 3], indirect=True)
def test_errors_are_raised_and_nothing_goes_on(at_once):
    begun = []

    def compute(number):
        begun.append(number)
        if number == 4:
            raise ValueError("four")
        return number

    found = []
    with pytest.raises(ValueError, match="four"):
        for result in side_by_side(compute, range(100)):
            found.append(result)
    assert found == [0, 1, 2, 3]
    assert len(begun) <= 5 + at_once
    assert not [t for t in threading.enumerate() if t.name.startswith("ThreadPoolExecutor")]
    assert list(side_by_side(compute, [])) == []


@pytest.mark.parametrize("at_once", [2], indirect=True)
def test_threads_are_in_the_strategys_scope(at_once):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        scopes = list(side_by_side(lambda _: tf.distribute.get_strategy(), range(5)))
    assert all(scope is strategy for scope in scopes)


@pytest.mark.parametrize("at_once", [2], indirect=True)
def test_replicas_take_their_batches_in_one_order(at_once, monkeypatch):
    assert batches_at_once() == 2
    two = types.SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: two)
    assert batches_at_once() == 1


@pytest.mark.parametrize("at_once", [2], indirect=True)
def test_a_gpu_takes_one_batch_after_the_other(at_once, monkeypatch):
    """Whoever divided the processor's threads."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert batches_at_once() == 1


@pytest.mark.parametrize(
    ("cores", "given", "threads"),
    [(1, (), (1, 1)), (2, (), (2, 1)), (4, (), (4, 1)), (5, (), (0, 0)), (16, (), (0, 0))]
    + [(2, (name,), (0, 0)) for name in VARIABLES],
)
def test_threads_are_divided(monkeypatch, cores, given, threads):
    asked = [0, 0]
    for place, kind in enumerate(("inter", "intra")):
        setter = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(
            tf.config.threading, setter, lambda number, place=place: asked.insert(place, number)
        )
        getter = f"get_{kind}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, getter, lambda place=place: asked[place])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in given:
        monkeypatch.setenv(name, "2")
    assert divide_threads() == max(threads[0], 1)
    assert tuple(asked[:2]) == threads
    asked[:] = [0, 0]
    few = threads if cores <= module.MOST_CORES_OF_PARTS else (0, 0)
    assert divide_threads(module.MOST_CORES_OF_PARTS) == max(few[0], 1)
    assert tuple(asked[:2]) == few


def test_too_late_changes_nothing(monkeypatch):
    def refuse(_):
        raise RuntimeError("cannot be modified after initialization")

    monkeypatch.setattr(tf.config.threading, "set_inter_op_parallelism_threads", refuse)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert divide_threads() == 1


def pretraining_batches(count: int) -> tf.data.Dataset:
    """Batches of different lengths."""
    rng = np.random.default_rng(0)

    def batches():
        for number in range(count):
            ids = rng.integers(5, 50, (3, 4 + number)).astype(np.int32)
            yield {
                "input_ids": ids,
                "input_mask": np.ones_like(ids),
                "segment_ids": ids % 2,
                "masked_lm_positions": np.array([[1, 2]] * 3, np.int32),
                "masked_lm_ids": ids[:, 1:3],
                "masked_lm_weights": np.ones((3, 2), np.float32),
                "next_sentence_labels": ids[:, :1] % 2,
                "index": np.arange(3, dtype=np.int64) + 3 * number,
                "is_real_example": np.array([1, 1, number % 2], np.float32),
            }

    first = next(batches())
    signature = {
        name: tf.TensorSpec([3, *([None] * (value.ndim - 1))], value.dtype)
        for name, value in first.items()
    }
    rng = np.random.default_rng(0)
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


@pytest.mark.parametrize("at_once", [3], indirect=True)
def test_evaluation_prediction_and_extraction_are_the_same(at_once, monkeypatch):
    model = BertPretrainer(CONFIG)
    model.build()
    vectors = BertVectors(CONFIG, [-1])
    vectors.build()

    def everything():
        batches = [
            {name: tensor.numpy() for name, tensor in batch.items()}
            for batch in pretraining_batches(7)
        ]
        lengths = np.repeat([batch["input_ids"].shape[1] for batch in batches], 3)
        return [
            *Evaluator(model, PretrainingLosses())(pretraining_batches(7)).values(),
            ReplicaPredictor(model, "pooled_output")(pretraining_batches(7)),
            Extractor(vectors)(batches, lengths),
        ]

    found = everything()
    monkeypatch.setattr(module, "batches_at_once", lambda: 1)
    for one, other in zip(found, everything(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_command_says_so(monkeypatch, tmp_path):
    """And gives the same vectors as with TensorFlow's own threads, to 1e-6."""
    succeed("-m", "tests.readme.tiny_model", tmp_path)
    (tmp_path / "texts.txt").write_text("".join(f"{'so ' * n}it is\n" for n in range(90)))
    line = ("-m", "modeling.extract_features", f"--input_file={tmp_path}/texts.txt")
    line += ("--pooling=mean", "--output_format=numpy", "--batch_size=4", "--layers=-1")
    line += tuple(
        f"--{flag}={tmp_path}/{file}"
        for flag, file in (
            ("vocab_file", "vocab.txt"),
            ("bert_config_file", "bert_config.json"),
            ("init_checkpoint", "bert_model.ckpt"),
        )
    )
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    log = succeed(*line, f"--output_file={tmp_path}/divided.npy")
    assert ("side by side" in log) == (1 < len(os.sched_getaffinity(0)) <= 4)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    assert "side by side" not in succeed(*line, f"--output_file={tmp_path}/own.npy")
    divided, own = (np.load(tmp_path / f"{name}.npy") for name in ("divided", "own"))
    np.testing.assert_allclose(divided, own, atol=1e-6)
