"""The SavedModel of sentence tasks: texts, pairs or choices in; labels, scores or choices out."""

from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from modeling.metrics import THRESHOLD
from modeling.serving.buckets import in_buckets
from modeling.serving.export import IDS, Export, Signature, in_function, refuse_large_request
from modeling.serving.prediction import COLUMNS

_MOST_PIECES = 2**16  # of one example
_FEWER_CHOICES = "Give an example fewer choices, or shorter ones."

Preprocess = Callable[..., Mapping[str, tf.Tensor]]


def export_sentence_model(
    model: keras.Model,
    export: Export,
    kind: str,
    preprocess: Preprocess,
    labels: Sequence[str],
    pairs: bool,
    columns: Mapping[str, str] | None = None,
    label_thresholds: Sequence[float] | None = None,
    temperature: float = 1.0,
) -> str:
    """Exports a model for sentences as the next version; returns its folder.

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
        columns: Columns of the training files, by the names of the inputs; kept with the model,
            so that files with these columns can be asked as they are.
        label_thresholds: Of "multi_label": from which probability on each label is predicted;
            None: 0.5. They become a constant of the graph, and the asset label_thresholds.json.
        temperature: Of "classes" and "choices": what logits are divided by before their softmax.
            Other than 1 it is the asset temperature.json, too.
    """
    servable = export.servable(model)
    text = tf.TensorSpec([None], tf.string)
    texts = {"text_a": text, "text_b": text} if pairs else {"text_a": text}
    if kind == "choices":
        texts = {"context": text, "choices": tf.TensorSpec([None, None], tf.string)}
    several_rows = preprocess(*(tf.zeros([1] * s.shape.rank, tf.string) for s in texts.values()))
    several_rows = several_rows["input_ids"].shape.rank == 3

    @in_function
    def answer(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        shape = tf.shape(batch["input_ids"])
        if several_rows:
            # An example's rows are computed together.
            check = refuse_large_request(
                "rows of an example", shape[1], shape[2], _MOST_PIECES, _FEWER_CHOICES
            )
            with tf.control_dependencies([check]):
                batch = {name: tf.identity(value) for name, value in batch.items()}
        empty = tf.zeros([shape[0], shape[1]] if kind == "choices" else [shape[0], len(labels)])
        if kind == "regression":
            empty = tf.zeros([shape[0], 1])
        logits = in_buckets(servable, batch, {"logits": empty})["logits"]
        return _answers(kind, logits, list(labels), label_thresholds, temperature)

    def from_text(**inputs):
        if kind == "choices":
            inputs = _with_choices(**inputs)
        answers = answer(preprocess(*(inputs[name] for name in texts)))
        if kind == "choices":
            answers["choice_text"] = tf.gather(inputs["choices"], answers["choice"], batch_dims=1)
        return answers

    def from_ids(**inputs):
        return answer(inputs)

    ids = IDS
    if several_rows:
        ids = {name: tf.TensorSpec([None, None, None], tf.int32) for name in IDS}
    signatures = {
        "serving_default": Signature(from_text, texts),
        "tokenized": Signature(from_ids, ids),
    }
    assets = {"labels.json": labels} | ({COLUMNS: columns} if columns else {})
    if label_thresholds is not None:
        assets["label_thresholds.json"] = list(map(float, label_thresholds))
    if temperature != 1:
        assets["temperature.json"] = {"temperature": temperature}
    return export.write(servable, signatures, assets)


def _with_choices(context: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
    """Where there are no rows a choice for each, as argmax wants; else there have to be some.

    An empty string is none.
    """
    number = tf.shape(choices)[1]
    some = tf.reduce_any(tf.strings.length(choices) > 0, 1)
    checks = [
        tf.debugging.Assert(tf.reduce_all(some), ["Each context needs a choice."]),
        # None of them has fewer pieces than its three special tokens.
        refuse_large_request("choices of an example", number, 3, _MOST_PIECES, _FEWER_CHOICES),
    ]
    with tf.control_dependencies(checks):
        choices = tf.pad(choices, [[0, 0], [0, tf.maximum(1 - number, 0)]])
    return {"context": context, "choices": choices}


def _answers(
    kind: str,
    logits: tf.Tensor,
    names: Sequence[str],
    thresholds: Sequence[float] | None,
    temperature: float,
) -> dict[str, tf.Tensor]:
    """From logits float32 [B, L] and the labels' names [L], and thresholds [L]."""
    if kind == "regression":
        return {"score": logits[:, 0]}
    if kind == "choices":
        choice = tf.argmax(logits, -1, output_type=tf.int32)
        return {"choice": choice, "probabilities": tf.nn.softmax(logits / temperature)}
    labels = tf.repeat(tf.constant([names], tf.string), tf.shape(logits)[0], 0)
    if kind == "multi_label":
        probabilities = tf.sigmoid(logits)
        chosen = probabilities >= tf.constant(THRESHOLD if thresholds is None else thresholds)
        # Not chosen from strings, which LiteRT can't, but from their numbers.
        numbers = tf.where(chosen, tf.range(1, len(names) + 1), 0)
        predicted = tf.gather(tf.constant(["", *names], tf.string), numbers)
        return {"labels": labels, "predicted": predicted, "probabilities": probabilities}
    probabilities = tf.nn.softmax(logits / temperature)
    return {
        "label": tf.gather(tf.constant(names, tf.string), tf.argmax(logits, -1)),
        "score": tf.reduce_max(probabilities, -1),
        "labels": labels,
        "probabilities": probabilities,
    }
