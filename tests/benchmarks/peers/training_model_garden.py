"""Model Garden's BERT, as a process that `tests.benchmarks.training_speed` starts.

Its encoder and its AdamWeightDecay (fused kernels, and clipping within) in a loop inside one
graph, as its trainer has them.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

from importlib.metadata import version

import numpy as np
import tensorflow as tf
import tf_keras
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.modeling import models, networks

from tests.benchmarks.peers import training_worker
from tests.benchmarks.peers.tensorflow_training import Loop, cross_entropy, endless, set_up
from tests.benchmarks.peers.training_worker import Shape, serve_training


def gelu(x):
    """The tanh form, the encoder's default."""
    return tf_keras.activations.gelu(x, approximate=True)


def make_model(shape: Shape) -> tf_keras.Model:
    """A classifier, or a pre-trainer without next sentence prediction."""
    encoder = networks.BertEncoder(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_sequence_length=shape.positions,
        type_vocab_size=2,
        inner_dim=shape.inner_size,
        inner_activation=gelu,
        output_dropout=training_worker.DROPOUT,
        attention_dropout=training_worker.DROPOUT,
        initializer=tf_keras.initializers.TruncatedNormal(stddev=0.02),
        dict_outputs=True,
    )
    initializer = tf_keras.initializers.TruncatedNormal(stddev=0.02)
    if shape.labels:
        return models.BertClassifier(
            encoder, shape.labels, initializer, dropout_rate=training_worker.DROPOUT
        )
    return models.BertPretrainerV2(encoder, mlm_activation=gelu, mlm_initializer=initializer)


class ModelGarden:
    """Model and optimizer."""

    def __init__(self, shape: Shape):
        tf_keras.utils.set_random_seed(0)
        self.model = make_model(shape)
        beta_1, beta_2 = training_worker.BETAS
        self.optimizer = AdamWeightDecay(
            training_worker.LEARNING_RATE,
            beta_1,
            beta_2,
            training_worker.EPSILON,
            weight_decay_rate=training_worker.DECAY,
            exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
            gradient_clip_norm=training_worker.CLIP_NORM,
        )
        self.run = Loop(self._step)

    def parameters(self) -> int:
        return sum(int(np.prod(variable.shape)) for variable in self.model.trainable_variables)

    def prepare(self, batches):
        prepared = endless(batches)
        # Some layers make their weights when they are first called.
        self.model(self._inputs(next(prepared)), training=False)
        return endless(batches)

    @staticmethod
    def _inputs(batch):
        inputs = {
            "input_word_ids": batch["input_ids"],
            "input_mask": batch["input_mask"],
            "input_type_ids": batch["segment_ids"],
        }
        if "masked_lm_positions" in batch:
            inputs["masked_lm_positions"] = batch["masked_lm_positions"]
        return inputs

    def _step(self, batch):
        with tf.GradientTape() as tape:
            outputs = self.model(self._inputs(batch), training=True)
            if "label_ids" in batch:
                loss = cross_entropy(outputs, batch["label_ids"])
            else:
                loss = cross_entropy(outputs["mlm_logits"], batch["masked_lm_ids"])
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        pairs = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        self.optimizer.apply_gradients(pairs)
        return loss


def main() -> None:
    def start(shape, given):
        set_up(given.threads, given.dtype)
        about = f"Model Garden {version('tf-models-official')}, TensorFlow {tf.__version__}"
        return about, ModelGarden(shape)

    serve_training(start)


if __name__ == "__main__":
    main()
