"""Checkpoints of any format opened in one line, and written back."""

import json

import numpy as np
import pytest
import tensorflow as tf

import modeling
from data.tokenization import Tokenizer, build_inputs
from modeling import checkpoints
from modeling.checkpoints.students.making import make_student
from modeling.checkpoints.vocabularies import check_casing
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
    with pytest.raises(ModelingError, match="encoder without a head, which has no labels"):
        modeling.from_pretrained(tmp_path, num_labels=4)
    model, _, config = modeling.from_pretrained(tmp_path, head="classes", num_labels=4)
    assert (type(model), model.num_labels, config.head) == (BertClassifier, 4, "classes")
    loaded = checkpoints.weights_by_name(model)
    for name, weight in checkpoints.weights_by_name(encoder).items():
        np.testing.assert_array_equal(loaded[name], weight, name)


def test_a_head_of_another_number_of_labels_is_a_new_one(tmp_path, caplog):
    trained = BertClassifier(CONFIG.with_head("classes", ["no", "so so", "yes"]), 3)
    trained.build()
    trained.output_bias.assign([5.0, 6.0, 7.0])
    modeling.save_pretrained(tmp_path, trained, Tokenizer.from_vocab(VOCAB))
    for head in ("classes", None):
        caplog.clear()
        model, _, config = modeling.from_pretrained(tmp_path, head=head, num_labels=5)
        assert "has 3 outputs, and num_labels is 5: a new one is made" in caplog.text
        assert (model.num_labels, config.head, config.labels) == (5, "classes", None)
        assert not model.output_bias.numpy().any()
    caplog.clear()
    model, _, config = modeling.from_pretrained(tmp_path, head="classes", num_labels=3)
    assert model.output_bias.numpy().tolist() == [5, 6, 7]
    assert "a new one is made" not in caplog.text
    assert list(config.labels) == ["no", "so so", "yes"]


def test_where_one_file_tells_of_accents_another_tells_of_case(tmp_path):
    encoder = BertModel(CONFIG)
    modeling.save_pretrained(tmp_path, encoder, Tokenizer.from_vocab(VOCAB), "huggingface")
    (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": false}')
    normalizer = {"type": "BertNormalizer", "lowercase": False, "strip_accents": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer}))
    found = modeling.from_pretrained(tmp_path).tokenizer
    assert (found.do_lower_case, found.strip_accents) == (False, False)


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


def test_a_head_that_was_never_trained_is_not_saved(tmp_path):
    """Of a next-sentence model the masked-LM head is random here."""
    pretrainer = BertPretrainer(CONFIG)
    pretrainer.build()
    weights = checkpoints.weights_by_name(pretrainer)
    tensors = {n: w.numpy() for n, w in weights.items() if not n.startswith("cls/predictions/")}
    checkpoints.write_checkpoint(tmp_path / "a", tensors, CONFIG.with_head("next_sentence"))
    model, _, config = modeling.from_pretrained(tmp_path / "a")
    for format in checkpoints.FORMATS[:2]:
        modeling.save_pretrained(tmp_path / format, model, format=format)
        found = modeling.from_pretrained(tmp_path / format).config
        assert found.head == config.head == "next_sentence"


def test_the_folder_of_a_release_tells_the_case(tmp_path):
    for name, lower in (
        ("cased_L-12_H-768_A-12", False),
        ("uncased_L-12_H-768_A-12", True),
        ("wwm_cased_L-24_H-1024_A-16", False),
    ):
        folder = tmp_path / name
        checkpoints.save(BertModel(CONFIG), folder)
        (folder / "vocab.txt").write_text("\n".join(VOCAB))
        assert modeling.from_pretrained(folder).tokenizer.do_lower_case == lower
        assert modeling.from_pretrained(folder / "bert_model.ckpt").tokenizer.do_lower_case == lower
        checkpoints.convert(folder, tmp_path / "of" / name, "huggingface")
        assert modeling.from_pretrained(tmp_path / "of" / name).tokenizer.do_lower_case == lower
        for path in (folder, folder / "bert_model.ckpt", f"{folder}/"):
            check_casing(lower, str(path))
            with pytest.raises(ModelingError, match=f"Give --do_lower_case={lower}"):
                check_casing(not lower, str(path))


