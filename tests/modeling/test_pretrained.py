"""Checkpoints of any format opened in one line, and written back."""

import numpy as np
import pytest
import tensorflow as tf

import modeling
from data.tokenization import Tokenizer, build_inputs
from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import (
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertQuestionAnswering,
    BertTagger,
)
from modeling.training.sentences import SentenceHead

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "été", "Ete"]
SIZES = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
CONFIG = BertConfig(**SIZES, intermediate_size=12, max_position_embeddings=16, type_vocab_size=2)


@pytest.mark.parametrize(
    ("name", "kind", "head"),
    [
        ("TFBertForQuestionAnswering.h5", BertQuestionAnswering, "spans"),
        ("TFBertForTokenClassification.safetensors", BertTagger, "tags"),
        ("hf_checkpoint", BertPretrainer, "pretraining"),
        ("kh_classifier", BertClassifier, "classes"),
        ("mg_trainer", BertModel, None),
    ],
)
def test_the_class_of_each_head(golden, name, kind, head):
    model, tokenizer, config = modeling.from_pretrained(golden / "formats" / name)
    assert (type(model), config.head, tokenizer) == (kind, head, None)
    assert model.config == config


@pytest.fixture(params=["classes", "multi_label", "regression", "choices", "tags", "spans"])
def trained(request):
    """A model of each head that is fine-tuned, all of its weights drawn at random."""
    head = request.param
    labels = ["no", "so so", "yes"] if head in ("classes", "multi_label", "tags") else []
    config = CONFIG.with_head(head, labels)
    if head == "tags":
        model = BertTagger(config, 3)
    elif head == "spans":
        model = BertQuestionAnswering(config)
    else:
        model = SentenceHead(head, 3).make_model(config)
    if not model.built:
        model.build()
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if "float" in weight.dtype:
            weight.assign(rng.normal(size=weight.shape))
    return model


@pytest.mark.parametrize("format", ["tf1", "huggingface"])
def test_written_and_opened_again(tmp_path, trained, format):
    tokenizer = Tokenizer.from_vocab(VOCAB, do_lower_case=False)
    modeling.save_pretrained(tmp_path, trained, tokenizer, format)
    model, again, config = modeling.from_pretrained(tmp_path)
    assert type(model) is type(trained)
    assert config.head == trained.config.head
    assert trained.config.labels in (None, config.labels)
    assert (again.vocab, again.do_lower_case) == (VOCAB, False)
    inputs = build_inputs(again, ["good", "bad good"], max_seq_length=6)
    if config.head == "choices":
        inputs = {name: tf.expand_dims(value, 0) for name, value in inputs.items()}
    wanted, got = trained(inputs), model(inputs)
    # Numbers' unit is folded into the head, see `checkpoints.heads`.
    for name in set(wanted) - {"pooled_output", "target_scale"}:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_new_head_on_a_known_encoder(tmp_path):
    encoder = BertModel(CONFIG)
    encoder.build()
    modeling.save_pretrained(tmp_path, encoder, Tokenizer.from_vocab(VOCAB))
    with pytest.raises(ModelingError, match="needs num_labels"):
        modeling.from_pretrained(tmp_path, head="classes")
    model, _, config = modeling.from_pretrained(tmp_path, head="classes", num_labels=4)
    assert (type(model), model.num_labels, config.head) == (BertClassifier, 4, "classes")
    loaded = checkpoints.weights_by_name(model)
    for name, weight in checkpoints.weights_by_name(encoder).items():
        np.testing.assert_array_equal(loaded[name], weight, name)


@pytest.mark.parametrize("format", ["tf1", "huggingface", "keras_hub"])
def test_accents_apart_from_the_case(tmp_path, format):
    encoder = BertModel(CONFIG)
    for number, folding in enumerate([(True, False), (False, True), (True, True)]):
        tokenizer = Tokenizer.from_vocab(VOCAB, folding[0], strip_accents=folding[1])
        modeling.save_pretrained(tmp_path / str(number), encoder, tokenizer, format)
        again = modeling.from_pretrained(tmp_path / str(number)).tokenizer
        assert (again.do_lower_case, again.strip_accents) == folding
        with pytest.raises(ModelingError, match=r"strip_accents is (True|False), but the files"):
            modeling.from_pretrained(tmp_path / str(number), strip_accents=not folding[1])


def test_folding_that_nothing_tells(tmp_path):
    encoder = BertModel(CONFIG)
    modeling.save_pretrained(tmp_path, encoder, Tokenizer.from_vocab(VOCAB))
    (tmp_path / "tokenizer_config.json").unlink()
    for given, wanted in (({}, (True, True)), ({"strip_accents": False}, (True, False))):
        found = modeling.from_pretrained(tmp_path, **given).tokenizer
        assert (found.do_lower_case, found.strip_accents) == wanted
    found = modeling.from_pretrained(tmp_path, do_lower_case=False).tokenizer
    assert (found.do_lower_case, found.strip_accents) == (False, False)


def test_what_contradicts_itself_is_refused(tmp_path):
    encoder = BertModel(CONFIG)
    modeling.save_pretrained(tmp_path, encoder, Tokenizer.from_vocab(VOCAB, do_lower_case=False))
    with pytest.raises(ModelingError, match="do_lower_case is True, but the files beside"):
        modeling.from_pretrained(tmp_path, do_lower_case=True)
    with pytest.raises(ModelingError, match="may be one of"):
        modeling.from_pretrained(tmp_path, head="classifier")
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ModelingError, match="whether the model's texts are lower-cased"):
        modeling.from_pretrained(tmp_path)
