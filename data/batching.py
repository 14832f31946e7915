"""Features to batches: length buckets, a budget of tokens, or static shapes.

The pipeline holds the pieces of all examples as two arrays and moves only example numbers about;
rows are gathered and padded at its very end. So an iterator's checkpoint is one epoch's order,
whatever the data, and everything is deterministic.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from data.dataset_options import deterministic_dataset
from data.errors import DataError
from data.features import Features
from data.tasks.sentences.examples import Example

BUCKETS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Lengths that batches are padded to by default; few, as compilers make a program of each."""

_SOURCE = re.compile(r"(.*):(?: ?(row) )?(\d+)", re.DOTALL)

EVALUATION_STEP = 8
"""In evaluation with buckets rows are padded to a multiple of this, if that is shorter."""


def batching_length_buckets(max_seq_length: int) -> list[int]:
    """The default lengths below `max_seq_length`, and that itself."""
    return [bound for bound in BUCKETS if bound < max_seq_length] + [max_seq_length]


@dataclasses.dataclass(frozen=True)
class Batching:
    """How examples are put together.

    Attributes:
        batch_size: Examples of a batch.
        buckets: None makes all batches [batch_size, max_seq_length], as TPUs need; the last one
            in evaluation is filled with empty rows (is_real_example 0, index -1). A list of
            lengths makes batches of examples of like length, padded to the next of these lengths
            (in evaluation of EVALUATION_STEP's multiples too); then the last one in evaluation may
            have fewer rows, and examples come from long to short: `index` tells which they are.
        tokens: Places of a training batch, padding counted, in place of `batch_size`: as many
            examples as fit, so that batches of short texts have more. Needs buckets. Every
            example then has its turn in each epoch.
        multiple: With `tokens`, batches are filled up to a multiple with empty rows.
        num_parts: Cuts each batch into so many of equal size (which `batch_size` has to allow);
            all are full then, if need be with empty rows.
        parts: Which of the parts to return, one after the other: what one of several workers
            computes. Together the workers have exactly the batches that one alone would have.
    """

    batch_size: int
    buckets: Sequence[int] | None = None
    tokens: int = 0
    multiple: int = 1
    num_parts: int = 1
    parts: Sequence[int] = (0,)

    def bounds(self, features: Features) -> np.ndarray | None:
        """int64 [number of lengths], ascending, the longest is max_seq_length."""
        if self.buckets is None:
            return None
        longest = features.max_seq_length
        return np.array(sorted({*(b for b in self.buckets if b < longest), longest}), np.int64)


def batches_per_epoch(features: Features, batching: Batching) -> float:
    """Training batches that the examples make, with a token budget; else N / batch_size."""
    if not batching.tokens:
        return len(features) / batching.batch_size
    return float(len(_budget_splits(features, batching)) - 1)


# Rewriting the functions of its steps by AutoGraph, which none of them needs, takes seconds.
@tf.autograph.experimental.do_not_convert
def batches(
    features: Features, batching: Batching, training: bool, seed: int = 0
) -> tf.data.Dataset:
    """Batches of tokenised examples.

    In training the whole set is put in a new order each epoch, forever; the order depends on
    `seed` and the epoch only. All batches are full: what is left over of an epoch, by chance, has
    its turn in others. In evaluation every example comes exactly once.

    Returns:
        Dataset of dicts: input_ids, input_mask, segment_ids int32 [B, T], or [B, R, T] of
        examples with several rows, of which the missing ones have no pieces; label_ids, see
        `Features`; is_real_example float32 [B]; index int64 [B], the example's place in the list;
        what `Features.extra` and `piece_labels` hold.

    Raises:
        DataError: There are no examples to train on, or a token budget without buckets.
    """
    if training and not len(features):
        raise DataError("There are no examples to train on; the list is empty.")
    if batching.tokens and batching.buckets is None:
        raise DataError(
            "A budget of tokens makes batches of different shapes, but here all have to have one "
            "(XLA or a TPU): give the batch size in examples."
        )
    if training:
        dataset = _training_order(features, batching, seed)
    else:
        dataset = _evaluation_order(features, batching)
    if batching.num_parts > 1:
        dataset = dataset.flat_map(
            lambda index: tf.data.Dataset.from_tensor_slices(
                tf.gather(tf.reshape(index, [batching.num_parts, -1]), list(batching.parts))
            )
        )
    dataset = dataset.map(_gatherer(features, batching, training))
    return deterministic_dataset(dataset).prefetch(1)