def test_tokenizers_that_are_not_berts(tmp_path, caplog):
    modeling.save_pretrained(tmp_path, BertModel(CONFIG), Tokenizer.from_vocab(VOCAB))
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"tokenizer_class": "BertJapaneseTokenizer", "do_lower_case": false}')
    with pytest.raises(ModelingError, match="asks for BertJapaneseTokenizer, which cuts texts"):
        modeling.from_pretrained(tmp_path)
    path.write_text('{"tokenizer_class": "KoBertTokenizer"}')
    with pytest.raises(ModelingError, match="asks for KoBertTokenizer, which cuts texts otherwise"):
        modeling.from_pretrained(tmp_path)
    path.write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}, "normalizer": null}')
    with pytest.raises(
        ModelingError, match=r"tokenizer\.json cuts words by BPE; BERT's models cut"
    ):
        modeling.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    path.write_text('{"tokenize_chinese_chars": false, "strip_accents": false}')
    tokenizer = modeling.from_pretrained(tmp_path).tokenizer
    assert "says that tokenize_chinese_chars is false, which isn't done here" in caplog.text
    assert (tokenizer.do_lower_case, tokenizer.strip_accents) == (True, False)
    assert "added tokens" not in caplog.text
    for name, text in (
        ("added_tokens.json", '{"[PAD]": 0, "covid": 9}'),
        (
            "tokenizer.json",
            '{"added_tokens": [{"id": 0, "content": "[PAD]"}, {"content": "sars"}]}',
        ),
    ):
        modeling.save_pretrained(tmp_path / name, BertModel(CONFIG), Tokenizer.from_vocab(VOCAB))
        (tmp_path / name / name).write_text(text)
        modeling.from_pretrained(tmp_path / name)
    assert "has 1 added tokens that are not in its vocab.txt: covid." in caplog.text
    assert "has 1 added tokens that are not in its vocab.txt: sars." in caplog.text
    # Where its line in vocab.txt doesn't help, that isn't said.
    tokens = [*VOCAB[:-1], "<e1>"]
    modeling.save_pretrained(tmp_path / "e", BertModel(CONFIG), Tokenizer.from_vocab(tokens))
    (tmp_path / "e" / "added_tokens.json").write_text('{"<e1>": 8}')
    caplog.clear()
    modeling.from_pretrained(tmp_path / "e")
    assert "1 added tokens that hold blanks or punctuation: <e1>. Here texts are" in caplog.text
    assert "not in its vocab.txt" not in caplog.text
    # What texts are not cut at is kept whole, and BPE beside a folding is seen, too.
    tokens = [*VOCAB[:-2], "😀", "हिन्दी"]
    modeling.save_pretrained(tmp_path / "f", BertModel(CONFIG), Tokenizer.from_vocab(tokens))
    (tmp_path / "f" / "added_tokens.json").write_text('{"😀": 7, "हिन्दी": 8}')
    caplog.clear()
    modeling.from_pretrained(tmp_path / "f")
    assert "added tokens" not in caplog.text
    (tmp_path / "f" / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(ModelingError, match="cuts words by BPE"):
        modeling.from_pretrained(tmp_path / "f")


@pytest.mark.parametrize("format", ["huggingface", "keras_hub"])
def test_a_model_is_written_again_where_it_lies(tmp_path, format):
    """As after more training; of Hugging Face's with the tokenizer.json that came with it."""
    tokenizer = Tokenizer.from_vocab(VOCAB)
    modeling.save_pretrained(tmp_path, BertModel(CONFIG), tokenizer, format)
    if format == "huggingface":
        (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
    for _ in range(2):
        model, tokenizer, _ = modeling.from_pretrained(tmp_path)
        modeling.save_pretrained(tmp_path, model, tokenizer, format)


def test_the_first_layers_of_a_larger_one(tmp_path, caplog):
    modeling.save_pretrained(tmp_path, BertModel(CONFIG), Tokenizer.from_vocab(VOCAB))
    values = json.loads((tmp_path / "bert_config.json").read_text())
    layers = values["num_hidden_layers"]
    for number in (layers - 1, layers + 1):
        (tmp_path / "bert_config.json").write_text(
            json.dumps(values | {"num_hidden_layers": number})
        )
        if number < layers:
            assert modeling.from_pretrained(tmp_path).config.num_hidden_layers == number
            assert f"layer_{layers - 1}" in caplog.text
        else:
            with pytest.raises(ModelingError, match="num_hidden_layers is"):
                modeling.from_pretrained(tmp_path)


def test_a_configuration_of_other_sizes_is_refused_before_it_is_built(tmp_path, monkeypatch):
    modeling.save_pretrained(tmp_path, BertModel(CONFIG), Tokenizer.from_vocab(VOCAB))
    values = json.loads((tmp_path / "bert_config.json").read_text())
    values |= {"vocab_size": 10_000_000, "hidden_size": 98_304}
    (tmp_path / "bert_config.json").write_text(json.dumps(values))
    monkeypatch.setattr("modeling.pretrained._make_model", pytest.fail)
    with pytest.raises(ModelingError, match="hidden_size is 98304 but "):
        modeling.from_pretrained(tmp_path)


def test_what_does_not_belong_together(tmp_path, caplog):
    encoder = BertModel(CONFIG)
    modeling.save_pretrained(tmp_path / "a", encoder, Tokenizer.from_vocab(VOCAB))
    for name, tokens, message in (
        ("other", [*VOCAB[:5], *VOCAB[:4:-1]], "belongs to another vocabulary"),
        ("larger", [*VOCAB, "more"], "has 10 tokens, but the model's vocab_size is 9"),
    ):
        (tmp_path / name).write_text("\n".join(tokens) + "\n")
        with pytest.raises(ModelingError, match=message):
            modeling.from_pretrained(tmp_path / "a", vocab_file=tmp_path / name)
    with pytest.raises(ModelingError, match="belongs to another vocabulary"):
        checkpoints.convert(
            tmp_path / "a", tmp_path / "b", "huggingface", vocab_file=tmp_path / "other"
        )
    for wrong in (0, -1, "3", True):
        with pytest.raises(ModelingError, match=r"num_labels is .* whole number from 1 on"):
            modeling.from_pretrained(tmp_path / "a", "classes", wrong)
    # A head that the configuration tells of, and names for some of its outputs.
    checkpoints.save(encoder, tmp_path / "c")
    config = CONFIG.with_head("classes", ["no", "yes"])
    (tmp_path / "c/bert_config.json").write_text(config.to_json_string())
    assert type(modeling.from_pretrained(tmp_path / "c").model) is BertModel
    assert "holds no head of classes, which its configuration tells of" in caplog.text
    notes = checkpoints.convert(tmp_path / "c", tmp_path / "d", "huggingface").notes
    assert any("the weights have no such head" in note for note in notes)
    checkpoints.save(BertClassifier(CONFIG, 3), tmp_path / "e")
    (tmp_path / "e/bert_config.json").write_text(config.to_json_string())
    with pytest.raises(ModelingError, match=r"has 3 outputs, .* names 2 labels: no, yes"):
        modeling.from_pretrained(tmp_path / "e")


def test_the_vocabulary_that_is_saved_is_the_tokenizers(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n")
    tokenizer = Tokenizer(str(path))
    path.write_text("\n".join(VOCAB[::-1]) + "\n")
    modeling.save_pretrained(tmp_path / "a", BertModel(CONFIG), tokenizer)
    assert (tmp_path / "a/vocab.txt").read_text().split() == VOCAB


def test_nothing_of_another_model_lies_beside(tmp_path):
    folder = tmp_path / "used"
    modeling.save_pretrained(folder, BertModel(CONFIG), Tokenizer.from_vocab(VOCAB))
    (folder / "labels.json").write_text("{}")
    (folder / "temperature.json").write_text("{}")
    checkpoints.save(BertModel(CONFIG), tmp_path / "new")
    want = "holds labels.json, temperature.json, vocab.txt, tokenizer_config.json of another model"
    with pytest.raises(ModelingError, match=want):
        checkpoints.convert(tmp_path / "new", folder, "tf1")
    with pytest.raises(ModelingError, match="of another model"):
        modeling.save_pretrained(folder, BertModel(CONFIG))
    with pytest.raises(ModelingError, match="of another model"):
        make_student(tmp_path / "new", folder, [0])
    # Its own folder is no other's, and what is replaced doesn't stay.
    checkpoints.convert(folder, folder, "huggingface")
    (tmp_path / "new/labels.json").write_text('{"labels": []}')
    (tmp_path / "new/temperature.json").write_text("{}")
    (tmp_path / "new/vocab.txt").write_text("\n".join(VOCAB))
    (tmp_path / "new/tokenizer_config.json").write_text('{"do_lower_case": true}')
    checkpoints.convert(tmp_path / "new", folder, "tf1")
    assert (folder / "labels.json").read_text() == '{"labels": []}'
    with pytest.raises(ModelingError, match=r"holds temperature\.json of another model"):
        make_student(tmp_path / "new", folder, [0])  # a student's answers aren't calibrated


def test_two_encoders_and_heads_that_others_have_no_class_for(tmp_path):
    checkpoints.save(BertClassifier(CONFIG, 2, second=CONFIG), tmp_path / "two")
    with pytest.raises(ModelingError, match="it is a model of two encoders"):
        make_student(tmp_path / "two", tmp_path / "one", [0])
    with pytest.raises(ModelingError, match="it is a model of two encoders"):
        checkpoints.convert(tmp_path / "two", tmp_path / "one", "tf1", kept_ids=range(5))
    checkpoints.save(BertClassifier(CONFIG, 2, bilstm=True), tmp_path / "bilstm")
    with pytest.raises(ModelingError, match="its head reads vectors 16 wide, not the 8 of the"):
        checkpoints.convert(tmp_path / "bilstm", tmp_path / "one", "huggingface")
    assert not (tmp_path / "one").exists()
