"""The table of names: complete, one to one, and right where the two sides differ."""

import keras
import pytest

from modeling.checkpoints import names
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertPretrainer
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 13,
    "hidden_size": 4,
    "num_hidden_layers": 12,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}


def test_every_original_name_goes_there_and_back():
    originals = numpy_bert.variable_shapes(CONFIG, ("pretraining", "classifier", "squad"))
    there = {name: names.to_huggingface(name) for name in originals}
    assert all(there.values())
    assert len({found.name for found in there.values()}) == len(originals)
    for name, found in there.items():
        assert names.from_huggingface(found.name) == (name, found.transposed)
    transposed = {name for name, found in there.items() if found.transposed}
    assert transposed == {name for name in originals if name.endswith("kernel")}


# Spelled out, so that a mistake in the table can't hide in both directions of it.
@pytest.mark.parametrize(
    ("huggingface", "original"),
    [
        ("bert.embeddings.word_embeddings.weight", "bert/embeddings/word_embeddings"),
        ("embeddings.position_embeddings.weight", "bert/embeddings/position_embeddings"),
        ("embeddings.LayerNorm.gamma", "bert/embeddings/LayerNorm/gamma"),
        ("bert.embeddings.LayerNorm.beta", "bert/embeddings/LayerNorm/beta"),
        ("embeddings.LayerNorm.bias", "bert/embeddings/LayerNorm/beta"),
        (
            "encoder.layer.10.attention.self.query.weight",
            "bert/encoder/layer_10/attention/self/query/kernel",
        ),
        (
            "bert.encoder.layer.0.attention.output.LayerNorm.weight",
            "bert/encoder/layer_0/attention/output/LayerNorm/gamma",
        ),
        ("bert.encoder.layer.3.output.dense.bias", "bert/encoder/layer_3/output/dense/bias"),
        ("pooler.dense.weight", "bert/pooler/dense/kernel"),
        ("cls.predictions.bias", "cls/predictions/output_bias"),
        (
            "cls.predictions.transform.LayerNorm.gamma",
            "cls/predictions/transform/LayerNorm/gamma",
        ),
        ("cls.seq_relationship.weight", "cls/seq_relationship/output_weights"),
        ("module.cls.predictions.bias", "cls/predictions/output_bias"),
        ("0.auto_model.pooler.dense.weight", "bert/pooler/dense/kernel"),
        ("module.0.auto_model.embeddings.LayerNorm.beta", "bert/embeddings/LayerNorm/beta"),
        ("classifier.weight", "output_weights"),
        ("classifier.bias", "output_bias"),
        ("qa_outputs.bias", "cls/squad/output_bias"),
    ],
)
def test_huggingface_names(huggingface, original):
    assert names.from_huggingface(huggingface).name == original


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.01.output.dense.bias",
        "bert.encoder.layer.x.output.dense.bias",
        "roberta.embeddings.word_embeddings.weight",
        "bert.embeddings.word_embeddings",
        "cls.predictions.decoder.weight",
        "my.classifier.weight",
    ],
)
def test_unknown_huggingface_names(name):
    assert names.from_huggingface(name) is None


def test_bookkeeping():
    slots = [f"bert/pooler/dense/kernel/{kind}" for kind in ("adam_m", "adam_v", "average")]
    for name in (*slots, "averaged_updates", "global_step", "embeddings.position_ids"):
        assert names.is_bookkeeping(name)
    for name in numpy_bert.variable_shapes(CONFIG, ("pretraining", "classifier", "squad")):
        assert not names.is_bookkeeping(name)


def test_models_have_the_original_s_variables_in_its_order():
    config = BertConfig(**CONFIG)
    for model, head in ((BertPretrainer(config), "pretraining"), (BertClassifier(config, 2), None)):
        shapes = numpy_bert.variable_shapes(CONFIG, (head or "classifier",))
        found = {name: tuple(v.shape) for name, v in names.weights_by_name(model).items()}
        assert list(found.items()) == list(shapes.items())


def test_two_weights_with_one_name():
    inputs = keras.Input((2,))
    layer = keras.layers.Dense(2, name="same")
    model = keras.Model(inputs, keras.layers.Dense(2, name="other")(layer(inputs)))
    for variable in model.weights:
        variable._path = f"model/same/{variable.name}"
    with pytest.raises(ModelingError, match="two weights named"):
        names.weights_by_name(model)


def test_number_of_layers():
    shapes = numpy_bert.variable_shapes(CONFIG)
    assert names.number_of_checkpoint_layers(shapes) == 12
    assert names.number_of_checkpoint_layers(["output_bias"]) == 0
