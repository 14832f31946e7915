"""This project's training step, as a process that `tests.benchmarks.training_speed` starts.

--compile is --xla of the scripts. Batches of masked words are computed in parts side by side, as
run_pretraining.py does where that pays; not with --whole.
"""

from modeling import quiet  # noqa: F401  isort: skip

import keras
import numpy as np
import tensorflow as tf

from modeling.config import BertConfig
from modeling.losses import ClassifierLosses, PretrainingLosses
from modeling.models import BertClassifier, BertPretrainer
from modeling.side_by_side import MOST_CORES_OF_PARTS, divide_threads
from modeling.training.engine.precision import set_precision
from modeling.training.engine.setup import EngineSettings, make_train_step
from tests.benchmarks.peers.tensorflow_training import endless, set_up
from tests.benchmarks.peers.training_worker import LEARNING_RATE, Shape, serve_training

STEPS = 1_000_000


def config_of(shape: Shape) -> BertConfig:
    """The configuration of that shape, with the dropout that is the default everywhere."""
    return BertConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner_size,
        max_position_embeddings=shape.positions,
        type_vocab_size=2,
    )


class Ours:
    """As `run_classifier.py` and `run_pretraining.py` put model and step together."""

    def __init__(self, shape: Shape, dtype: str, jit_compile: bool = False):
        set_precision(dtype)
        keras.utils.set_random_seed(0)
        config = config_of(shape)
        if shape.labels:
            model, losses = BertClassifier(config, shape.labels), ClassifierLosses()
        else:
            model = BertPretrainer(config, next_sentence=False)
            losses = PretrainingLosses(next_sentence=False)
        model.build()
        settings = EngineSettings(LEARNING_RATE, STEPS, 0, seed=0, jit_compile=jit_compile)
        self.step = make_train_step(model, losses, settings)

    def parameters(self) -> int:
        return sum(int(np.prod(variable.shape)) for variable in self.step.model.weights)

    def prepare(self, batches):
        for batch in batches:
            if "masked_lm_ids" in batch:
                weights = batch.get("masked_lm_weights", np.ones(batch["masked_lm_ids"].shape))
                batch["masked_lm_weights"] = weights.astype(np.float32)
        return endless(batches)

    def run(self, prepared, steps: int) -> float:
        (loss, _), *_ = self.step.run(prepared, steps)["loss"][-1:]
        return loss


def main() -> None:
    def start(shape, given):
        set_up(given.threads)
        if not (shape.labels or given.compile or given.whole or given.threads == 1):
            divide_threads(MOST_CORES_OF_PARTS)
        about = f"ours: TensorFlow {tf.__version__}, Keras {keras.__version__}"
        return about, Ours(shape, given.dtype, given.compile)

    serve_training(start)


if __name__ == "__main__":
    main()
