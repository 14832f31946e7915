"""Layers as vectors against the NumPy model; choosing and pooling."""

import numpy as np
import pytest

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.vectors.vector_models import (
    VECTOR_LAYERS,
    BertVectors,
    chosen_layers,
    parse_layers,
    pool_vectors,
)
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}


def built(config, **settings) -> tuple[BertVectors, dict, dict]:
    """A model, its inputs, and what the oracle computes from them."""
    weights = numpy_bert.random_weights(config, seed=2)
    model = BertVectors(BertConfig(**config), **settings)
    for name, variable in checkpoints.weights_by_name(model).items():
        variable.assign(weights[name])
    inputs = numpy_bert.random_inputs(config, batch=4, length=9, predictions=1, seed=1)
    outputs = numpy_bert.forward(weights, config, inputs)
    return model, {k: inputs[k] for k in ("input_ids", "input_mask", "segment_ids")}, outputs


def oracle(outputs, choice) -> np.ndarray:
    below, layers = outputs["embedding_output"], outputs["encoder_outputs"]
    return {
        "first": lambda: below,
        "second_to_last": lambda: [below, *layers][-2],
        "last": lambda: layers[-1],
        "sum_last4": lambda: np.sum(layers[-4:], axis=0),
        "concat_last4": lambda: np.concatenate(layers[-4:], axis=-1),
        "sum_all": lambda: np.sum(layers, axis=0),
    }[choice]()


@pytest.mark.parametrize("num_layers", [1, 2, 5])
def test_choices_of_table_7(num_layers):
    config = CONFIG | {"num_hidden_layers": num_layers}
    different = set()
    for choice in VECTOR_LAYERS:
        model, inputs, outputs = built(config, layers=[choice])
        got = model(inputs)["vectors"].numpy()
        assert got.shape == (4, 9, 1, model.width)
        np.testing.assert_allclose(got[:, :, 0], oracle(outputs, choice), atol=1e-5)
        different.add(got.tobytes())
    assert len(different) == {1: 2, 2: 5, 5: 6}[num_layers]
    with pytest.raises(ModelingError, match="none of the layers"):
        chosen_layers({"encoder_outputs": []}, "middle")


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_pooling(pooling, normalize):
    model, inputs, outputs = built(CONFIG, layers=[-1, 0, -2], pooling=pooling, normalize=normalize)
    got = model(inputs)["vectors"].numpy()
    assert got.shape == (4, 3, 8) and len(set(inputs["input_mask"].sum(1))) > 1
    for row in range(4):
        size = inputs["input_mask"][row].sum()
        for number, layer in enumerate((-1, 0, -2)):
            vectors = outputs["encoder_outputs"][layer][row, :size]
            wanted = {"cls": vectors[0], "mean": vectors.mean(0), "max": vectors.max(0)}[pooling]
            if normalize:
                wanted = wanted / np.sqrt((wanted**2).sum())
            np.testing.assert_allclose(got[row, number], wanted, atol=1e-5)


def test_without_mask_and_of_nothing():
    model, inputs, outputs = built(CONFIG, pooling="mean")
    del inputs["input_mask"]
    row = inputs["input_ids"][:1]  # the oracle's first row is full
    whole = model({"input_ids": row, "segment_ids": inputs["segment_ids"][:1]})["vectors"]
    wanted = outputs["sequence_output"][0].mean(0)
    np.testing.assert_allclose(whole[0, 0], wanted, atol=1e-5)
    # A row that only fills a batch must not bring NaN into anything.
    for pooling in ("mean", "max", "cls"):
        vectors = np.ones((1, 3, 2), np.float32)
        assert np.isfinite(pool_vectors(vectors, np.zeros((1, 3), np.int32), pooling)).all()


def test_unknown_pooling():
    with pytest.raises(ModelingError, match="sum"):
        BertVectors(BertConfig(**CONFIG), pooling="sum")


def test_parsing_layers():
    assert parse_layers(["-1", " -2"], 2) == [-1, -2]
    assert parse_layers(["1", "0"], 2) == [1, 0]
    assert parse_layers(["concat_last4"], 2) == ["concat_last4"]
    original = ["-1", "-2", "-3", "-4"]
    assert parse_layers(original, 4) == [-1, -2, -3, -4]
    assert parse_layers(original, 2, only_existing=True) == [-1, -2]
    for wrong in (original, ["2"], ["-3"], ["last", "first"], ["-1", "x"], [], ["1.0"]):
        with pytest.raises(ModelingError, match="from -2 to 1"):
            parse_layers(wrong, 2)
