"""A checkpoint's own configuration counts, whatever another file says."""

import json
import shutil

import numpy as np
import pytest

from modeling import checkpoints
from modeling.checkpoints import huggingface, tf1
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertModel
from tests.reference import numpy_bert

SIZES = {
    "vocab_size": 13,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}
THEIRS = SIZES | {"model_type": "bert", "layer_norm_eps": 1e-12}


@pytest.fixture
def weights():
    return numpy_bert.random_weights(SIZES, heads=())


def write(folder, **configs) -> str:
    """Writes bert_config=… and so on; the first one's path."""
    folder.mkdir(exist_ok=True)
    for name, values in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return str(folder / f"{next(iter(configs))}.json")


@pytest.fixture
def theirs(tmp_path, weights):
    """Hugging Face's folder, with the original's configuration beside theirs."""
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**SIZES))
    write(tmp_path, config=THEIRS, bert_config=SIZES)
    return tmp_path


def test_theirs_may_say_nothing_of_whose_it_is(tmp_path, weights):
    """As Hugging Face wrote it in 2019: by the weights beside it "gelu" is the erf form."""
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**SIZES))
    path = write(tmp_path, config=SIZES | {"hidden_act": "gelu"})
    held = checkpoints.open_contents(tmp_path)
    copied = write(tmp_path / "copy", config=SIZES | {"hidden_act": "gelu"})
    for config_file in (None, path, copied):
        config = checkpoints.config_of_checkpoint(held, config_file)
        assert config.hidden_act == "gelu_erf"
        checkpoints.load(BertModel(config), tmp_path)
    # Who reads the file alone is told why that isn't enough.
    with pytest.raises(ModelingError, match=r"checkpoints\.config_of_checkpoint, or write"):
        checkpoints.load(BertModel(BertConfig.from_json_file(path)), tmp_path)
    write(tmp_path, config=SIZES | {"architectures": ["RobertaModel"]})
    with pytest.raises(ModelingError, match="of a RobertaModel; only BERT's models are supported"):
        checkpoints.config_of_checkpoint(checkpoints.open_contents(tmp_path))


@pytest.fixture
def originals(tmp_path, weights):
    tf1.write_bundle(tmp_path / "bert_model.ckpt", weights)
    write(tmp_path, config=THEIRS, bert_config=SIZES)
    return tmp_path


def read(folder, config_file=None):
    """By each way that there is: converted, and loaded into a model."""
    checkpoints.convert(folder, folder / "converted", "tf1", config_file)
    config = checkpoints.config_of_checkpoint(checkpoints.open_contents(folder), config_file)
    checkpoints.load(BertModel(config), folder)
    return config


def test_the_one_of_the_weights_own_format_counts(tmp_path, theirs, weights):
    assert read(theirs).hidden_act == "gelu_erf"
    write(tmp_path / "old", config=THEIRS, bert_config=SIZES)
    tf1.write_bundle(tmp_path / "old" / "bert_model.ckpt", weights)
    assert read(tmp_path / "old").hidden_act == "gelu"
    (tmp_path / "old" / "bert_config.json").unlink()
    assert read(tmp_path / "old").hidden_act == "gelu_erf"


