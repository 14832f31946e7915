"""Conversion to a model of some of the vocabulary's tokens: the same answers for their texts."""

import json

import numpy as np
import pytest
import tensorflow as tf

import modeling
from modeling import checkpoints
from modeling.checkpoints import names, tf1
from modeling.errors import ModelingError
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "pad_token_id": 2,
    "eos_token_id": 5,
    "unk_token_id": None,
}
KEPT = [1, 2, 4, 7, 8, 11]


@pytest.fixture(params=["pretraining", "classifier", "squad"])
def release(request, tmp_path):
    """As the original wrote it, with a weight of an unknown head."""
    weights = numpy_bert.random_weights(CONFIG, heads=[request.param], labels=3)
    weights["other/head"] = np.arange(13, dtype=np.float32)
    tf1.write_bundle(tmp_path / "release" / "bert_model.ckpt", weights)
    (tmp_path / "release" / "bert_config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "release"


@pytest.mark.parametrize("format", ["tf1", "huggingface"])
def test_the_answers_are_the_same(release, tmp_path, format):
    if format == "huggingface":
        checkpoints.convert(release, tmp_path / "other", format)
        release = tmp_path / "other"
    result = checkpoints.convert(release, tmp_path / "small", "tf1", kept_ids=KEPT)
    has_bias = names.MASKED_LM_BIAS in result.converted
    assert result.bytes_before - result.bytes_after == 4 * 7 * (8 + has_bias)
    before, _, config = modeling.from_pretrained(release)
    now, _, small = modeling.from_pretrained(tmp_path / "small")
    assert (config.vocab_size, small.vocab_size, small.head) == (13, 6, config.head)
    assert small.extra == config.extra | {
        name: place
        for name, place in (("pad_token_id", 1), ("eos_token_id", None))
        if name in config.extra
    }
    rng = np.random.default_rng(0)
    ids = rng.integers(0, len(KEPT), [3, 6])
    more = {
        "input_mask": np.ones([3, 6], np.int32),
        "segment_ids": rng.integers(0, 2, [3, 6]),
        "masked_lm_positions": np.array([[0, 3]] * 3),
    }
    inputs = {"input_ids": ids} | more
    inputs_before = {"input_ids": np.array(KEPT)[ids]} | more
    outputs, got = (
        model({name: tf.constant(value, tf.int32) for name, value in of.items()})
        for model, of in ((before, inputs_before), (now, inputs))
    )
    assert outputs.keys() == got.keys()
    if "bert/pooler/dense/bias" not in result.converted:  # so it is random in both
        del outputs["pooled_output"]
    for name, value in outputs.items():
        wanted = np.asarray(value)
        if name == "masked_lm_logits":
            wanted = wanted[..., KEPT]
        np.testing.assert_allclose(got[name], wanted, rtol=1e-6, atol=1e-6, err_msg=name)
    assert np.array_equal(got["sequence_output"], outputs["sequence_output"])


def test_nothing_else_changes(release, tmp_path):
    checkpoints.convert(release, tmp_path / "small", "tf1", kept_ids=KEPT)
    before, now = (
        tf1.read_bundle(folder / "bert_model.ckpt") for folder in (release, tmp_path / "small")
    )
    assert before.keys() == now.keys()
    for name, array in before.items():
        wanted = array[KEPT] if name in (names.WORD_EMBEDDINGS, names.MASKED_LM_BIAS) else array
        assert np.array_equal(now[name], wanted), name


def test_ids_that_the_weights_lack(release, tmp_path):
    assert checkpoints.spare_rows(release, 13) == 0
    assert checkpoints.spare_rows(release, 10) == 3
    with pytest.raises(ModelingError, match=r"word embeddings for 13 tokens, .* vocabulary has 14"):
        checkpoints.spare_rows(release, 14)
    with pytest.raises(ModelingError, match=r"has 13 rows, and token 13 is to be kept"):
        checkpoints.convert(release, tmp_path / "small", "tf1", kept_ids=[0, 13])
    assert not (tmp_path / "small").exists()


def test_rows_of_new_tokens_are_means(release, tmp_path):
    """Everything else stays as it is, bit for bit."""
    rows = {1: [5, 6, 7], 3: [8]}
    checkpoints.convert(release, tmp_path / "extended", "tf1", mean_rows=rows)
    before, after = (
        tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
        for folder in (release, tmp_path / "extended")
    )
    for name in before.get_variable_to_shape_map():
        old, new = before.get_tensor(name), after.get_tensor(name)
        wanted = old.copy()
        if name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
            for row, pieces in rows.items():
                wanted[row] = old[pieces].astype(np.float64).mean(0)
                assert (new[row] != old[row]).any()
        np.testing.assert_array_equal(new, wanted.astype(np.float32), name)
