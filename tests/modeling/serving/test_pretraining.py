"""Exports of pre-trained models: words for [MASK], likelihoods, next sentences."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from data.tokenization import Tokenizer, build_inputs
from modeling.config import LEFT_TO_RIGHT, RIGHT_TO_LEFT, BertConfig
from modeling.models import BertPretrainer
from modeling.serving.export import Export
from modeling.serving.pretraining import export_pretrainer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b", "the", "dog"]
LENGTH, K = 48, 3
CONFIG = BertConfig(
    len(VOCAB),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=LENGTH,
)
TEXTS = ["the [MASK] a", "no mask", "", "[MASK] b [MASK] c [MASK]", "a b " * 20 + "[MASK]", "a"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB, never_split=["[MASK]"])


def make(config=CONFIG, next_sentence=True) -> BertPretrainer:
    model = BertPretrainer(config, next_sentence=next_sentence)
    model.build()
    rng = np.random.default_rng(7)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.4, variable.shape))
    return model


def exported(model, tokenizer, folder):
    preprocess = functools.partial(build_inputs, tokenizer, max_seq_length=LENGTH, pad_to="longest")
    export = Export(str(folder), {}, None, LENGTH)
    return tf.saved_model.load(export_pretrainer(model, export, preprocess, tokenizer, K))


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(scope="module")
def loaded(model, tokenizer, tmp_path_factory):
    return exported(model, tokenizer, tmp_path_factory.mktemp("export"))


def ask(loaded, signature, **inputs):
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    return {k: v.numpy() for k, v in loaded.signatures[signature](**inputs).items()}


def ids_of(tokenizer, text) -> list[int]:
    return [tokenizer.cls_id, *tokenizer.tokenize(text).numpy().tolist(), tokenizer.sep_id]


def log_probabilities(model, ids, position) -> np.ndarray:
    """Of one row alone, in float64: [V]."""
    row = np.array([ids], np.int32)
    logits = model({"input_ids": row, "masked_lm_positions": np.array([[position]], np.int32)})
    logits = logits["masked_lm_logits"].numpy()[0, 0].astype(np.float64)
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


@pytest.mark.slow
def test_words_for_masks(model, loaded, tokenizer):
    got = ask(loaded, "serving_default", text=TEXTS)
    assert got["words"].shape == got["scores"].shape == (len(TEXTS), 3, K)
    for row, text in enumerate(TEXTS):
        ids = ids_of(tokenizer, text)
        masks = [place for place, number in enumerate(ids) if number == tokenizer.mask_id]
        assert len(masks) == text.count("[MASK]")
        for place in range(3):
            if place >= len(masks):
                assert (
                    set(got["words"][row, place]) == {b""} and not got["scores"][row, place].any()
                )
                continue
            wanted = log_probabilities(model, ids, masks[place])
            best = np.argsort(-wanted)[:K]
            assert [w.decode() for w in got["words"][row, place]] == [VOCAB[b] for b in best]
            np.testing.assert_allclose(got["scores"][row, place], np.exp(wanted[best]), rtol=1e-4)
    nothing = ask(loaded, "serving_default", text=["a", ""])
    assert nothing["words"].shape == (2, 0, K)
    shouted = ask(loaded, "serving_default", text=["the [mask] a"])
    assert shouted["words"].shape == (1, 0, K)


def test_likelihoods(model, loaded, tokenizer):
    texts = ["the dog", "", "a", "a b c d e f g h " * 5]
    got = ask(loaded, "log_likelihood", text=texts)
    for row, text in enumerate(texts):
        ids = ids_of(tokenizer, text)
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
            total += log_probabilities(model, masked, place)[ids[place]]
        assert got["num_pieces"][row] == len(ids) - 2
        np.testing.assert_allclose(got["log_likelihood"][row], total, rtol=1e-4, atol=1e-6)
        perplexity = np.exp(-total / max(len(ids) - 2, 1))
        np.testing.assert_allclose(got["perplexity"][row], perplexity, rtol=1e-4)
    assert got["num_pieces"].tolist() == [2, 0, 1, 40]


@pytest.mark.parametrize("places", [[[9], [3]], [[-1], [3]], [[4], [3]], [[2, 6], [1, 1]]])
def test_places_of_other_rows_are_refused(loaded, places):
    ids = [[3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 0, 0]]
    batch = {"input_ids": ids, "input_mask": [[int(i > 0) for i in row] for row in ids]}
    batch |= {"segment_ids": [[0] * 6] * 2}
    fine = ask(loaded, "tokenized", **batch, masked_lm_positions=[[5], [3]])
    assert fine["words"].shape == (2, 1, K)
    with pytest.raises(tf.errors.InvalidArgumentError, match="have to be of real pieces"):
        ask(loaded, "tokenized", **batch, masked_lm_positions=places[::-1])


def test_next_sentences(model, loaded, tokenizer):
    first, second = ["a b", "the dog", ""], ["c", "the dog " * 40, "a"]
    got = ask(loaded, "next_sentence", text_a=first, text_b=second)["is_next"]
    batch = build_inputs(tokenizer, first, second, max_seq_length=LENGTH)
    wanted = tf.nn.softmax(model(batch)["next_sentence_logits"])[:, 0].numpy()
    np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("direction", [LEFT_TO_RIGHT, RIGHT_TO_LEFT])
def test_one_direction(tokenizer, tmp_path, direction):
    model = make(dataclasses.replace(CONFIG, attention_direction=direction), False)
    from_left = direction == LEFT_TO_RIGHT
    loaded = exported(model, tokenizer, tmp_path)
    assert sorted(loaded.signatures) == [
        *("examples", "log_likelihood", "serving_default", "tokenized")
    ]
    texts = ["the dog", "", "a b c d e f g h " * 3, "a"]
    long = "c the d " * 15 + "a b c d e f g h " * 2  # its end is what goes on
    got = ask(loaded, "serving_default", text=[*texts, long])
    scores = ask(loaded, "log_likelihood", text=texts)
    assert got["words"].shape == (len(texts) + 1, K)
    ids = ids_of(tokenizer, long)
    if from_left:
        wanted = log_probabilities(model, [ids[0], *ids[1 - LENGTH : -1]], LENGTH - 2)
    else:
        wanted = log_probabilities(model, [*ids[: LENGTH - 1], ids[-1]], 1)
    np.testing.assert_allclose(got["scores"][-1], np.exp(np.sort(wanted)[: -K - 1 : -1]), rtol=1e-4)
    for row, text in enumerate(texts):
        ids = ids_of(tokenizer, text)[:-1]
        if from_left:
            wanted = log_probabilities(model, ids, len(ids) - 1)
        else:
            ids = ids_of(tokenizer, text)
            wanted = log_probabilities(model, ids, 1)
        best = np.argsort(-wanted)[:K]
        assert [w.decode() for w in got["words"][row]] == [VOCAB[b] for b in best]
        np.testing.assert_allclose(got["scores"][row], np.exp(wanted[best]), rtol=1e-4)
        if from_left:
            total = sum(
                log_probabilities(model, ids[:place], place - 1)[ids[place]]
                for place in range(1, len(ids))
            )
        else:
            # What comes before a piece is hidden, whatever stands there.
            total = 0.0
            for place in range(1, len(ids) - 1):
                behind = [0] * (place + 1) + ids[place + 1 :]
                total += log_probabilities(model, behind, place + 1)[ids[place]]
        np.testing.assert_allclose(scores["log_likelihood"][row], total, rtol=1e-4, atol=1e-6)


def test_rows_behind_the_vocabulary_are_no_words(tokenizer, tmp_path):
    """A table may be filled up to a multiple of 64; ids of that stand for no token."""
    config = dataclasses.replace(CONFIG, vocab_size=CONFIG.vocab_size + 20)
    model = make(config)
    bias = next(w for w in model.weights if w.path.endswith("predictions/output_bias"))
    bias.assign(np.r_[np.zeros(CONFIG.vocab_size), np.full(20, 10.0)])
    got = ask(exported(model, tokenizer, tmp_path), "serving_default", text=["the [MASK] a"])
    assert {word.decode() for word in got["words"].ravel()} <= set(VOCAB)
    assert got["scores"].sum() < 0.1
