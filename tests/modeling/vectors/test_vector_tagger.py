"""The tagger on a frozen encoder's vectors: against Keras's LSTM, and trained by the engine."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from data.batching import Batching
from data.features import Features
from data.vectors.array_batches import array_batches
from data.vectors.store import stored_vectors
from modeling import checkpoints
from modeling.config import BertConfig
from modeling.losses import TaggingLosses
from modeling.training.engine.evaluation import Evaluator
from modeling.training.engine.setup import EngineSettings, make_train_step
from modeling.vectors.extraction import Extractor, extraction_fingerprint
from modeling.vectors.vector_models import BertVectors
from modeling.vectors.vector_tagger import LSTM_UNITS, VectorTagger

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    type_vocab_size=2,
)


def test_as_wide_as_the_paper_s():
    model = VectorTagger(CONFIG, width=8, num_labels=3)
    names = checkpoints.weights_by_name(model)
    assert LSTM_UNITS == 768 and names["output_weights"].shape == (3, 2 * 768)
    shapes = {n: tuple(w.shape) for n, w in names.items() if n.endswith("/kernel")}
    assert shapes == {
        f"bilstm/layer_{layer}/{direction}/kernel": (width, 4 * 768)
        for layer, width in ((0, 8), (1, 2 * 768))
        for direction in ("forward", "backward")
    }


def test_against_keras_lstm():
    rng = np.random.default_rng(0)
    model = VectorTagger(CONFIG, width=6, num_labels=3, units=5)
    model.build()
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    x = rng.normal(size=(2, 7, 6)).astype(np.float32)
    expected, weights = x, [w.numpy() for w in model.bilstm.weights]
    for layer in range(2):
        theirs = keras.layers.Bidirectional(keras.layers.LSTM(5, return_sequences=True))
        theirs.build(expected.shape)
        theirs.set_weights(weights[6 * layer : 6 * layer + 6])
        expected = theirs(expected)
    named = checkpoints.weights_by_name(model)
    expected = expected @ named["output_weights"].numpy().T + named["output_bias"].numpy()
    inputs = {"features": x, "input_mask": np.ones((2, 7), np.int32)}
    np.testing.assert_allclose(model(inputs)["logits"], expected, atol=1e-5)
    # Padding has no effect, and dropout is drawn by key only.
    padded = {
        "features": np.pad(x, [(0, 0), (0, 3), (0, 0)], constant_values=9),
        "input_mask": np.pad(inputs["input_mask"], [(0, 0), (0, 3)]),
    }
    np.testing.assert_allclose(model(padded)["logits"][:, :7], expected, atol=1e-5)
    key = tf.constant([1, 2, 3])
    one, other = (model(inputs, dropout_key=key)["logits"] for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert np.abs(one - expected).max() > 1e-2


def rows(seed: int, number: int = 60) -> Features:
    """Whether the piece before (its id; 0 at the beginning) is even: context decides."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 13, number)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(1, 20, splits[-1]).astype(np.int32)
    before = np.concatenate([[0], ids[:-1]])
    before[splits[:-1]] = 0
    labels = np.where(rng.random(len(ids)) < 0.8, before % 2, -1).astype(np.int32)
    return Features(
        ids=ids,
        splits=splits,
        first_lengths=lengths.astype(np.int32),
        row_splits=np.arange(number + 1),
        label_ids=np.zeros(number, np.int32),
        max_seq_length=16,
        pad_id=0,
        piece_labels=labels,
    )


@pytest.mark.slow
def test_learns_from_stored_vectors(tmp_path):
    keras.utils.set_random_seed(1)
    encoder = BertVectors(CONFIG, ["first"])
    encoder.build()
    before = encoder.get_weights()
    extractor = Extractor(encoder)
    shape = Batching(20, [8, 16])
    stored = {}
    # So many that they can't be learned by heart, whatever the initial weights are.
    examples = {"train": rows(1, 400), "dev": rows(2)}
    for name in examples:
        of = (
            str(tmp_path),
            name,
            examples[name],
            extraction_fingerprint(encoder),
            encoder.width,
            extractor,
        )
        stored[name] = stored_vectors(*of)
    direct = extractor(array_batches(examples["dev"], shape), examples["dev"].lengths)
    np.testing.assert_allclose(np.load(stored["dev"].path), direct[:, 0], atol=1e-6)

    model = VectorTagger(CONFIG, encoder.width, num_labels=2, units=12)
    model.build()
    step = make_train_step(model, TaggingLosses(), EngineSettings(1e-2, 120, 10, seed=1))
    iterator = iter(stored["train"].batches(examples["train"], shape, training=True, seed=1))
    evaluator = Evaluator(model, TaggingLosses())
    dev = stored["dev"].batches(examples["dev"], shape, training=False)
    untrained = evaluator(dev)["accuracy"]
    step.run(iterator, 120)
    results = evaluator(dev)
    assert untrained < 0.7 and results["accuracy"] > 0.95, (untrained, results)
    for one, other in zip(before, encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    checkpoints.save(model, tmp_path / "saved")
    again = VectorTagger(CONFIG, encoder.width, num_labels=2, units=12)
    assert not checkpoints.load(again, tmp_path / "saved", required=("",)).left_over
    assert Evaluator(again, TaggingLosses())(dev) == results
