"""BertConfig: both file formats, named sizes, refusals."""

import json

import pytest

from modeling.config import BertConfig
from modeling.costs.cost_model import parameters
from modeling.errors import ModelingError
from modeling.models import BertPretrainer
from modeling.sizes import NAMED_SIZES, SIZES, SMALL_SIZES

ORIGINAL = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def test_original_file_comes_back_as_it_was(tmp_path):
    path = tmp_path / "bert_config.json"
    text = json.dumps(ORIGINAL, indent=2, sort_keys=True) + "\n"
    path.write_text(text)
    config = BertConfig.from_json_file(path)
    assert config.hidden_act == "gelu" and config.layer_norm_eps == 1e-12
    assert config.to_json_string() == text


def test_defaults_are_the_original_ones():
    config = BertConfig(vocab_size=10)
    assert config.type_vocab_size == 16
    assert (config.hidden_size, config.num_hidden_layers, config.intermediate_size) == (
        768,
        12,
        3072,
    )


def test_unknown_keys_are_kept_and_reported(caplog):
    with caplog.at_level("INFO"):
        config = BertConfig.from_dict({"vocab_size": 3, "directionality": "bidi"})
    assert config.extra == {"directionality": "bidi"}
    assert json.loads(config.to_json_string())["directionality"] == "bidi"
    assert "directionality" in caplog.text


def test_hugging_face_gelu_is_the_erf_form_and_comes_back():
    theirs = {"model_type": "bert", "vocab_size": 9, "hidden_act": "gelu", "hidden_size": 64}
    theirs |= {"num_attention_heads": 4, "layer_norm_eps": 1e-6, "transformers_version": "5.0"}
    config = BertConfig.from_dict(theirs)
    assert config.hidden_act == "gelu_erf"
    assert (config.type_vocab_size, config.layer_norm_eps) == (2, 1e-6)
    # What was read from there can be written as bert_config.json without changing its meaning.
    again = BertConfig.from_dict(json.loads(config.to_json_string()))
    assert again == config
    assert again.to_huggingface_dict()["hidden_act"] == "gelu"


def test_left_to_right_is_written_and_read():
    config = BertConfig(vocab_size=3, attention_direction="left_to_right")
    written = json.loads(config.to_json_string())
    assert written["attention_direction"] == "left_to_right"
    assert BertConfig.from_dict(written) == config
    assert "attention_direction" not in BertConfig(vocab_size=3).to_json_string()


def test_left_to_right_is_no_hugging_face_model():
    with pytest.raises(ModelingError, match=r"attention_direction.*Hugging Face"):
        BertConfig(vocab_size=3, attention_direction="left_to_right").to_huggingface_dict()
    theirs = {"model_type": "bert", "vocab_size": 9}
    assert BertConfig.from_dict(theirs | {"is_decoder": False}).extra == {"is_decoder": False}


@pytest.mark.parametrize(
    ("field", "harmless", "wrong"),
    [
        ("position_embedding_type", "absolute", "relative_key_query"),
        ("position_embedding_type", None, ["relative_key"]),
        ("is_decoder", False, True),
        ("add_cross_attention", False, True),
        ("pruned_heads", {}, {"0": [1]}),
        ("pruned_heads", None, {"0": []}),
        ("chunk_size_feed_forward", 8, None),
    ],
)
@pytest.mark.parametrize("more", [{}, {"model_type": "bert"}])
def test_what_is_not_computed_is_refused_by_name(field, harmless, wrong, more):
    values = more | {"vocab_size": 9}
    assert BertConfig.from_dict(values | {field: harmless}).extra == {field: harmless}
    if wrong:
        with pytest.raises(ModelingError, match=field):
            BertConfig.from_dict(values | {field: wrong})


