"""The C++ loader accepts our exports, and refuses what Python's loader alone accepts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.models import BertClassifier
from modeling.serving.export import Export
from modeling.serving.sentences import export_sentence_model
from tests.modeling.serving.graph.test_encoder import make_batch, make_model
from tests.modeling.serving.graph.test_whole_numbers import export_of


@pytest.mark.slow
def test_an_export_gives_the_models_answers(load_in_cpp, tmp_path):
    config = BertConfig(20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = BertClassifier(config, num_labels=2)
    model.build()
    ids = np.arange(12, dtype=np.int32).reshape(2, 6)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}

    def preprocess(text):
        rows = tf.strings.to_number(tf.strings.split(text).to_tensor("0"), tf.int32)
        return {"input_ids": rows, "input_mask": rows * 0 + 1, "segment_ids": rows * 0}

    path = export_sentence_model(
        model, Export(str(tmp_path), {}), "classes", preprocess, ["no", "yes"], False
    )
    probabilities = tf.nn.softmax(model(batch)["logits"]).numpy()
    answers = load_in_cpp(path, "tokenized", **batch)
    np.testing.assert_allclose(answers["probabilities"], probabilities, atol=1e-6)
    assert answers["label"].tolist() == [[b"no", b"yes"][row] for row in probabilities.argmax(1)]
    assert load_in_cpp.costs["most_megabytes"] >= load_in_cpp.costs["held_megabytes"] > 10
    assert load_in_cpp.costs["loading_seconds"] > 0 and load_in_cpp.costs["answering_seconds"] > 0
    texts = [" ".join(map(str, row)).encode() for row in ids]
    np.testing.assert_allclose(
        load_in_cpp(path, "serving_default", text_a=texts)["probabilities"],
        probabilities,
        atol=1e-6,
    )
    with pytest.raises(RuntimeError, match="no signature other"):
        load_in_cpp(path, "other", text_a=texts)


@pytest.mark.slow
def test_whole_numbers_are_multiplied_where_onednn_computes(load_in_cpp, tmp_path, monkeypatch):
    model = make_model()
    path, batch = export_of(model, tmp_path), make_batch([[1] * 6] * 3)
    exact, answers = model(batch)["logits"].numpy(), []
    for switch in "10":
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", switch)
        answers.append(load_in_cpp(path, "serving_default", **batch)["logits"])
    whole, floats = answers
    size = np.abs(exact).max()
    assert np.abs(whole - floats).max() > 1e-5 * size
    assert np.abs(whole - exact).max() < 0.1 * size
    assert np.abs(floats - exact).max() < 0.1 * size


@pytest.mark.slow
def test_tracked_keras_variables_are_refused(load_in_cpp, tmp_path):
    """The negative control: this is what `Servable` avoids."""

    class Wrong(tf.Module):
        def __init__(self, layer):
            super().__init__()
            self.weights = layer.weights

    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    wrong = Wrong(layer)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x")])
    def call(x):
        return {"y": layer(x)}

    tf.saved_model.save(wrong, str(tmp_path / "1"), signatures={"serving_default": call})
    x = np.ones((1, 3), np.float32)
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    assert loaded(x=tf.constant(x))["y"].shape == (1, 2)
    with pytest.raises(RuntimeError, match="running"):
        load_in_cpp(tmp_path / "1", "serving_default", x=x)
