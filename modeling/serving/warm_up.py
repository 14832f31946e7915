"""Warm-up requests, which TF Serving replays before a version takes traffic.

TensorFlow prepares a graph at its first request, and each shape asks for memory of its own. The
file holds requests for every signature, over batch sizes and lengths, as serialized PredictionLogs
in a TFRecord: <version>/assets.extra/tf_serving_warmup_requests.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from modeling.checkpoints.files import join

FOLDER, FILE = "assets.extra", "tf_serving_warmup_requests"

# (texts, words of each as a share of the longest input); lengths of one batch differ.
SHAPES = ((1, (0.04,)), (1, (0.12,)), (1, (0.5,)), (1, (0.9,)), (8, (0.08, 0.2)), (32, (0.1, 0.3)))

_FALLBACK = ("one", "two", "three", "more", "words")


def warm_up_words(vocab_file: str) -> list[str]:
    """Whole words of a vocabulary, evenly from all of it."""
    with tf.io.gfile.GFile(vocab_file) as file:
        tokens = file.read().split("\n")
    words = [t for t in tokens if t and not t.startswith(("[", "##")) and t.isalpha()]
    return words[:: max(1, len(words) // 500)] or list(_FALLBACK)


def warm_up_requests(
    name: str,
    signatures: Mapping,
    max_seq_length: int,
    alone: Sequence[int] = (),
    words: Sequence[str] | None = None,
) -> Iterator[bytes]:
    """Serialized PredictionLogs.

    Args:
        name: Of the model.
        signatures: Name → `modeling.serving.export.Signature`.
        max_seq_length: Longest input, in pieces.
        alone: Numbers of pieces that single texts are to have, too, as far as they may.
        words: What texts are made of.
    """
    words = list(words or _FALLBACK)
    most = max(1, max_seq_length - 2)  # words, beside [CLS] and [SEP]
    shapes = [
        [min(max(1, int(max_seq_length * shares[i % len(shares)])), most) for i in range(texts)]
        for texts, shares in SHAPES
    ]
    shapes += [[min(length - 2, most)] for length in alone if length < 2 * max_seq_length]
    for signature_name, signature in signatures.items():
        for counts in shapes:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = name
            request.model_spec.signature_name = signature_name
            for key, value in warm_up_inputs(signature, counts, words).items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            yield log.SerializeToString()


def warm_up_inputs(signature, counts: Sequence[int], words: Sequence[str]) -> dict[str, np.ndarray]:
    """A request of texts with so many words each.

    Strings [B] are a text each, strings [B, C] two of them; numbers [B, …, T] are ones,
    segment_ids 0. Serialized examples are made of what the signature behind them takes.
    """
    texts = [
        " ".join(words[(7 * row + k) % len(words)] for k in range(count))
        for row, count in enumerate(counts)
    ]
    if signature.sample:
        texts = [signature.sample(text) for text in texts]

    def value(name: str, spec: tf.TensorSpec) -> np.ndarray:
        if spec.dtype != tf.string:
            shape = [len(counts), *[2] * (spec.shape.rank - 2), max(counts) + 2]
            # A model may have a single segment.
            return np.full(shape, name != "segment_ids", spec.dtype.as_numpy_dtype)
        if spec.shape.rank == 1:
            return np.array([text.encode() for text in texts], object)
        return np.array([[text.encode()] * 2 for text in texts], object)

    if signature.of_examples is None:
        return {name: value(name, spec) for name, spec in signature.inputs.items()}
    columns = {name: value(name, spec) for name, spec in signature.of_examples.items()}
    (only,) = signature.inputs
    rows = []
    for row in range(len(counts)):
        features = {
            name: tf.train.Feature(
                bytes_list=tf.train.BytesList(value=np.ravel(column[row]).tolist())
            )
            for name, column in columns.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        rows.append(example.SerializeToString())
    return {only: np.array(rows, object)}


def write_warm_up(directory: str, logs: Iterator[bytes]) -> None:
    """Into a SavedModel's folder."""
    folder = join(directory, FOLDER)
    tf.io.gfile.makedirs(folder)
    with tf.io.TFRecordWriter(join(folder, FILE)) as writer:
        for log in logs:
            writer.write(log)
