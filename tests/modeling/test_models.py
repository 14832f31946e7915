"""What models promise beyond the golden numbers: names, dropout, gradients, precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.losses import PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer


def _config(**changes):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
    return BertConfig(**(sizes | changes))


def pretraining_batch():
    rng = np.random.default_rng(0)
    return {
        "input_ids": tf.constant(rng.integers(0, 40, (3, 12)), tf.int32),
        "input_mask": tf.constant(np.arange(12) < [[12], [7], [9]], tf.int32),
        "segment_ids": tf.constant(np.arange(12) > [[5], [3], [4]], tf.int32),
        "masked_lm_positions": tf.constant([[1, 3], [2, 0], [4, 5]], tf.int32),
        "masked_lm_ids": tf.constant([[5, 6], [7, 0], [8, 9]], tf.int32),
        "masked_lm_weights": tf.constant([[1, 1], [1, 0], [1, 1]], tf.float32),
        "next_sentence_labels": tf.constant([[0], [1], [0]], tf.int32),
    }


@pytest.fixture
def batch():
    return pretraining_batch()


def test_outputs_by_name_and_shape(batch):
    outputs = BertPretrainer(_config())(batch)
    assert outputs["embedding_output"].shape == (3, 12, 16)
    assert [o.shape for o in outputs["encoder_outputs"]] == [(3, 12, 16)] * 2
    assert outputs["sequence_output"].shape == (3, 12, 16)
    assert outputs["pooled_output"].shape == (3, 16)
    assert outputs["masked_lm_logits"].shape == (3, 2, 40)
    assert outputs["next_sentence_logits"].shape == (3, 2)


def test_masked_lm_is_tied_to_the_word_embeddings(batch):
    model = BertPretrainer(_config())
    before = model(batch)["masked_lm_logits"]
    words = model.encoder.embeddings.word_embeddings
    # Token 39 occurs nowhere in the batch, so only its own logit can change.
    assert 39 not in batch["input_ids"].numpy()
    words.assign(words.value * tf.where(tf.range(40) == 39, 2.0, 1.0)[:, None])
    changed = np.abs(model(batch)["masked_lm_logits"] - before).max((0, 1)) > 1e-6
    assert changed.tolist() == [False] * 39 + [True]


def test_padding_does_not_reach_real_tokens(batch):
    model = BertPretrainer(_config())
    other = dict(batch, input_ids=tf.where(batch["input_mask"] == 1, batch["input_ids"], 11))
    real = batch["input_mask"].numpy() == 1
    np.testing.assert_allclose(
        model(batch)["sequence_output"].numpy()[real],
        model(other)["sequence_output"].numpy()[real],
        atol=1e-6,
    )


def test_segment_id_out_of_range_is_a_zero_vector(batch):
    model = BertPretrainer(_config(type_vocab_size=2))
    table = model.encoder.embeddings
    model.build()
    seven = model(dict(batch, segment_ids=tf.fill([3, 12], 7)))["embedding_output"]
    table.token_type_embeddings.assign(tf.zeros([2, 16]))
    zero = model(dict(batch, segment_ids=tf.zeros([3, 12], tf.int32)))["embedding_output"]
    np.testing.assert_allclose(seven, zero, atol=1e-6)


def test_too_long_a_sequence_is_refused(batch):
    with pytest.raises(ModelingError, match="max_position_embeddings is 24"):
        BertPretrainer(_config())({"input_ids": tf.zeros([1, 25], tf.int32)})


def test_dropout_is_drawn_with_a_key_alone(batch):
    model = BertClassifier(_config(), num_labels=3)
    still = model(batch)["logits"]
    np.testing.assert_array_equal(still, model(batch)["logits"])
    # Keras's fit asks in another way, and mustn't train without dropout unawares.
    with pytest.raises(ModelingError, match="BertClassifier was called with training=True"):
        model(batch, training=True)
    model.compile(keras.optimizers.SGD(0.0), loss={"logits": keras.losses.MeanSquaredError()})
    with pytest.raises(ModelingError, match="or by Keras's fit"):
        model.fit(batch, {"logits": tf.zeros([3, 3])}, verbose=0)

    class WithAKey(BertClassifier):
        def call(self, inputs):
            return super().call(inputs, dropout_key=tf.constant([1, 2, 3]))

    own = WithAKey(_config(), num_labels=3)
    own.compile(keras.optimizers.SGD(0.0), loss={"logits": keras.losses.MeanSquaredError()})
    own.fit(batch, {"logits": tf.zeros([3, 3])}, verbose=0)
    first, second = (
        model(batch, dropout_key=tf.constant([1, step, 0]))["logits"] for step in range(2)
    )
    assert np.abs(first - second).max() > 1e-4


def test_names_of_other_libraries_are_not_passed_over(batch):
    model = BertClassifier(_config(), num_labels=3)
    others = {"input_ids": batch["input_ids"], "attention_mask": batch["input_mask"]}
    with pytest.raises(ModelingError, match="attention_mask is input_mask here"):
        model(others)
    with pytest.raises(ModelingError, match="input_word_ids is input_ids here"):
        model({"input_word_ids": batch["input_ids"]})


def test_all_weights_zero_gives_loss_zero(batch):
    batch["masked_lm_weights"] = tf.zeros([3, 2])
    losses, _ = PretrainingLosses()(BertPretrainer(_config())(batch), batch)
    assert float(losses["masked_lm_loss"].result()) == 0


def test_rows_that_only_fill_the_batch_do_not_count(batch):
    model = BertPretrainer(_config())
    one = {name: tensor[:1] for name, tensor in batch.items()}
    padded = dict(batch, is_real_example=tf.constant([1.0, 0, 0]))
    padded["masked_lm_weights"] = tf.constant([[1.0, 1], [0, 0], [0, 0]])
    for means, expected in zip(
        PretrainingLosses()(model(padded), padded),
        PretrainingLosses()(model(one), one),
        strict=True,
    ):
        for name, mean in means.items():
            np.testing.assert_allclose(mean.result(), expected[name].result(), rtol=1e-5)


def test_mixed_precision_policy_keeps_float32_weights_and_logits(batch):
    full = BertPretrainer(_config())
    half = BertPretrainer(_config(), dtype="mixed_bfloat16")
    expected = full(batch)
    half.build()
    for mine, theirs in zip(half.weights, full.weights, strict=True):
        assert mine.dtype == "float32"
        mine.assign(theirs)
    outputs = half(batch)
    assert outputs["sequence_output"].dtype == tf.bfloat16
    assert outputs["masked_lm_logits"].dtype == tf.float32
    difference = outputs["masked_lm_logits"] - expected["masked_lm_logits"]
    assert 0 < np.abs(difference).max() < 0.05


def test_whole_forward_compiles_with_xla(batch):
    model = BertPretrainer(_config())
    compiled = tf.function(lambda b: model(b)["masked_lm_logits"], jit_compile=True)
    np.testing.assert_allclose(compiled(batch), model(batch)["masked_lm_logits"], atol=2e-5)
