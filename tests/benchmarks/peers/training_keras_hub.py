"""KerasHub's BERT on TensorFlow, as a process that `tests.benchmarks.training_speed` starts.

Keras's AdamW in a training step inside one graph, as Keras's `fit` has it with jit_compile=False;
--compile has XLA compile the step, which is what `fit` does by default.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from tests.benchmarks.peers import training_worker
from tests.benchmarks.peers.tensorflow_training import Loop, cross_entropy, endless, on_gpu, set_up
from tests.benchmarks.peers.training_worker import Shape, serve_training


def gelu(x):
    """The tanh form, as in the encoder's layers."""
    return keras.activations.gelu(x, approximate=True)


def make_model(shape: Shape) -> keras.Model:
    """Gives logits; with masked words, only those of the places asked for."""
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=shape.vocab_size,
        num_layers=shape.layers,
        num_heads=shape.heads,
        hidden_dim=shape.hidden_size,
        intermediate_dim=shape.inner_size,
        dropout=training_worker.DROPOUT,
        max_sequence_length=shape.positions,
        num_segments=2,
    )
    if shape.labels:
        return keras_hub.models.BertTextClassifier(
            backbone, shape.labels, preprocessor=None, dropout=training_worker.DROPOUT
        )
    # BertMaskedLM is the same, but gives probabilities, of which a loss costs more.
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    head = keras_hub.layers.MaskedLMHead(
        token_embedding=backbone.token_embedding,
        intermediate_activation=gelu,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
    )
    logits = head(backbone.output["sequence_output"], mask_positions=positions)
    return keras.Model({**backbone.input, "mask_positions": positions}, logits)


class KerasHub:
    """Model and AdamW."""

    def __init__(self, shape: Shape, jit_compile: bool):
        keras.utils.set_random_seed(0)
        self.model = make_model(shape)
        self.variables = self.model.trainable_variables
        beta_1, beta_2 = training_worker.BETAS
        self.optimizer = keras.optimizers.AdamW(
            training_worker.LEARNING_RATE,
            weight_decay=training_worker.DECAY,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=training_worker.EPSILON,
            global_clipnorm=training_worker.CLIP_NORM,
        )
        free = [v for v in self.variables if v.path.endswith(("bias", "gamma", "beta"))]
        self.optimizer.exclude_from_weight_decay(var_list=free)
        self.optimizer.build(self.variables)
        step = tf.function(self._step, jit_compile=True) if jit_compile else self._step
        self.run = Loop(step)

    def parameters(self) -> int:
        return sum(int(np.prod(variable.shape)) for variable in self.variables)

    def prepare(self, batches):
        return endless(batches)

    def _step(self, batch):
        inputs = {
            "token_ids": batch["input_ids"],
            "padding_mask": batch["input_mask"],
            "segment_ids": batch["segment_ids"],
        }
        labels = batch.get("label_ids")
        if labels is None:
            inputs["mask_positions"], labels = batch["masked_lm_positions"], batch["masked_lm_ids"]
        with tf.GradientTape() as tape:
            loss = cross_entropy(self.model(inputs, training=True), labels)
        gradients = tape.gradient(loss, [variable.value for variable in self.variables])
        self.optimizer.apply(gradients, self.variables)
        return loss


def main() -> None:
    def start(shape, given):
        set_up(given.threads, given.dtype)
        if on_gpu() and given.dtype == "bfloat16":
            keras.config.set_dtype_policy("mixed_bfloat16")
        about = (
            f"KerasHub {keras_hub.__version__}, Keras {keras.__version__}, "
            f"TensorFlow {tf.__version__}"
        )
        return about, KerasHub(shape, given.compile)

    serve_training(start)


if __name__ == "__main__":
    main()
