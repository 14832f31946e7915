"""Batches of one row per example as arrays, to read them once: no pipeline has to be built.

A tf.data pipeline (`data.batching`) takes longer to build than some thousand rows take to compute,
and does not give all of its memory back: too much where examples come in many portions.
"""

from collections.abc import Callable, Iterator

import numpy as np

from data.batching import EVALUATION_STEP, Batching
from data.errors import DataError
from data.features import Features


def array_batches(
    features: Features, shape: Batching, on_done: Callable[[int], None] | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """The batches of `batching.batches` in evaluation, without what isn't needed for vectors.

    Args:
        features: Examples of a single row.
        shape: `batch_size` and `buckets` count.
        on_done: Called with the number of examples of each batch, once the next one is asked for.

    Yields:
        input_ids, input_mask, segment_ids int32 [batch_size, T]; index int64 [batch_size], -1 for
        rows that only fill the last one up. With buckets from long to short.

    Raises:
        DataError: Examples have several rows.
    """
    check_vector_array_rows(features)
    lengths = features.lengths
    order = np.arange(len(features), dtype=np.int64)
    bounds = shape.bounds(features)
    if bounds is not None:
        order = np.argsort(-lengths, kind="stable")
    filling = np.full(-len(order) % shape.batch_size, -1, np.int64)
    order = np.concatenate([order, filling])
    for begin in range(0, len(order), shape.batch_size):
        index = order[begin : begin + shape.batch_size]
        real = index >= 0
        size = np.where(real, lengths[index], 0)
        width = features.max_seq_length
        if bounds is not None:
            fit = -(-int(size.max()) // EVALUATION_STEP) * EVALUATION_STEP
            width = int(bounds[np.searchsorted(bounds, size.max())])
            width = min(max(fit, EVALUATION_STEP), width)
        place = np.arange(width)
        mask = place < size[:, np.newaxis]
        at = features.splits[np.maximum(index, 0)][:, np.newaxis] + place
        ids = features.ids[np.minimum(at, len(features.ids) - 1)]
        second = mask & (place >= features.first_lengths[index][:, np.newaxis])
        yield {
            "input_ids": np.where(mask, ids, features.pad_id).astype(np.int32),
            "input_mask": mask.astype(np.int32),
            "segment_ids": second.astype(np.int32),
            "index": index,
        }
        if on_done:
            on_done(int(real.sum()))


def check_vector_array_rows(features: Features) -> None:
    """Raises DataError for examples of several rows."""
    if features.several_rows:
        raise DataError(
            "Vectors are stored of examples with a single row; these have several (windows or "
            "choices)."
        )
