"""Writes SavedModels that TF Serving loads: text in, answers out.

The text side comes in as a callable, since this package knows no tokenizer.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from modeling.checkpoints.files import join
from modeling.errors import ModelingError
from modeling.logs import only_warnings

Preprocess = Callable[..., Mapping[str, tf.Tensor]]


class Servable(tf.Module):
    """What a SavedModel keeps: variables and signatures, nothing of Keras.

    Tracking Keras variables or layers works in Python but not in the C++ loader of TF Serving.
    """

    def __init__(self, model):
        super().__init__()
        self.model_variables = [weight.value for weight in model.weights]


def export_sentence_model(
    model: keras.Model,
    directory: str,
    kind: str,
    preprocess: Preprocess,
    labels: Sequence[str],
    pairs: bool,
    assets: Mapping[str, str],
) -> str:
    """Exports a model for sentences as the next version in `directory`.

    Signatures, all with any batch size:
        serving_default: string `text_a` [B] (and `text_b` [B] for pairs), or `context` [B] and
            `choices` [B, C] (an empty string is no choice) → the answers.
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids`, [B, T] or [B, R, T] where an
            example has several rows → the same.

    Answers by kind:
        classes: `label` string [B], `probabilities` float32 [B, L].
        multi_label: `labels` string [B, L], empty where the label isn't predicted,
            `probabilities` float32 [B, L].
        regression: `score` float32 [B].
        choices: `choice` int32 [B], counting from 0, `probabilities` float32 [B, C].

    Args:
        model: The trained model.
        directory: Holds one folder per version, numbered from 1, as TF Serving expects.
        kind: See `SentenceHead`.
        preprocess: Texts (string tensors as above) → the model's inputs, in the graph.
        labels: Names of the classes in the order of their ids.
        pairs: Whether the task has two texts.
        assets: File name → path of files to keep with the model, such as the vocabulary.

    Returns:
        The folder of the new version. It appears whole or not at all.
    """
    servable = Servable(model)
    answer = _answers(kind, labels)
    texts = ["text_a", "text_b"] if pairs else ["text_a"]
    shapes = {name: [None] for name in texts}
    if kind == "choices":
        shapes = {"context": [None], "choices": [None, None]}
    several_rows = kind == "choices"

    def from_text(**inputs):
        nonlocal several_rows
        built = preprocess(*(inputs[name] for name in shapes))
        several_rows = built["input_ids"].shape.rank == 3
        return answer(model(built)["logits"])

    def from_ids(**inputs):
        return answer(model(inputs)["logits"])

    text_function = tf.function(from_text).get_concrete_function(
        **{name: tf.TensorSpec(shape, tf.string, name) for name, shape in shapes.items()}
    )
    shape = [None, None, None] if several_rows else [None, None]
    signatures = {
        "serving_default": text_function,
        "tokenized": tf.function(from_ids).get_concrete_function(
            **{
                name: tf.TensorSpec(shape, tf.int32, name)
                for name in ("input_ids", "input_mask", "segment_ids")
            }
        ),
    }
    return save(servable, signatures, directory, assets, {"labels.json": json.dumps(list(labels))})


def _answers(kind: str, labels: Sequence[str]):
    """The function from logits to a signature's outputs."""
    names = tf.constant(list(labels), tf.string)

    def classes(logits):
        label = tf.gather(names, tf.argmax(logits, -1))
        return {"label": label, "probabilities": tf.nn.softmax(logits)}

    def multi_label(logits):
        probabilities = tf.sigmoid(logits)
        return {"labels": tf.where(logits >= 0, names, ""), "probabilities": probabilities}

    def regression(logits):
        return {"score": logits[:, 0]}

    def choices(logits):
        choice = tf.argmax(logits, -1, output_type=tf.int32)
        return {"choice": choice, "probabilities": tf.nn.softmax(logits)}

    return {
        "classes": classes,
        "multi_label": multi_label,
        "regression": regression,
        "choices": choices,
    }[kind]


def save(
    servable: Servable,
    signatures: Mapping,
    directory: str,
    assets: Mapping[str, str],
    texts: Mapping[str, str] | None = None,
) -> str:
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
        for name, content in (texts or {}).items():
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
