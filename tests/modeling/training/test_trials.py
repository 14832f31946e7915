"""Every run of a search is trained as one alone would be."""

from types import SimpleNamespace

import keras
import pytest
from modeling.training.trials import run_search

from modeling.config import BertConfig
from modeling.models import BertClassifier
from modeling.training.engine.precision import set_precision
from modeling.training.search import Trial


@pytest.fixture(autouse=True)
def policy():
    yield
    keras.config.set_dtype_policy("float32")


def test_models_of_a_search_compute_in_the_format_that_was_set(tmp_path):
    formats = []

    def make_model():
        model = BertClassifier(BertConfig.named("tiny", 30), 2)
        model.build()
        return model

    def train(model, trial, folder):
        formats.append((model.compute_dtype, model.encoder.embeddings.compute_dtype))
        return 1, {"eval_accuracy": 0.5}, False

    values = SimpleNamespace(
        output_dir=str(tmp_path), best_metric=None, num_train_steps=1, init_checkpoint=None
    )
    set_precision("bfloat16")
    trials = [Trial(1e-4, 32, 1.0, seed) for seed in (1, 2)]
    run_search(values, ["eval_accuracy"], "nothing", trials, make_model, train)
    assert formats == [("bfloat16", "bfloat16")] * 2
