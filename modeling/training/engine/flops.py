"""How many floating-point operations a BERT step needs: the model's, whatever the program does.

train_step_flops(BertConfig.named("base", 30522), batch_size=8, seq_length=128, labels=2)

Counted are the matrix products, two operations (multiply, add) for every term of a sum; they are
all but a few percent of the work. By the usual convention (Chowdhery et al. 2022, appendix B),
activations that are computed twice to save memory count once, and padding counts as it has the
shapes of real tokens. Left-to-right models are counted as if they computed the whole square.
"""

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from modeling.config import BertConfig


def forward_flops(
    config: BertConfig, batch_size: int, seq_length: int, predictions: int = 0, labels: int = 0
) -> int:
    """Operations of one forward pass over [batch_size, seq_length] places.

    Args:
        config: Sizes of the model.
        batch_size: Rows.
        seq_length: Places in a row, padding included.
        predictions: Masked places in a row, each scored against the whole vocabulary.
        labels: Classes of a row, from the pooled vector; 0: the pooler isn't computed either.

    Returns:
        A whole number for whole numbers. Float tensors may be given for the four sizes and give
        a float tensor.
    """
    hidden = config.hidden_size
    # Query, key, value and output; up and down.
    dense = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    # Queries with keys, probabilities with values: for each place over all places of its row.
    attention = 2 * hidden * seq_length
    row = config.num_hidden_layers * seq_length * (dense + attention)
    row += predictions * hidden * (hidden + config.vocab_size)
    if labels:
        row += hidden * (hidden + labels)
    return 2 * batch_size * row


def train_step_flops(
    config: BertConfig, batch_size: int, seq_length: int, predictions: int = 0, labels: int = 0
) -> int:
    """Operations of a training step: the forward pass, and twice that for the gradients.

    The gradient of a product is one product for either factor. Optimizer, softmax and layer norms
    are no matrix products. Arguments as in `forward_flops`.
    """
    return 3 * forward_flops(config, batch_size, seq_length, predictions, labels)


def batch_flops(
    config: BertConfig, batch: Mapping[str, tf.Tensor], frozen_layers: int = 0
) -> tf.Tensor:
    """float32 scalar: operations of a training step on `batch`, padding included.

    The first `frozen_layers`, with the embeddings, aren't trained: no gradient goes through them.
    """
    shape = tf.cast(tf.shape(batch["input_ids"]), tf.float32)
    rows, length = tf.reduce_prod(shape[:-1]), shape[-1]
    predictions = 0.0
    if "masked_lm_positions" in batch:
        predictions = tf.cast(tf.shape(batch["masked_lm_positions"])[-1], tf.float32)
    labels = 2 if {"next_sentence_labels", "label_ids"} & set(batch) else 0
    total = train_step_flops(config, rows, length, predictions, labels)
    if not frozen_layers:
        return total
    frozen = dataclasses.replace(config, num_hidden_layers=frozen_layers)
    return total - 2 * forward_flops(frozen, rows, length)


def step_flops(
    model: keras.Model, batch: Mapping[str, tf.Tensor], frozen_layers: int = 0
) -> tf.Tensor | None:
    """float32 scalar, of all of a model's encoders; None where it has none, or the batch no ids.

    A teacher's forward pass isn't counted. `frozen_layers` as in `batch_flops`, of each encoder.
    """
    encoders = [getattr(model, name, None) for name in ("encoder", "second_encoder")]
    if encoders[0] is None or "input_ids" not in batch:
        return None
    return tf.add_n(
        [batch_flops(e.config, batch, frozen_layers) for e in encoders if e is not None]
    )