def test_masked_lm_head_of_its_own():
    config = BertConfig(vocab_size=9, layer_norm_eps=1e-6)
    assert config.masked_lm_form == ("gelu", 1e-6)
    assert "masked_lm" not in config.to_json_string()
    config = BertConfig(9, masked_lm_hidden_act="gelu_erf", masked_lm_layer_norm_eps=1e-5)
    assert config.masked_lm_form == ("gelu_erf", 1e-5)
    assert BertConfig.from_dict(json.loads(config.to_json_string())) == config
    theirs = config.to_huggingface_dict()
    assert (theirs["hidden_act"], theirs["masked_lm_hidden_act"]) == ("gelu_new", "gelu")
    assert BertConfig.from_dict(theirs).masked_lm_form == config.masked_lm_form
    # No matrix is written but the word embeddings, which false would have replaced by chance.
    untied = BertConfig.from_dict(theirs | {"tie_word_embeddings": False})
    assert "tie_word_embeddings" not in untied.to_huggingface_dict()


@pytest.mark.parametrize("act", [None, "", "linear", "LINEAR"])
def test_empty_activation_is_linear(act):
    assert BertConfig(vocab_size=3, hidden_act=act).hidden_act == "linear"


@pytest.mark.parametrize(
    ("theirs", "ours", "written"),
    [
        ("gelu", "gelu_erf", "gelu"),
        ("gelu_python", "gelu_erf", "gelu"),
        ("gelu_new", "gelu", "gelu_new"),
        ("gelu_fast", "gelu", "gelu_new"),
        ("gelu_pytorch_tanh", "gelu", "gelu_new"),
        ("quick_gelu", "quick_gelu", "quick_gelu"),
        ("silu", "silu", "silu"),
        ("swish", "silu", "silu"),
        ("mish", "mish", "mish"),
        ("relu", "relu", "relu"),
    ],
)
def test_hugging_faces_activations(theirs, ours, written):
    config = BertConfig.from_dict({"model_type": "bert", "vocab_size": 9, "hidden_act": theirs})
    assert config.hidden_act == ours
    assert config.to_huggingface_dict()["hidden_act"] == written
    assert BertConfig.from_dict(json.loads(config.to_json_string())) == config


@pytest.mark.parametrize("theirs", ["gelu_10", "leaky_relu", "laplace", 3, None])
def test_other_activations_of_hugging_face_are_refused(theirs):
    with pytest.raises(ModelingError, match="hidden_act"):
        BertConfig.from_dict({"model_type": "bert", "vocab_size": 9, "hidden_act": theirs})


@pytest.mark.parametrize("act", ["swish", "SiLU"])
def test_swish_is_silu(act):
    assert BertConfig(vocab_size=3, hidden_act=act).hidden_act == "silu"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0),
        ("vocab_size", "30522"),
        ("num_hidden_layers", 2.0),
        ("num_attention_heads", True),
        ("hidden_size", -768),
        ("hidden_act", "leaky_relu"),
        ("masked_lm_hidden_act", "leaky_relu"),
        ("masked_lm_layer_norm_eps", 0),
        ("hidden_dropout_prob", 1.0),
        ("attention_probs_dropout_prob", "0.1"),
        ("initializer_range", 0),
        ("attention_direction", "downwards"),
        ("attention_direction", None),
        ("vocab_size", 10**9),
        ("hidden_size", 10**9),
        ("num_hidden_layers", 10**6),
        ("num_attention_heads", 10**9),
        ("intermediate_size", 10**9),
        ("max_position_embeddings", 10**9),
        ("type_vocab_size", 10**300),
        ("hidden_dropout_prob", float("nan")),
        ("attention_probs_dropout_prob", -0.1),
        ("initializer_range", float("inf")),
        ("initializer_range", 100),
        ("layer_norm_eps", float("inf")),
        ("layer_norm_eps", float("nan")),
        ("layer_norm_eps", 1e-60),  # 0 in float32
    ],
)
def test_wrong_values_are_refused_by_name(field, value):
    with pytest.raises(ModelingError, match=field):
        BertConfig.from_dict({"vocab_size": 3} | {field: value})


def test_hidden_size_must_be_a_multiple_of_heads():
    with pytest.raises(ModelingError, match=r"'hidden_size' \(64\).*'num_attention_heads' \(5\)"):
        BertConfig(vocab_size=3, hidden_size=64, num_attention_heads=5)


def test_vocab_size_has_no_default():
    with pytest.raises(ModelingError, match="vocab_size"):
        BertConfig.from_dict({"hidden_size": 768})


