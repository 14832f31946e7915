"""Small checkpoints that other libraries wrote, against the outputs that they computed."""

import numpy as np
import pytest

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertClassifier

# Folder: what of its file is no weight.
EXAMPLES = {
    "mg_release": set(),
    "mg_trainer": {"save_counter/.ATTRIBUTES/VARIABLE_VALUE"},
    "mg_classifier": {"save_counter/.ATTRIBUTES/VARIABLE_VALUE"},
    "tfhub": {"do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"},
    "kh_preset": set(),
    "kh_keras": set(),
    "kh_classifier": {"optimizer/vars/0", "optimizer/vars/1"},
}
SIZES = BertConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=43,
    max_position_embeddings=64,
    type_vocab_size=2,
)


@pytest.fixture
def examples(formats):
    return formats


@pytest.fixture
def inputs(examples):
    return dict(np.load(examples / "inputs.npz"))


def _assert_computes(model, inputs, outputs):
    got = model(inputs)
    there = inputs["input_mask"] == 1
    for name, wanted in np.load(outputs).items():
        array = np.asarray(got[name])
        if name == "sequence_output":
            array, wanted = array[there], wanted[there]
        np.testing.assert_allclose(array, wanted, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_answers_as_its_own_library_does(examples, inputs, name):
    held = checkpoints.open_contents(examples / name)
    assert held.unmapped == []
    assert set(held.ignored) == EXAMPLES[name]
    config = checkpoints.config_of_checkpoint(held)
    config.extra = {}
    assert config == SIZES
    labels = 3 if "classifier" in name else 2
    model = BertClassifier(config, labels)
    report = checkpoints.load(model, examples / name, required=("bert/",))
    assert report.left_over == []
    head = [] if labels == 3 else ["output_bias", "output_weights"]
    assert report.newly_initialised == head
    _assert_computes(model, inputs, examples / name / "outputs.npz")


@pytest.mark.parametrize("format", ["tf1", "huggingface"])
@pytest.mark.parametrize("name", ["mg_classifier", "tfhub", "kh_keras", "kh_classifier"])
def test_converted_bit_by_bit(examples, tmp_path, name, format):
    held = checkpoints.open_contents(examples / name)
    result = checkpoints.convert(examples / name, tmp_path, format)
    assert result.converted == sorted(held.shapes)
    assert result.not_converted == []
    converted = checkpoints.open_contents(tmp_path)
    assert converted.shapes == held.shapes
    for weight in held.shapes:
        np.testing.assert_array_equal(converted.read(weight), held.read(weight))
    assert (tmp_path / "vocab.txt").exists() == (name == "tfhub")
