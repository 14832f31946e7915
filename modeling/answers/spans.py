"""Answers as spans: the best of each window, and of all windows of a question.

Used alike in prediction and in exported models, so that both give the same answers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

IMPOSSIBLE = -1e9
"""Score of what is no answer: fewer spans than asked for."""


class SpanLogits:
    """One or several question answering models as a function from batches to mean logits.

    Args:
        models: `BertQuestionAnswering`, of any sizes, but with one vocabulary.
    """

    def __init__(self, models: Sequence):
        self.models = list(models)

    def __call__(self, batch: Mapping, **options) -> dict[str, tf.Tensor]:
        """`start_logits`, `end_logits` float32 [B, T] and both as `span_logits` [B, T, 2].

        `options`, such as `execution`, are the models'.
        """
        outputs = [model(batch, **options) for model in self.models]
        start, end = (
            tf.add_n([output[name] for output in outputs]) / len(outputs)
            for name in ("start_logits", "end_logits")
        )
        return {"start_logits": start, "end_logits": end, "span_logits": tf.stack([start, end], 2)}


class SpanSearch:
    """Models as a function from batches to the best spans of each row.

    Args:
        models: See `SpanLogits`.
        n_best: Spans per row.
        max_answer_length: Most pieces of a span.
    """

    def __init__(self, models: Sequence, n_best: int, max_answer_length: int):
        self.logits = SpanLogits(models)
        self.n_best = n_best
        self.max_answer_length = max_answer_length

    def __call__(self, batch: Mapping, **options) -> dict[str, tf.Tensor]:
        """`spans` float32 [B, n_best + 1, 4], see `_row_spans`; `batch` has `start_range`."""
        logits = self.logits(batch, **options)
        return {
            "spans": _row_spans(
                logits["start_logits"],
                logits["end_logits"],
                batch["input_mask"],
                batch["segment_ids"],
                batch["start_range"],
                self.n_best,
                self.max_answer_length,
            )
        }


def _row_spans(
    start_logits, end_logits, input_mask, segment_ids, start_range, n_best, max_answer_length
) -> tf.Tensor:
    """The best spans inside the context of each row.

    A span begins within `start_range`, ends in the row's context, not before it begins, and has
    at most `max_answer_length` pieces; its score is the sum of its two logits (paper, section
    4.2). All spans are compared, not only those of the best starts with the best ends.

    Args:
        start_logits, end_logits: float32 [B, T].
        input_mask, segment_ids: int32 [B, T]; the context is segment 1 but for its last [SEP].
        start_range: int32 [B, 2]; from, to before.
        n_best: How many.
        max_answer_length: See above.

    Returns:
        float32 [B, n_best + 1, 4]: start logit, end logit, start, end of each, the best first.
        What is lacking has logits IMPOSSIBLE. The last is the null answer: both logits of [CLS].
    """
    length = tf.shape(start_logits)[1]
    batch = tf.shape(start_logits)[0]
    place = tf.range(length)[tf.newaxis]
    last = tf.reduce_sum(input_mask, 1, keepdims=True) - 1
    context = (segment_ids == 1) & (place < last)
    may_start = context & (place >= start_range[:, :1]) & (place < start_range[:, 1:])
    starts = tf.where(may_start, start_logits, IMPOSSIBLE)
    ends = tf.where(context, end_logits, IMPOSSIBLE)
    # [B, T, max_answer_length]: the end so many places behind each start.
    padded = tf.pad(ends, [[0, 0], [0, max_answer_length - 1]], constant_values=IMPOSSIBLE)
    behind = tf.stack([padded[:, k : k + length] for k in range(max_answer_length)], 2)
    sums = tf.reshape(starts[:, :, tf.newaxis] + behind, [batch, -1])
    lacking = tf.maximum(n_best - tf.shape(sums)[1], 0)
    sums = tf.pad(sums, [[0, 0], [0, lacking]], constant_values=2 * IMPOSSIBLE)
    _, best = tf.math.top_k(sums, n_best)
    start = tf.minimum(best // max_answer_length, length - 1)
    end = tf.minimum(start + best % max_answer_length, length - 1)
    spans = tf.stack(
        [
            tf.gather(starts, start, batch_dims=1),
            tf.gather(ends, end, batch_dims=1),
            tf.cast(start, tf.float32),
            tf.cast(end, tf.float32),
        ],
        2,
    )
    zero = tf.zeros_like(start_logits[:, 0])
    null = tf.stack([start_logits[:, 0], end_logits[:, 0], zero, zero], 1)
    return tf.concat([spans, null[:, tf.newaxis]], 1)


class BestSpans(NamedTuple):
    """The best spans of questions over all their rows, the best first.

    Attributes:
        start_logits, end_logits: float32 [N, n_best].
        rows: int64 [N, n_best]; number of the row, counted over all questions.
        starts, ends: int32 [N, n_best]; places in the row.
        possible: bool [N, n_best]; False for what is lacking.
        null_starts, null_ends: float32 [N]; of the row whose null answer has the least sum.
    """

    start_logits: tf.Tensor
    end_logits: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    possible: tf.Tensor
    null_starts: tf.Tensor
    null_ends: tf.Tensor


def merge_span_logits(spans: tf.Tensor, counts: tf.Tensor) -> BestSpans:
    """Puts the rows of each question together.

    Args:
        spans: float32 [rows, n_best + 1, 4] of `_row_spans`, question after question.
        counts: int64 [N]; rows of each, one at least.
    """
    number = tf.shape(spans)[1] - 1
    counts = tf.cast(counts, tf.int64)
    rows = tf.RaggedTensor.from_row_lengths(tf.range(tf.shape(spans)[0], dtype=tf.int64), counts)
    grid = rows.to_tensor(-1)  # [N, W]
    # Without a single question there is no column either, which not all operations bear.
    width = tf.maximum(tf.shape(grid)[1], 1)
    grid = tf.pad(grid, [[0, 0], [0, width - tf.shape(grid)[1]]], constant_values=-1)
    is_row = grid >= 0
    of_rows = tf.gather(spans, tf.maximum(grid, 0))  # [N, W, n_best + 1, 4]

    null_starts, null_ends = of_rows[:, :, -1, 0], of_rows[:, :, -1, 1]
    null_sums = tf.where(is_row, null_starts + null_ends, -4 * IMPOSSIBLE)
    least = tf.argmin(null_sums, 1)

    candidates = tf.reshape(of_rows[:, :, :-1], [tf.shape(grid)[0], width * number, 4])
    sums = tf.where(
        tf.repeat(is_row, number, axis=1),
        candidates[:, :, 0] + candidates[:, :, 1],
        4 * IMPOSSIBLE,
    )
    _, best = tf.math.top_k(sums, number)
    chosen = tf.gather(candidates, best, batch_dims=1)
    return BestSpans(
        chosen[:, :, 0],
        chosen[:, :, 1],
        tf.gather(tf.maximum(grid, 0), best // number, batch_dims=1),
        tf.cast(chosen[:, :, 2], tf.int32),
        tf.cast(chosen[:, :, 3], tf.int32),
        tf.gather(sums, best, batch_dims=1) > IMPOSSIBLE / 2,
        tf.gather(null_starts, least, batch_dims=1),
        tf.gather(null_ends, least, batch_dims=1),
    )


def merge_span_arrays(spans: np.ndarray, counts: np.ndarray) -> BestSpans:
    """`merge_span_logits` of NumPy arrays."""
    return BestSpans(
        *(tensor.numpy() for tensor in merge_span_logits(tf.constant(spans), tf.constant(counts)))
    )
