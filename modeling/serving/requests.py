"""What a request has to be, checked in the graph: a client is told what is wrong with it."""

from collections.abc import Callable, Mapping

import tensorflow as tf

Call = Callable[..., Mapping[str, tf.Tensor]]


def checked(call: Call, config=None) -> Call:
    """`call` with checks before it, which fail with InvalidArgument (400 in REST).

    All inputs must have equally many rows. Where there are `input_ids`, the inputs of pieces must
    have one shape, the length must be one that the model has positions for, and ids must be in its
    tables: on accelerators others would give some vector instead of an error.

    Args:
        call: Inputs by name → outputs by name.
        config: The model's `BertConfig`, for ids.
    """

    def call_checked(**inputs: tf.Tensor):
        checks = [*_equal_rows(inputs)]
        if "input_ids" in inputs and config is not None:
            checks += [*_pieces(inputs, config)]
        with tf.control_dependencies(checks):
            return call(**{name: tf.identity(value) for name, value in inputs.items()})

    return call_checked


def _equal_rows(inputs: Mapping[str, tf.Tensor]):
    (first, value), *others = inputs.items()
    rows = tf.shape(value)[0]
    for name, other in others:
        other_rows = tf.shape(other)[0]
        words = [f"{first} has", rows, f"rows, but {name} has", other_rows, ". Give equally many."]
        yield tf.debugging.Assert(rows == other_rows, words)


def _pieces(inputs: Mapping[str, tf.Tensor], config):
    ids = inputs["input_ids"]
    for name in ("input_mask", "segment_ids"):
        shapes = tf.shape(ids), tf.shape(inputs[name])
        words = ["input_ids has the shape", shapes[0], f"but {name} has", shapes[1], "."]
        yield tf.debugging.Assert(tf.reduce_all(shapes[0] == shapes[1]), words)
    length, most = tf.shape(ids)[-1], config.max_position_embeddings
    words = ["The rows of input_ids have", length, f"pieces; the model takes {most} at most."]
    yield tf.debugging.Assert(length <= most, words)
    limits = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
    }
    for name, limit in limits.items():
        value = inputs[name]
        low, high = tf.reduce_min(value), tf.reduce_max(value)
        fine = (tf.size(value) == 0) | ((low >= 0) & (high < limit))
        words = [f"{name} may be from 0 to {limit - 1}, but goes from", low, "to", high, "."]
        yield tf.debugging.Assert(fine, words)
