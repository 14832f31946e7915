"""Writes SavedModels that TF Serving loads: text in, answers out.

The text side comes in as a callable, since this package knows no tokenizer.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from modeling.checkpoints.files import join
from modeling.errors import ModelingError
from modeling.logs import only_warnings
from modeling.models import BertClassifier

Preprocess = Callable[..., Mapping[str, tf.Tensor]]


class _Servable(tf.Module):
    """What a SavedModel keeps: variables and signatures, nothing of Keras.

    Tracking Keras variables or layers works in Python but not in the C++ loader of TF Serving.
    """

    def __init__(self, model):
        super().__init__()
        self.model_variables = [weight.value for weight in model.weights]


def export_classifier(
    model: BertClassifier,
    directory: str,
    preprocess: Preprocess,
    labels: Sequence[str],
    pairs: bool,
    assets: Mapping[str, str],
) -> str:
    """Exports a classifier as the next version in `directory`.

    Signatures, all with any batch size:
        serving_default: string `text_a` [B] (and `text_b` [B] for pairs) → `label` string [B],
            `probabilities` float32 [B, labels].
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids` [B, T] → the same.

    Args:
        model: The trained classifier.
        directory: Holds one folder per version, numbered from 1, as TF Serving expects.
        preprocess: Texts (one or two string tensors [B]) → the model's inputs, in the graph.
        labels: Names of the classes in the order of their ids.
        pairs: Whether the task has two texts.
        assets: File name → path of files to keep with the model, such as the vocabulary.

    Returns:
        The folder of the new version. It appears whole or not at all.
    """
    servable = _Servable(model)
    names = tf.constant(list(labels))

    def answer(inputs):
        logits = model(inputs)["logits"]
        return {
            "label": tf.gather(names, tf.argmax(logits, -1)),
            "probabilities": tf.nn.softmax(logits),
        }

    text = {"text_a": tf.TensorSpec([None], tf.string, "text_a")}
    if pairs:
        text["text_b"] = tf.TensorSpec([None], tf.string, "text_b")

        def from_text(text_a, text_b):
            return answer(preprocess(text_a, text_b))
    else:

        def from_text(text_a):
            return answer(preprocess(text_a))

    def from_ids(input_ids, input_mask, segment_ids):
        return answer(
            {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        )

    ids = {
        name: tf.TensorSpec([None, None], tf.int32, name)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    signatures = {
        "serving_default": tf.function(from_text).get_concrete_function(**text),
        "tokenized": tf.function(from_ids).get_concrete_function(**ids),
    }
    return _save(servable, signatures, directory, assets, {"labels.json": json.dumps(list(labels))})


def _save(servable, signatures, directory, assets, texts) -> str:
    """Saves under a temporary name, then renames to the next free version."""
    try:
        tf.io.gfile.makedirs(directory)
        taken = [int(v) for v in map(_bare, tf.io.gfile.listdir(directory)) if v.isdigit()]
        target = join(directory, str(max(taken, default=0) + 1))
        temporary = join(directory, f".saving-{os.getpid()}")
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)
        with only_warnings():
            tf.saved_model.save(servable, temporary, signatures=signatures)
        folder = join(temporary, "assets")
        tf.io.gfile.makedirs(folder)
        for name, path in assets.items():
            tf.io.gfile.copy(path, join(folder, name), overwrite=True)
        for name, content in texts.items():
            with tf.io.gfile.GFile(join(folder, name), "w") as file:
                file.write(content + "\n")
        tf.io.gfile.rename(temporary, target)
    except (tf.errors.OpError, OSError) as error:
        raise ModelingError(
            f"The SavedModel can't be written to {directory}: {error}. Check that the folder may "
            f"be written and that the disk isn't full."
        ) from error
    return target


def _bare(name: str) -> str:
    return name.rstrip("/")
