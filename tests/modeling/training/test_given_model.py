"""The model that flags mean: from the flags, or from the folder of its weights."""

import pytest
from absl import flags

from modeling import checkpoints
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertModel
from modeling.training.given_model import known_text_folding, open_given_model

CONFIG = BertConfig(
    vocab_size=5,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=8,
)


@pytest.fixture
def model(tmp_path):
    """A folder with a cased model and all that belongs to it."""
    vocab = tmp_path / "words.txt"
    vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    checkpoints.save(BertModel(CONFIG), tmp_path / "model", vocab, folding=TextFolding(False))
    return tmp_path / "model"


def given(tmp_path, **flag_values):
    """Flag values as a command line gives them."""
    values = flags.FlagValues()
    names = "bert_config_file", "init_checkpoint", "vocab_file", "output_dir", "input_file"
    for name in (*names, "corpus_file"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    defaults = {"do_lower_case": True, "strip_accents": None, "overwrite_output_dir": False}
    defaults["do_export"] = False
    for name, default in defaults.items():
        flags.DEFINE_bool(name, default, "", flag_values=values)
    told = {"output_dir": tmp_path / "out"} | flag_values
    values(["script", *(f"--{name}={value}" for name, value in told.items())])
    return values


def test_the_folder_tells_all(tmp_path, model):
    values = given(tmp_path, init_checkpoint=model)
    assert open_given_model(values) == CONFIG
    assert (values.vocab_file, values.do_lower_case) == (str(model / "vocab.txt"), False)
    # So does an output folder that has been trained in.
    values = given(tmp_path, output_dir=model)
    assert open_given_model(values) == CONFIG
    assert (values.vocab_file, values.do_lower_case) == (str(model / "vocab.txt"), False)


def test_accents_apart_from_the_case(tmp_path, model):
    (model / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    for name in ("init_checkpoint", "output_dir"):
        values = given(tmp_path, **{name: model})
        open_given_model(values)
        assert (values.do_lower_case, values.strip_accents) == (True, False)
    with pytest.raises(ModelingError, match="--strip_accents is True, but the model's own files"):
        open_given_model(given(tmp_path, init_checkpoint=model, strip_accents="true"))
    open_given_model(given(tmp_path, init_checkpoint=model, strip_accents="false"))


def test_flags_count_before_it(tmp_path, model):
    config = tmp_path / "config.json"
    other = BertConfig(**{**CONFIG.to_dict(), "hidden_dropout_prob": 0.3})
    config.write_text(other.to_json_string())
    values = given(tmp_path, init_checkpoint=model, bert_config_file=config)
    assert open_given_model(values) == other
    values = given(tmp_path, init_checkpoint=model, vocab_file=tmp_path / "words.txt")
    open_given_model(values)
    assert values.vocab_file == str(tmp_path / "words.txt")


def test_sizes_by_name_are_for_the_vocabulary_that_is_known(tmp_path, model):
    def size(**told):
        config = open_given_model(given(tmp_path, **told), learns_vocabulary=True)
        assert (config.num_hidden_layers, config.hidden_size) == (4, 256)
        return config.vocab_size

    words = tmp_path / "words.txt"
    assert size(bert_config_file="uncased_L-4_H-256_A-4") == 30522
    assert size(bert_config_file="mini", vocab_file=words) == 5
    assert size(bert_config_file="mini", output_dir=model) == 30522  # learned there, found there
    told = {"bert_config_file": "mini", "output_dir": model, "do_lower_case": "false"}
    assert open_given_model(given(tmp_path, **told)).vocab_size == 5
    checkpoints.save(BertModel(BertConfig.named("mini", 8)), tmp_path / "mini", words)
    assert size(bert_config_file="L-4_H-256", init_checkpoint=tmp_path / "mini") == 8
    with pytest.raises(ModelingError, match=r"=L-4_H-250 does not exist\. .* sizes: tiny, mini"):
        size(bert_config_file="L-4_H-250")
    with pytest.raises(ModelingError, match=r"missing: the JSON file .* or a name of sizes: tiny"):
        size()


def test_pretraining_folds_text_as_the_release_it_begins_with(tmp_path, model):
    """By the name of its folder where nothing else tells; the original's command has no flag."""
    cased = model.rename(tmp_path / "cased_L-12_H-768_A-12")
    (cased / "tokenizer_config.json").unlink()
    for name, path in (("corpus_file", "a.txt"), ("do_export", "true")):
        told = {name: path, "init_checkpoint": cased}
        with pytest.raises(ModelingError, match="was trained on cased text"):
            open_given_model(given(tmp_path, **told), learns_vocabulary=True)
        open_given_model(given(tmp_path, **told, do_lower_case="false"), learns_vocabulary=True)
    records = {"init_checkpoint": cased, "input_file": "a.tfrecord"}
    values = given(tmp_path, **records)
    open_given_model(values, learns_vocabulary=True)
    assert known_text_folding(values) == TextFolding(False)
    # A flag that is given counts before the name.
    values = given(tmp_path, **records, do_lower_case="false", strip_accents="true")
    assert known_text_folding(values) == TextFolding(False, True)


def test_contradictions_are_refused(tmp_path, model):
    with pytest.raises(ModelingError, match="--do_lower_case is True, but the model's own files"):
        open_given_model(given(tmp_path, init_checkpoint=model, do_lower_case="true"))
    open_given_model(given(tmp_path, init_checkpoint=model, do_lower_case="false"))
    config = tmp_path / "config.json"
    config.write_text(BertConfig(**{**CONFIG.to_dict(), "hidden_act": "relu"}).to_json_string())
    with pytest.raises(ModelingError, match="hidden_act"):
        open_given_model(given(tmp_path, init_checkpoint=model, bert_config_file=config))


def test_what_nothing_tells_is_asked_for(tmp_path, model):
    with pytest.raises(ModelingError, match="--bert_config_file is missing"):
        open_given_model(given(tmp_path))
    with pytest.raises(ModelingError, match="--bert_config_file is missing"):
        open_given_model(given(tmp_path, output_dir=model, overwrite_output_dir="true"))
    (model / "vocab.txt").unlink()
    with pytest.raises(ModelingError, match="--vocab_file is missing, and none lies beside"):
        open_given_model(given(tmp_path, init_checkpoint=model))
    values = given(tmp_path, init_checkpoint=model)
    assert open_given_model(values, learns_vocabulary=True) == CONFIG


def test_another_vocabulary_is_refused_before_anything_is_made_with_it(tmp_path, model):
    (tmp_path / "other.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nhorse\n")
    told = {"init_checkpoint": model, "vocab_file": tmp_path / "other.txt"}
    with pytest.raises(ModelingError, match="vocabulary"):
        open_given_model(given(tmp_path, **told), learns_vocabulary=True)
    told["vocab_file"] = tmp_path / "words.txt"
    assert open_given_model(given(tmp_path, **told), learns_vocabulary=True) == CONFIG


def test_how_the_texts_of_records_are_folded(tmp_path, model):
    assert known_text_folding(given(tmp_path, init_checkpoint=model)) == TextFolding(False)
    assert known_text_folding(given(tmp_path)) == TextFolding(True)
    assert known_text_folding(given(tmp_path, input_file="x")) == TextFolding()
    told = given(tmp_path, input_file="x", do_lower_case="false")
    assert known_text_folding(told) == TextFolding(False)
    told = given(tmp_path, input_file="x", strip_accents="false")
    assert known_text_folding(told) == TextFolding(True, False)