def batching_sources(examples: Sequence[Example], index: np.ndarray) -> str:
    """Where the examples of a batch come from, for messages: "a.tsv: lines 3, 17; b.tsv: line 5".

    The index, int64 [B], has their places among all examples; -1 for rows that only fill it.
    """
    of_file: dict[tuple[str, str], set[int]] = {}
    for place in sorted({int(place) for place in index if place >= 0}):
        # "a.tsv:3" is a line, "a.parquet: row 3" a row.
        file, unit, number = _SOURCE.fullmatch(examples[place].source).groups()
        of_file.setdefault((file, unit or "line"), set()).add(int(number))
    return "; ".join(
        f"{file}: {unit}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"
        for (file, unit), numbers in of_file.items()
    )


def _like_lengths(features: Features, bounds: np.ndarray) -> np.ndarray:
    """int64 [N]: number of the batch shape that each example needs, small before large."""
    bucket = np.searchsorted(bounds, features.lengths)
    return (features.num_rows - 1) * len(bounds) + bucket


def _training_order(features: Features, batching: Batching, seed: int) -> tf.data.Dataset:
    """Dataset of int64 [B]: example numbers, epoch after epoch; -1 for filling with a budget."""
    number, batch_size = len(features), batching.batch_size
    # Fewer examples than a batch has rows: one round then is several epochs.
    epochs = 1 if batching.tokens else math.ceil(batch_size / number)
    bounds = batching.bounds(features)
    shape_of = None if bounds is None else tf.constant(_like_lengths(features, bounds), tf.int32)
    splits = tf.constant(_budget_splits(features, batching)) if batching.tokens else None
    multiple = math.lcm(batching.multiple, batching.num_parts)

    def shuffled(values: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(
            values, tf.stack([tf.cast(seed, tf.int64), draw]), alg="philox"
        )

    def order(round_number: tf.Tensor) -> tf.data.Dataset:
        draws = round_number * (epochs + 1)
        numbers = tf.range(number, dtype=tf.int64)
        chosen = tf.concat([shuffled(numbers, draws + index) for index in range(epochs)], 0)
        if splits is None:
            # Cut before sorting: it would always be the longest that are left over.
            chosen = chosen[: number * epochs // batch_size * batch_size]
        if shape_of is not None:
            chosen = tf.gather(chosen, tf.argsort(tf.gather(shape_of, chosen), stable=True))
        if splits is None:
            chosen = tf.reshape(chosen, [-1, batch_size])
        else:
            chosen = tf.RaggedTensor.from_row_splits(chosen, splits).to_tensor(-1)
        if shape_of is not None:
            chosen = shuffled(chosen, draws + epochs)
        return tf.data.Dataset.from_tensor_slices(chosen)

    def filled(index: tf.Tensor) -> tf.Tensor:
        index = tf.boolean_mask(index, index >= 0)
        return tf.pad(index, [[0, -tf.size(index) % multiple]], constant_values=-1)

    dataset = tf.data.Dataset.counter().flat_map(order)
    return dataset.map(filled) if batching.tokens else dataset


def _budget_splits(features: Features, batching: Batching) -> np.ndarray:
    """int64 [batches + 1]: where the batches of an epoch begin when examples stand by shape."""
    bounds = batching.bounds(features)
    shapes, counts = np.unique(_like_lengths(features, bounds), return_counts=True)
    multiple = math.lcm(batching.multiple, batching.num_parts)
    sizes = []
    for shape, count in zip(shapes, counts, strict=True):
        places = (1 + shape // len(bounds)) * bounds[shape % len(bounds)]
        size = max(batching.tokens // places // multiple, 1) * multiple
        sizes += [size] * (count // size) + ([count % size] if count % size else [])
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _evaluation_order(features: Features, batching: Batching) -> tf.data.Dataset:
    """Dataset of int64 [B]: every example number once, -1 for filling."""
    order = np.arange(len(features), dtype=np.int64)
    if batching.buckets is not None:
        order = np.lexsort([-features.lengths, -features.num_rows]).astype(np.int64)
    if batching.buckets is None or batching.num_parts > 1:
        filling = np.full(-len(order) % batching.batch_size, -1, np.int64)
        order = np.concatenate([order, filling]).reshape([-1, batching.batch_size])
        return tf.data.Dataset.from_tensor_slices(order)
    return tf.data.Dataset.from_tensor_slices(order).batch(batching.batch_size)


def _gatherer(features: Features, batching: Batching, training: bool):
    """The function from example numbers [B] to a batch."""
    bounds = batching.bounds(features)
    # What several workers have predicted of one batch must fit together.
    static_rows = bounds is None or (batching.num_parts > 1 and not training)
    pieces = tf.constant(features.ids)
    starts = tf.constant(features.splits[:-1])
    lengths_of = tf.constant(np.diff(features.splits).astype(np.int32))
    first_lengths_of = tf.constant(features.first_lengths)
    first_row_of = tf.constant(features.row_splits[:-1])
    num_rows_of = tf.constant(features.num_rows)
    label_ids_of = tf.constant(features.label_ids)
    extra_of = {name: tf.constant(values) for name, values in features.extra.items()}
    labelled_pieces = features.piece_labels is not None
    piece_labels = tf.constant(features.piece_labels if labelled_pieces else [], tf.int32)
    longest = features.max_seq_length
    most_rows = int(features.num_rows.max(initial=1))
    bound_lengths = None if bounds is None else tf.constant(bounds.astype(np.int32))

    def rows_of(at: tf.Tensor, real: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Row numbers [B] or [B, R] and which of them are rows of the batch."""
        first = tf.gather(first_row_of, at)
        if not features.several_rows:
            return first, real
        counts = tf.where(real, tf.gather(num_rows_of, at), 0)
        most = most_rows if static_rows else tf.maximum(tf.reduce_max(counts), 1)
        number = tf.range(tf.cast(most, tf.int64))
        is_row = number < counts[:, tf.newaxis]
        return tf.where(is_row, first[:, tf.newaxis] + number, 0), is_row

    def of_examples(values: tf.Tensor, at: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        real = tf.reshape(real, [-1, *(1 for _ in values.shape[1:])])
        return tf.where(real, tf.gather(values, at), tf.zeros([], values.dtype))

    def gather(index: tf.Tensor) -> dict[str, tf.Tensor]:
        real = index >= 0
        at = tf.maximum(index, 0)
        rows, is_row = rows_of(at, real)
        lengths = tf.where(is_row, tf.gather(lengths_of, rows), 0)
        first_lengths = tf.gather(first_lengths_of, rows)
        if bound_lengths is None:
            width = longest
        else:
            most = tf.reduce_max(lengths)
            width = bound_lengths[tf.searchsorted(bound_lengths, most[tf.newaxis])[0]]
            if not training:
                # Sorted by length a batch lies close together, and needn't have one of few shapes.
                fit = -(-most // EVALUATION_STEP) * EVALUATION_STEP
                width = tf.minimum(tf.maximum(fit, EVALUATION_STEP), width)
        places = tf.gather(starts, rows)[..., tf.newaxis] + tf.range(tf.cast(width, tf.int64))
        places = tf.minimum(places, len(features.ids) - 1)
        mask = tf.sequence_mask(lengths, width)
        second = mask & ~tf.sequence_mask(first_lengths, width)
        batch = {
            "input_ids": tf.where(mask, tf.gather(pieces, places), features.pad_id),
            "input_mask": tf.cast(mask, tf.int32),
            "segment_ids": tf.cast(second, tf.int32),
            "label_ids": of_examples(label_ids_of, at, real),
            "is_real_example": tf.cast(real, tf.float32),
            "index": index,
        } | {name: of_examples(values, at, real) for name, values in extra_of.items()}
        if labelled_pieces:
            batch["piece_labels"] = tf.where(mask, tf.gather(piece_labels, places), -1)
        return batch

    return gather