CONTRADICTIONS = [
    (SIZES, "hidden_act 'gelu_erf'.*hidden_act 'gelu'.*Hugging Face calls"),
    (THEIRS | {"hidden_act": "relu"}, "hidden_act 'gelu_erf'.*hidden_act 'relu'"),
    (THEIRS | {"num_attention_heads": 1}, "num_attention_heads 2.*num_attention_heads 1"),
    (THEIRS | {"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-12.*layer_norm_eps 1e-05"),
]


@pytest.mark.parametrize(("other", "words"), CONTRADICTIONS)
def test_an_explicit_one_must_not_contradict_it(theirs, other, words):
    file = write(theirs / "elsewhere", other=other)
    ways = (
        lambda: checkpoints.convert(theirs, theirs / "converted", "tf1", file),
        lambda: checkpoints.load(BertModel(BertConfig.from_json_file(file)), theirs),
    )
    for way in ways:
        with pytest.raises(ModelingError, match=words) as raised:
            way()
        assert str(theirs / "config.json") in str(raised.value)
        assert file in str(raised.value)
    assert not (theirs / "converted").exists()


def test_of_the_original_s_weights_bert_config_counts(originals):
    assert read(originals, str(originals / "bert_config.json")).hidden_act == "gelu"
    with pytest.raises(ModelingError, match=r"bert_config\.json.*'gelu'.*config\.json.*'gelu_erf'"):
        read(originals, str(originals / "config.json"))
    one_way = write(originals / "a", other=SIZES | {"attention_direction": "left_to_right"})
    with pytest.raises(ModelingError, match="attention_direction"):
        checkpoints.convert(originals, originals / "converted", "tf1", one_way)


def test_dropout_and_the_like_may_differ(theirs):
    other = THEIRS | {"hidden_dropout_prob": 0.3, "initializer_range": 0.5, "architectures": ["X"]}
    file = write(theirs / "elsewhere", other=other)
    assert read(theirs, file).hidden_dropout_prob == 0.3


@pytest.mark.parametrize(
    "field",
    [
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"add_cross_attention": True},
        {"pruned_heads": {"0": [1]}},
        {"hidden_act": "gelu_10"},
        {"model_type": "roberta"},
    ],
)
def test_another_file_hides_nothing(theirs, field):
    file = write(theirs / "elsewhere", other=THEIRS)
    write(theirs, config=THEIRS | field)
    for config_file in (file, None):
        with pytest.raises(ModelingError, match=next(iter(field))) as raised:
            read(theirs, config_file)
        assert str(theirs / "config.json") in str(raised.value)
    with pytest.raises(ModelingError, match=next(iter(field))):
        checkpoints.load(BertModel(BertConfig.from_json_file(file)), theirs)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert.encoder.layer.0.attention.self.distance_embedding.weight", "relative positions"),
        ("bert.encoder.layer.0.crossattention.self.query.weight", "another model's outputs"),
    ],
)
def test_weights_that_are_not_computed(tmp_path, weights, name, words, monkeypatch):
    tensors = huggingface.huggingface_weights(weights) | {name: np.ones((3, 2), np.float32)}
    monkeypatch.setattr(huggingface, "huggingface_weights", lambda _: tensors)
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**SIZES))
    with pytest.raises(ModelingError, match=f"{name}.*{words}"):
        checkpoints.open_contents(tmp_path)


@pytest.mark.parametrize("format", checkpoints.FORMATS)
def test_pruned_heads(tmp_path, weights, format):
    for name in list(weights):
        if "/attention/self/" in name:
            weights[name] = weights[name][..., :2]
    name = "bert/encoder/layer_0/attention/output/dense/kernel"
    weights[name] = weights[name][:2]
    checkpoints.write_checkpoint(tmp_path, weights, BertConfig(**SIZES), format=format)
    with pytest.raises(ModelingError, match=r"2 outputs for 4 inputs: heads .* were pruned"):
        checkpoints.convert(tmp_path, tmp_path / "out", "tf1")


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ({"norm_first": True}, "norm_first"),
        ({"hidden_activation": "relu"}, "'relu'.*'gelu'"),
        ({}, ""),
    ],
)
def test_two_of_model_garden(golden, tmp_path, encoder, words):
    """bert_config.json, and what the trainer wrote beside it."""
    folder = shutil.copytree(golden / "formats" / "mg_release", tmp_path / "model")
    sizes = BertConfig.from_json_file(folder / "bert_config.json").to_dict()
    sizes["num_layers"] = sizes.pop("num_hidden_layers")
    params = {"task": {"model": {"encoder": {"type": "bert", "bert": sizes | encoder}}}}
    (folder / "params.yaml").write_text(json.dumps(params))  # YAML too
    if not words:
        assert read(folder).hidden_act == "gelu"
        return
    with pytest.raises(ModelingError, match=words) as raised:
        read(folder)
    assert str(folder / "params.yaml") in str(raised.value)
