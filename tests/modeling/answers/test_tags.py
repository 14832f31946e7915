"""The tagger: its model, its loss, and entities from tags in the graph."""

import random

import numpy as np
import pytest
import tensorflow as tf
from seqeval.metrics.sequence_labeling import get_entities

from modeling import checkpoints
from modeling.answers.tags import EntitiesFromTagLogits, TagsFromLogits
from modeling.checkpoints.names import to_huggingface
from modeling.config import BertConfig
from modeling.losses import TaggingLosses
from modeling.models import BertTagger
from tests.reference.numpy_bert import log_softmax

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=8,
    type_vocab_size=2,
)
IOB2 = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
IOBES = ["O", *(f"{letter}-{kind}" for kind in ("LOC", "PER") for letter in "BIES")]


def batch():
    ids = np.array([[2, 7, 8, 9, 3], [2, 10, 3, 0, 0]], np.int32)
    labels = np.array([[-1, 1, -1, 4, -1], [-1, 0, -1, -1, -1]], np.int32)
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.constant((ids > 0).astype(np.int32)),
        "segment_ids": tf.zeros([2, 5], tf.int32),
        "piece_labels": tf.constant(labels),
    }


@pytest.fixture(scope="module")
def model():
    model = BertTagger(CONFIG, len(IOB2))
    model.build()
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    return model


def test_logits_and_names(model):
    outputs = model(batch())
    vectors = outputs["sequence_output"].numpy().astype("float64")
    weights = model.output_weights.numpy().astype("float64")
    expected = vectors @ weights.T + model.output_bias.numpy()
    np.testing.assert_allclose(outputs["logits"].numpy(), expected, atol=1e-5)
    names = checkpoints.weights_by_name(model)
    assert names["output_weights"].shape == (5, 8) and names["output_bias"].shape == (5,)
    # As Hugging Face's token classification calls them.
    assert to_huggingface("output_weights").name == "classifier.weight"


def test_dropout_of_the_vectors(model):
    key = tf.constant([1, 2, 3])
    plain, dropped = model(batch())["logits"], model(batch(), dropout_key=key)["logits"]
    assert not np.allclose(plain, dropped)
    np.testing.assert_array_equal(dropped, model(batch(), dropout_key=key)["logits"])


def test_loss_counts_first_pieces_only(model):
    data = batch()
    logits = model(data)["logits"].numpy().astype("float64")
    probabilities = np.exp(log_softmax(logits))
    right = [probabilities[0, 1, 1], probabilities[0, 3, 4], probabilities[1, 1, 0]]
    losses, metrics = TaggingLosses()({"logits": tf.constant(logits, tf.float32)}, data)
    np.testing.assert_allclose(losses["loss"].result(), -np.mean(np.log(right)), rtol=1e-5)
    hits = [logits[0, 1].argmax() == 1, logits[0, 3].argmax() == 4, logits[1, 1].argmax() == 0]
    assert float(metrics["accuracy"].result()) == pytest.approx(np.mean(hits))
    assert float(TaggingLosses().weights(data)["loss"]) == 3

    tagged = TagsFromLogits(model)(data)["tagged"].numpy()
    np.testing.assert_array_equal(tagged[..., 0], logits.argmax(-1))
    np.testing.assert_allclose(tagged[..., 1], probabilities.max(-1), rtol=1e-5)
    wanted = np.zeros((2, 5))
    wanted[[0, 0, 1], [1, 3, 1]] = -np.log(right)
    np.testing.assert_allclose(tagged[..., 2], wanted, rtol=1e-4)
    del data["piece_labels"]
    assert not TagsFromLogits(model)(data)["tagged"].numpy()[..., 2].any()


@pytest.mark.parametrize("tags", [IOB2, IOBES])
def test_entities_are_those_of_seqeval(tags):
    draw = random.Random(len(tags))
    texts = [draw.choices(range(len(tags)), k=draw.randrange(12)) for _ in range(500)]
    reader = EntitiesFromTagLogits(tags)
    ragged = tf.ragged.constant(texts, tf.int32, ragged_rank=1)
    entities = tf.function(reader)(ragged)
    starts = ragged.row_starts().numpy()
    assert entities.types.nrows() == 500
    for row, text in enumerate(texts):
        found = [
            (reader.types[kind], first - starts[row], last - starts[row])
            for kind, first, last in zip(
                *(part[row].numpy() for part in entities),
                strict=True,
            )
        ]
        assert found == (get_entities([tags[number] for number in text]) if text else [])


def test_no_words():
    for texts in ([], [[]], [[], []]):
        entities = EntitiesFromTagLogits(IOB2)(tf.ragged.constant(texts, tf.int32, ragged_rank=1))
        assert entities.firsts.values.shape == (0,) and entities.types.nrows() == len(texts)