@pytest.mark.parametrize("text", ["not json", "[1, 2]", "\xff"])
def test_broken_file_is_named(tmp_path, text):
    path = tmp_path / "bert_config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelingError, match=r"bert_config\.json"):
        BertConfig.from_json_file(path)


LABELS = {"0": "no", "1": "yes"}


@pytest.mark.parametrize("more", [{}, {"2": "no"}, {"3": "maybe"}, {"2": 5}, {"two": "maybe"}])
def test_each_label_has_a_name_of_its_own(more):
    """Answers are told, and taught, by their names."""
    config = BertConfig(vocab_size=5, extra={"id2label": LABELS | more})
    if not more:
        assert config.labels == ["no", "yes"]
        return
    with pytest.raises(ModelingError, match=r"id2label is .*a name of its own for each number"):
        _ = config.labels


@pytest.mark.parametrize("depth", [60, 700, 100_000])
def test_deep_nesting_is_refused_where_it_is_read(tmp_path, depth):
    path = tmp_path / "bert_config.json"
    for value in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        path.write_text(f'{{"vocab_size": 3, "unused": {value}}}')
        with pytest.raises(ModelingError, match=r"bert_config\.json has lists or objects nested"):
            BertConfig.from_json_file(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ModelingError, match=r"nowhere\.json does not exist"):
        BertConfig.from_json_file(tmp_path / "nowhere.json")


def test_named_sizes():
    base = BertConfig.named("base", 30522)
    assert (base.num_hidden_layers, base.hidden_size, base.num_attention_heads) == (12, 768, 12)
    assert list(NAMED_SIZES) == ["tiny", "mini", "small", "medium", "base", "large"]
    with pytest.raises(ModelingError, match=r"'huge'; the names are tiny, .*L-4_H-256"):
        BertConfig.named("huge", 30522)


# "Well-Read Students Learn Better" (2019), Table 1: millions of parameters by layers and width.
PUBLISHED_PARAMETERS = {
    2: (4.4, 9.7, 22.8, 39.2),
    4: (4.8, 11.3, 29.1, 53.4),
    6: (5.2, 12.8, 35.4, 67.5),
    8: (5.6, 14.4, 41.7, 81.7),
    10: (6.0, 16.0, 48.0, 95.9),
    12: (6.4, 17.6, 54.3, 110.1),
}


def test_the_small_releases_have_the_published_numbers_of_parameters():
    published = [number for row in PUBLISHED_PARAMETERS.values() for number in row]
    for (layers, hidden), millions in zip(SMALL_SIZES, published, strict=True):
        config = BertConfig.named(f"uncased_L-{layers}_H-{hidden}_A-{hidden // 64}", 30522)
        # 67.579 and 81.755 stand there as 67.5 and 81.7.
        assert parameters(config) / 1e6 == pytest.approx(millions, abs=0.08)
    model = BertPretrainer(BertConfig.named("L-2_H-128", 30522))
    model.build()
    assert model.count_params() == parameters(model.config)


def test_releases_and_names_mean_the_same():
    for name, release in (
        ("tiny", "uncased_L-2_H-128_A-2"),
        ("mini", "L-4_H-256"),
        ("small", "L-4_H-512_A-8"),
        ("medium", "uncased_L-8_H-512"),
        ("base", "uncased_L-12_H-768_A-12"),
        ("large", "uncased_L-24_H-1024_A-16"),
    ):
        assert BertConfig.named(name, 9) == BertConfig.named(release, 9)
    other = ("L-3_H-128", "L-4_H-256_A-2", "cased_L-12_H-768_A-12", "L-24_H-768", "TINY", "")
    assert not {*other} & SIZES.keys()


def test_a_file_comes_before_a_size_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert BertConfig.from_file_or_name("tiny") == BertConfig.named("tiny", 30522)
    assert BertConfig.from_file_or_name("tiny", 7).vocab_size == 7
    (tmp_path / "tiny").write_text(json.dumps(ORIGINAL))
    assert BertConfig.from_file_or_name("tiny", 7) == BertConfig.from_dict(ORIGINAL)
    with pytest.raises(ModelingError, match=r"L-5_H-128 does not exist, .*name: tiny, .*L-4_H-256"):
        BertConfig.from_file_or_name("L-5_H-128")
