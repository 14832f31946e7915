"""The SavedModel that answers questions: two strings in, an answer and its place out."""

from collections.abc import Callable
from typing import Protocol

import tensorflow as tf

from modeling.answers.confidence import PlattCalibration, calibrated_confidence
from modeling.answers.spans import IMPOSSIBLE, SpanLogits, SpanSearch, merge_span_logits
from modeling.serving.buckets import in_buckets
from modeling.serving.export import IDS, Export, Signature, in_function, refuse_large_request

_MOST_WINDOWS = 2**18  # a kilobyte each, or so, where the best answers of all are compared


class _ContextWindows(Protocol):
    """What the text side gives, in the graph; `data.tasks.questions.windows` makes it.

    All ragged tensors of places have a row per question; see there.
    """

    input_ids: tf.RaggedTensor
    first_lengths: tf.Tensor
    counts: tf.Tensor
    begins: tf.Tensor
    start_range: tf.Tensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor

    def slices(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """string [n]: of the contexts int32 `rows`, from int32 `begins` to before `ends`, bytes."""


def export_question_answering(
    model,
    export: Export,
    make_windows: Callable[[tf.Tensor, tf.Tensor], _ContextWindows],
    *,
    n_best: int,
    max_answer_length: int,
    version_2: bool,
    threshold: float,
    max_windows: int = 0,
    calibration: PlattCalibration = PlattCalibration(),
) -> str:
    """Exports a question answering model as the next version; returns its folder.

    Signatures, from string `question` [B] and `context` [B]:
        serving_default: `answer` string [B], a slice of the context ("" if there is none);
            `start`, `end` int32 [B] in characters and `start_byte`, `end_byte` in bytes, from and
            to before (-1 without an answer); `score` float32 [B], the sum of its two logits (0
            without one); `probability` among the n best; `confidence`, how probably the answer
            is right, or that there is none, by `calibration` (0 where nothing can be an answer);
            `null_score` float32 [B].
        n_best: the same as `answers`, … [B, n_best], the best first, whatever the null score;
            what is lacking is "" with probability 0.
        examples: serialized tf.Examples with `question` and `context` → as serving_default.
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids` [B, T] → `start_logits`,
            `end_logits` float32 [B, T].

    Args:
        model: `BertQuestionAnswering`.
        export: Where, and with what.
        make_windows: From questions and contexts to windows, in the graph.
        n_best, max_answer_length: See `SpanSearch`.
        version_2: Whether there may be no answer: if the null score exceeds the best one's by
            more than `threshold`.
        max_windows: A context that makes more is refused, as it would take a server's time from
            all others; 0: none is.
        calibration: Of `confidence`, a constant of the graph.
    """
    servable = export.servable(model)
    search = SpanSearch([servable], n_best, max_answer_length)
    span_logits = SpanLogits([servable])

    @in_function
    def find(question, context):
        windows = make_windows(question, context)
        with tf.control_dependencies(_checks(windows.counts, max_windows)):
            ids = windows.input_ids.to_tensor()
        place = tf.range(tf.shape(ids)[1])[tf.newaxis]
        lengths = tf.cast(windows.input_ids.row_lengths(), tf.int32)[:, tf.newaxis]
        mask = tf.cast(place < lengths, tf.int32)
        batch = {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": mask * tf.cast(place >= windows.first_lengths[:, tf.newaxis], tf.int32),
            "start_range": windows.start_range,
        }
        zeros = {"spans": tf.zeros([tf.shape(ids)[0], n_best + 1, 4])}
        spans = merge_span_logits(in_buckets(search, batch, zeros)["spans"], windows.counts)
        first = tf.gather(windows.begins, spans.rows) - tf.cast(
            tf.gather(windows.first_lengths, spans.rows), tf.int64
        )

        def places(ragged, of_rows):
            """Where the pieces at these places of the rows lie in the contexts."""
            piece = first + tf.cast(of_rows, tf.int64) + ragged.row_starts()[:, tf.newaxis]
            flat = tf.concat([ragged.values, ragged.values[:0] + 0, [0]], 0)
            last = tf.size(flat, tf.int64) - 1
            at = tf.where(spans.possible, tf.clip_by_value(piece, 0, last), last)
            return tf.where(spans.possible, tf.cast(tf.gather(flat, at), tf.int32), -1)

        begin = places(windows.byte_starts, spans.starts)
        end = places(windows.byte_ends, spans.ends)
        rows = tf.repeat(tf.range(tf.shape(begin)[0]), n_best)
        begins, ends = (tf.reshape(tf.maximum(at, 0), [-1]) for at in (begin, end))
        texts = windows.slices(rows, begins, ends)
        scores = spans.start_logits + spans.end_logits
        null = spans.null_starts + spans.null_ends
        logits = tf.where(spans.possible, scores, IMPOSSIBLE)
        if version_2:
            logits = tf.concat([logits, null[:, tf.newaxis]], 1)
        return (
            {
                "answer": tf.reshape(texts, tf.shape(begin)),
                "start": places(windows.starts, spans.starts),
                "end": places(windows.ends, spans.ends),
                "start_byte": begin,
                "end_byte": end,
                "score": tf.where(spans.possible, scores, 0.0),
                "probability": tf.nn.softmax(logits)[:, :n_best]
                * tf.cast(spans.possible, tf.float32),
            },
            null,
            spans.possible,
            logits,
            # In float64, so that odds are on the same side of a threshold as in prediction.
            _sum(spans.null_starts, spans.null_ends)
            - _sum(spans.start_logits[:, 0], spans.end_logits[:, 0]),
        )

    def best(question, context):
        answers, null, possible, logits, null_odds = find(question, context)
        answered = possible[:, 0]
        if version_2:
            answered &= null_odds <= threshold
        nothing = {"answer": "", "score": 0.0, "probability": 0.0}
        result = {
            name: tf.where(answered, value[:, 0], tf.constant(nothing.get(name, -1), value.dtype))
            for name, value in answers.items()
        }
        # That there is no answer is the last of the n best.
        given = tf.where(answered, 0, tf.shape(logits)[1] - 1)
        confidence = calibrated_confidence(logits, given, calibration)
        if not version_2:
            confidence = tf.where(answered, confidence, 0.0)
        return result | {"confidence": confidence, "null_score": null}

    def several(question, context):
        answers, null, *_ = find(question, context)
        renamed = {"answer": "answers", "score": "scores", "probability": "probabilities"}
        result = {renamed.get(name, f"{name}s"): value for name, value in answers.items()}
        return result | {"null_score": null}

    def of_pieces(**inputs):
        zeros = tf.zeros(tf.shape(inputs["input_ids"]))
        return in_buckets(span_logits, inputs, {"start_logits": zeros, "end_logits": zeros})

    texts = {name: tf.TensorSpec([None], tf.string) for name in ("question", "context")}
    signatures = {
        "serving_default": Signature(best, texts),
        "n_best": Signature(several, texts),
        "tokenized": Signature(of_pieces, IDS),
    }
    return export.write(servable, signatures)


def _sum(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """In float64."""
    return tf.cast(first, tf.float64) + tf.cast(second, tf.float64)


def _checks(counts: tf.Tensor, max_windows: int) -> list[tf.Operation]:
    most = tf.reduce_max(tf.concat([counts, tf.zeros([1], counts.dtype)], 0))
    remedy = "Send fewer contexts at once, or the long ones by themselves."
    together = refuse_large_request(
        "windows of the contexts", tf.size(counts), most, _MOST_WINDOWS, remedy
    )
    if not max_windows:
        return [together]
    words = ["A context makes", most, f"windows; this model takes {max_windows} at most. Send a"]
    words.append("shorter one, or export the model with a larger --export_max_windows.")
    return [tf.debugging.Assert(most <= max_windows, words), together]
