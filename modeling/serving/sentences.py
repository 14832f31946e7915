"""The SavedModel of sentence tasks: texts, pairs or choices in; labels, scores or choices out."""

from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from modeling.serving.buckets import in_buckets
from modeling.serving.export import IDS, Export, Signature
from modeling.serving.storage import Servable

Preprocess = Callable[..., Mapping[str, tf.Tensor]]


def export_sentence_model(
    model: keras.Model,
    export: Export,
    kind: str,
    preprocess: Preprocess,
    labels: Sequence[str],
    pairs: bool,
) -> str:
    """Exports a model for sentences as the next version.

    Signatures, all with any batch size:
        serving_default: string `text_a` [B] (and `text_b` [B] for pairs), or `context` [B] and
            `choices` [B, C] (an empty string is no choice) → the answers.
        examples: the same texts as serialized tf.Examples → the same.
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids`, [B, T] or [B, R, T] where an
            example has several rows → the same, without the text of the choice.

    Answers by kind:
        classes: `label` string [B], `score` float32 [B], its probability; `labels` string [B, L]
            and `probabilities` float32 [B, L], in one order.
        multi_label: `labels` string [B, L], `probabilities` float32 [B, L], and `predicted`
            string [B, L], "" where the label isn't predicted.
        regression: `score` float32 [B].
        choices: `choice` int32 [B], counting from 0, `choice_text` string [B], `probabilities`
            float32 [B, C].

    Args:
        model: The trained model.
        export: Where, and with what.
        kind: See `SentenceHead`.
        preprocess: Texts (string tensors as above) → the model's inputs, in the graph.
        labels: Names of the classes in the order of their ids.
        pairs: Whether the task has two texts.

    Returns:
        The folder of the new version. It appears whole or not at all.
    """
    servable, answer = Servable(model, export.dtype), ANSWERS[kind](labels)
    text = tf.TensorSpec([None], tf.string)
    texts = {"text_a": text, "text_b": text} if pairs else {"text_a": text}
    if kind == "choices":
        texts = {"context": text, "choices": tf.TensorSpec([None, None], tf.string)}
    several_rows = preprocess(*(tf.zeros([1] * s.shape.rank, tf.string) for s in texts.values()))
    several_rows = several_rows["input_ids"].shape.rank == 3

    def logits(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        shape = tf.shape(batch["input_ids"])
        empty = tf.zeros([shape[0], shape[1]] if kind == "choices" else [shape[0], len(labels)])
        if kind == "regression":
            empty = tf.zeros([shape[0], 1])
        return in_buckets(servable, batch, {"logits": empty})["logits"]

    def from_text(**inputs):
        answers = answer(logits(preprocess(*(inputs[name] for name in texts))))
        if kind == "choices":
            answers["choice_text"] = tf.gather(inputs["choices"], answers["choice"], batch_dims=1)
        return answers

    def from_ids(**inputs):
        return answer(logits(inputs))

    ids = IDS
    if several_rows:
        ids = {name: tf.TensorSpec([None, None, None], tf.int32) for name in IDS}
    signatures = {
        "serving_default": Signature(from_text, texts),
        "tokenized": Signature(from_ids, ids),
    }
    return export.write(servable, signatures, {"labels.json": labels})


def _classes(labels: Sequence[str]):
    names = tf.constant(list(labels), tf.string)

    def answer(logits):
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(names, tf.argmax(logits, -1)),
            "score": tf.reduce_max(probabilities, -1),
            "labels": tf.repeat(names[tf.newaxis], tf.shape(logits)[0], 0),
            "probabilities": probabilities,
        }

    return answer


def _multi_label(labels: Sequence[str]):
    names = tf.constant(list(labels), tf.string)

    def answer(logits):
        return {
            "labels": tf.repeat(names[tf.newaxis], tf.shape(logits)[0], 0),
            "predicted": tf.where(logits >= 0, names, ""),
            "probabilities": tf.sigmoid(logits),
        }

    return answer


def _regression(_):
    return lambda logits: {"score": logits[:, 0]}


def _choices(_):
    def answer(logits):
        choice = tf.argmax(logits, -1, output_type=tf.int32)
        return {"choice": choice, "probabilities": tf.nn.softmax(logits)}

    return answer


ANSWERS = {
    "classes": _classes,
    "multi_label": _multi_label,
    "regression": _regression,
    "choices": _choices,
}
"""Kind → from labels to the function from logits to a signature's outputs."""
