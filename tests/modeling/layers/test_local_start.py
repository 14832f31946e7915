"""Initial weights with which positions attend to their neighbours: scores against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.layers.local_start import SELF_SCORE, sinusoids, start_locally
from modeling.models import BertPretrainer
from tests.scripts import succeed


def made(heads=4, width=64, seed=7, start=True):
    tf.keras.utils.set_random_seed(1)
    config = BertConfig(
        vocab_size=50,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=32,
        max_position_embeddings=48,
    )
    model = BertPretrainer(config)
    model.build()
    if start:
        start_locally(model.encoder, seed)
    return model


def weights(model):
    return {name: w.value.numpy() for name, w in checkpoints.weights_by_name(model).items()}


@pytest.mark.parametrize(("heads", "width"), [(4, 64), (2, 128), (1, 32)])
def test_scores_of_like_and_of_other_vectors(heads, width):
    found = weights(made(heads, width))
    rows = np.random.default_rng(2).standard_normal((400, width))
    rows = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    size = width // heads
    for layer in range(2):
        start = f"bert/encoder/layer_{layer}/attention/self"
        q, k = (
            (rows @ found[f"{start}/{part}/kernel"]).reshape(-1, heads, size)
            for part in ("query", "key")
        )
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size)
        itself = np.einsum("hii->hi", scores)
        np.testing.assert_allclose(itself.mean(1), SELF_SCORE, rtol=0.1)
        assert abs(scores.mean()) < 0.1
        assert not np.array_equal(found[f"{start}/query/kernel"], found[f"{start}/key/kernel"])


@pytest.mark.parametrize("width", [64, 7])
def test_near_positions_are_alike(width):
    table = sinusoids(48, width)
    assert table.shape == (48, width)
    assert np.sqrt((table**2).mean()) == pytest.approx(1, abs=0.15)
    # From the definition, one by one.
    half = (width + 1) // 2
    for number, column in ((0, 0), (half - 1, half - 1)):
        rate = 96 ** (-number / half)
        wanted = [np.sqrt(2) * np.sin(place * rate) for place in range(48)]
        np.testing.assert_allclose(table[:, column], wanted, atol=1e-12)
        if half + number < width:
            wanted = [np.sqrt(2) * np.cos(place * rate) for place in range(48)]
            np.testing.assert_allclose(table[:, half + number], wanted, atol=1e-12)
    products = table @ table.T
    if width == 64:
        near = [np.diagonal(products, distance).mean() for distance in range(6)]
        assert near == sorted(near, reverse=True) and near[0] > 1.4 * near[5]


def first_attention(model, words):
    """Probabilities [T, T] of the first layer, mean over heads, in NumPy from the weights."""
    found, config = weights(model), model.encoder.config
    x = found["bert/embeddings/word_embeddings"][words]
    x = x + found["bert/embeddings/position_embeddings"][: len(words)]
    x = x + found["bert/embeddings/token_type_embeddings"][0]
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    start, heads = "bert/encoder/layer_0/attention/self", config.num_attention_heads
    q, k = (
        (x @ found[f"{start}/{part}/kernel"]).reshape(len(words), heads, -1)
        for part in ("query", "key")
    )
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return (shares / shares.sum(-1, keepdims=True)).mean(0)


def test_neighbours_get_more_attention_than_others():
    rng = np.random.default_rng(3)
    with_start, without = made(), made(start=False)
    local, drawn = np.zeros((48, 48)), np.zeros((48, 48))
    for _ in range(20):
        words = rng.integers(0, 50, 48)
        local += first_attention(with_start, words) / 20
        drawn += first_attention(without, words) / 20

    def share(table, distances):
        return np.mean([np.diagonal(table, d).mean() for d in distances])

    assert share(local, range(1, 4)) > 1.3 * share(local, range(20, 40))
    assert share(drawn, range(1, 4)) == pytest.approx(share(drawn, range(20, 40)), rel=0.05)


def test_what_changes_and_by_what():
    before, after = weights(made(start=False)), weights(made())
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    parts = [
        f"bert/encoder/layer_{layer}/attention/self/{part}/kernel"
        for layer in (0, 1)
        for part in ("query", "key")
    ]
    assert changed == {"bert/embeddings/position_embeddings", *parts}
    again, other = weights(made()), weights(made(seed=8))
    assert all(np.array_equal(after[name], again[name]) for name in after)
    assert not np.array_equal(after[parts[0]], other[parts[0]])
    # Heads and layers are drawn one by one.
    assert not np.allclose(after[parts[0]], after[parts[2]])


# A program of its own, as the devices are divided before TensorFlow starts.
REPLICAS = """
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from modeling import checkpoints
from tests.modeling.layers.test_local_start import made, weights
one, strategy = weights(made()), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    for name, weight in checkpoints.weights_by_name(made()).items():
        for value in strategy.experimental_local_results(weight.value):
            np.testing.assert_array_equal(value.numpy(), one[name], err_msg=name)
            print("equal")
"""


def test_in_every_replica():
    assert succeed("-c", REPLICAS).count("equal") == 2 * len(weights(made()))
