"""Vectors of a whole set: in order, each of its own row; what they depend on."""

import numpy as np
import pytest

from data.batching import Batching
from data.features import Features
from data.vectors.array_batches import array_batches
from modeling import checkpoints
from modeling.config import BertConfig
from modeling.vectors.extraction import Extractor, extraction_fingerprint
from modeling.vectors.vector_models import BertVectors
from tests import scripts
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 40,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
WEIGHTS = numpy_bert.random_weights(CONFIG, seed=3)


def make_model(weights=WEIGHTS, **settings) -> BertVectors:
    model = BertVectors(BertConfig(**CONFIG), **settings)
    for name, variable in checkpoints.weights_by_name(model).items():
        variable.assign(weights[name])
    return model


def rows(number: int) -> Features:
    rng = np.random.default_rng(4)
    lengths = rng.integers(2, 16, number)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    return Features(
        ids=rng.integers(0, 40, splits[-1]).astype(np.int32),
        splits=splits,
        first_lengths=np.maximum(lengths - 3, 2).astype(np.int32),
        row_splits=np.arange(number + 1),
        label_ids=np.zeros(number, np.int32),
        max_seq_length=16,
        pad_id=0,
    )


def alone(features: Features, row: int) -> list[np.ndarray]:
    """The oracle's layers of a single row, [T, H] each."""
    ids = features.ids[None, slice(*features.splits[row : row + 2])]
    segments = (np.arange(ids.shape[1]) >= features.first_lengths[row]).astype(int)[None]
    outputs = numpy_bert.forward(WEIGHTS, CONFIG, {"input_ids": ids, "segment_ids": segments})
    return [layer[0] for layer in outputs["encoder_outputs"]]


@pytest.mark.parametrize("buckets", [None, [4, 8, 12]])
def test_every_piece_in_order(buckets):
    features = rows(21)
    extractor = Extractor(make_model(layers=[-1, 0]))
    assert extractor.shape == (2, 8)
    for _ in range(2):
        got = extractor(array_batches(features, Batching(4, buckets)), features.lengths)
    assert got.shape == (len(features.ids), 2, 8)
    for row in range(21):
        first, last = alone(features, row)
        vectors = got[slice(*features.splits[row : row + 2])]
        np.testing.assert_allclose(vectors, np.stack([last, first], 1), atol=1e-5)


def test_every_example_in_order():
    features = rows(21)
    extractor = Extractor(make_model(pooling="max"))
    got = extractor(array_batches(features, Batching(4, [4, 8])), features.lengths)
    wanted = [alone(features, row)[-1].max(0) for row in range(21)]
    np.testing.assert_allclose(got[:, 0], wanted, atol=1e-5)


def test_no_examples():
    got = Extractor(make_model())([], np.zeros(0, np.int64))
    assert got.shape == (0, 1, 8)


def test_fingerprint():
    base = extraction_fingerprint(make_model())
    assert extraction_fingerprint(make_model()) == base
    names = ["bert/embeddings/word_embeddings", "bert/encoder/layer_1/output/LayerNorm/beta"]
    changed = [WEIGHTS | {name: WEIGHTS[name] + 1e-6} for name in names]
    others = {extraction_fingerprint(make_model(weights)) for weights in changed}
    settings = [{"layers": [0]}, {"layers": ["last"]}, {"pooling": "cls"}, {"normalize": True}]
    others |= {extraction_fingerprint(make_model(**one)) for one in settings}
    assert len(others - {base}) == 6
    # The pooler has no part in any vector.
    name = "bert/pooler/dense/kernel"
    assert extraction_fingerprint(make_model(WEIGHTS | {name: WEIGHTS[name] + 1})) == base


@pytest.mark.slow
def test_two_replicas():
    script = "import tests.modeling.vectors.two_replicas_extracting as script; script.main()"
    assert "the same" in scripts.succeed("-c", f"import sys; sys.path.insert(0, '.'); {script}")
