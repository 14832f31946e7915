"""Fine-tuning examples to batches: tokenised once, then length buckets or static shapes.

The pipeline holds the pieces of all examples as two arrays and moves only example numbers about;
rows are gathered and padded at its very end. So an iterator's checkpoint is one epoch's order,
whatever the data, and everything is deterministic.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.tasks.glue import Example
from data.tokenization import Tokenizer
from data.tokenization.inputs import pack_inputs

BUCKETS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Lengths that batches are padded to by default; few, as compilers make a program of each."""

_TEXTS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class TokenizedExamples:
    """Examples as arrays, without padding.

    Attributes:
        ids: int32 [all pieces of all examples].
        splits: int64 [N + 1]; example i is ids[splits[i]:splits[i + 1]].
        first_lengths: int32 [N]; how many of its pieces are of segment 0.
        label_ids: int32 [N]; 0 where there is no label.
        max_seq_length: What the examples were truncated to.
        pad_id: Id that fills rows up.
    """

    ids: np.ndarray
    splits: np.ndarray
    first_lengths: np.ndarray
    label_ids: np.ndarray
    max_seq_length: int
    pad_id: int

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N], pieces with [CLS] and [SEP]."""
        return np.diff(self.splits)

    def __len__(self) -> int:
        return len(self.label_ids)


def default_buckets(max_seq_length: int) -> list[int]:
    """The default lengths below `max_seq_length`, and that itself."""
    return [bound for bound in BUCKETS if bound < max_seq_length] + [max_seq_length]


def tokenize_examples(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    labels: Sequence[str],
    max_seq_length: int,
) -> TokenizedExamples:
    """Tokenises and truncates examples, about a thousand at a time in the graph.

    Raises:
        DataError: An example's label isn't among `labels`.
    """

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def pack(texts_a: tf.Tensor, texts_b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ids, segments = pack_inputs(
            tokenizer,
            tokenizer.tokenize(texts_a),
            tokenizer.tokenize(texts_b),
            max_seq_length=max_seq_length,
        )
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        return ids.values, lengths, lengths - tf.reduce_sum(segments, 1)

    ids = [np.zeros(0, np.int32)]
    lengths = [np.zeros(0, np.int32)]
    first_lengths = [np.zeros(0, np.int32)]
    for begin in range(0, len(examples), _TEXTS_AT_ONCE):
        part = examples[begin : begin + _TEXTS_AT_ONCE]
        results = pack(
            tf.constant([example.text_a for example in part]),
            tf.constant([example.text_b or "" for example in part]),
        )
        for whole, result in zip((ids, lengths, first_lengths), results, strict=True):
            whole.append(result.numpy())
    return TokenizedExamples(
        ids=np.concatenate(ids),
        splits=np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)]),
        first_lengths=np.concatenate(first_lengths),
        label_ids=_label_ids(examples, labels),
        max_seq_length=max_seq_length,
        pad_id=tokenizer.pad_id,
    )


def examples_dataset(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    labels: Sequence[str],
    max_seq_length: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    buckets: Sequence[int] | None = None,
    **parts,
) -> tf.data.Dataset:
    """Batches of examples: `tokenize_examples`, then `batches`; see there."""
    tokenized = tokenize_examples(tokenizer, examples, labels, max_seq_length)
    return batches(tokenized, batch_size, training, seed, buckets, **parts)


def batches(
    tokenized: TokenizedExamples,
    batch_size: int,
    training: bool,
    seed: int = 0,
    buckets: Sequence[int] | None = None,
    num_parts: int = 1,
    parts: Sequence[int] = (0,),
) -> tf.data.Dataset:
    """Batches of tokenised examples.

    In training the whole set is put in a new order each epoch, forever; the order depends on
    `seed` and the epoch only. All batches are full: what is left over of an epoch, by chance, has
    its turn in others. In evaluation every example comes exactly once.

    Args:
        tokenized: The examples.
        batch_size: Rows of a batch.
        training: See above.
        seed: For the order in training.
        buckets: None makes all batches [batch_size, max_seq_length], as TPUs need; the last one
            in evaluation is filled with empty rows (is_real_example 0, index -1). A list of
            lengths makes batches of examples of like length, padded to the next of these lengths;
            then the last one in evaluation may have fewer rows, and examples come from long to
            short: `index` tells which they are.
        num_parts: Cuts each batch into so many of equal size (which `batch_size` has to allow);
            all are full then, if need be with empty rows.
        parts: Which of the parts to return, one after the other: what one of several workers
            computes. Together the workers have exactly the batches that one alone would have.

    Returns:
        Dataset of dicts: input_ids, input_mask, segment_ids int32 [B, T]; label_ids int32 [B];
        is_real_example float32 [B]; index int64 [B], the example's place in the list.

    Raises:
        DataError: There are no examples to train on.
    """
    if training and not len(tokenized):
        raise DataError("There are no examples to train on; the list is empty.")
    longest = tokenized.max_seq_length
    bounds = None
    if buckets is not None:
        bounds = np.array(sorted({*(b for b in buckets if b < longest), longest}), np.int64)
    if training:
        dataset = _training_order(tokenized, batch_size, seed, bounds)
    else:
        dataset = _evaluation_order(tokenized, batch_size, bounds, full=num_parts > 1)
    if num_parts > 1:
        dataset = dataset.flat_map(
            lambda index: tf.data.Dataset.from_tensor_slices(
                tf.gather(tf.reshape(index, [num_parts, batch_size // num_parts]), list(parts))
            )
        )
    dataset = dataset.map(_gatherer(tokenized, bounds))
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options).prefetch(1)


def sources(examples: Sequence[Example], index: np.ndarray, limit: int = 8) -> str:
    """Where the examples of a batch come from, for messages: "train.tsv:17, train.tsv:3, …"."""
    known = [examples[i].source for i in index if i >= 0]
    more = f" and {len(known) - limit} more" if len(known) > limit else ""
    return ", ".join(known[:limit]) + more


def _training_order(
    tokenized: TokenizedExamples, batch_size: int, seed: int, bounds: np.ndarray | None
) -> tf.data.Dataset:
    """Dataset of int64 [batch_size]: example numbers, epoch after epoch."""
    number = len(tokenized)
    # Fewer examples than a batch has rows: one round then is several epochs.
    epochs_per_round = math.ceil(batch_size / number)
    steps = number * epochs_per_round // batch_size
    bucket_of = None
    if bounds is not None:
        bucket_of = tf.constant(np.searchsorted(bounds, tokenized.lengths), tf.int32)

    def shuffled(values: tf.Tensor, *place: tf.Tensor | int) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(
            values, tf.stack([tf.cast(seed, tf.int64), *place]), alg="philox"
        )

    def order(round_number: tf.Tensor) -> tf.data.Dataset:
        draws = round_number * (epochs_per_round + 1)
        epochs = [
            shuffled(tf.range(number, dtype=tf.int64), draws + index)
            for index in range(epochs_per_round)
        ]
        # Cut before sorting: it would always be the longest that are left over.
        chosen = tf.concat(epochs, 0)[: steps * batch_size]
        if bucket_of is not None:
            chosen = tf.gather(chosen, tf.argsort(tf.gather(bucket_of, chosen), stable=True))
        chosen = tf.reshape(chosen, [steps, batch_size])
        if bucket_of is not None:
            chosen = shuffled(chosen, draws + epochs_per_round)
        return tf.data.Dataset.from_tensor_slices(chosen)

    return tf.data.Dataset.counter().flat_map(order)


def _evaluation_order(
    tokenized: TokenizedExamples, batch_size: int, bounds: np.ndarray | None, full: bool
) -> tf.data.Dataset:
    """Dataset of int64 [B]: every example number once, -1 for filling."""
    order = np.arange(len(tokenized), dtype=np.int64)
    if bounds is not None:
        order = np.argsort(-tokenized.lengths, kind="stable").astype(np.int64)
    if bounds is None or full:
        filling = np.full(-len(order) % batch_size, -1, np.int64)
        order = np.concatenate([order, filling]).reshape([-1, batch_size])
        return tf.data.Dataset.from_tensor_slices(order)
    return tf.data.Dataset.from_tensor_slices(order).batch(batch_size)


def _gatherer(tokenized: TokenizedExamples, bounds: np.ndarray | None):
    """The function from example numbers [B] to a batch."""
    pieces = tf.constant(tokenized.ids)
    starts = tf.constant(tokenized.splits[:-1])
    lengths_of = tf.constant(tokenized.lengths.astype(np.int32))
    first_lengths_of = tf.constant(tokenized.first_lengths)
    label_ids_of = tf.constant(tokenized.label_ids)
    longest = tokenized.max_seq_length
    bound_lengths = None if bounds is None else tf.constant(bounds.astype(np.int32))

    def gather(index: tf.Tensor) -> dict[str, tf.Tensor]:
        real = index >= 0
        at = tf.maximum(index, 0)
        lengths = tf.where(real, tf.gather(lengths_of, at), 0)
        first_lengths = tf.gather(first_lengths_of, at)
        if bound_lengths is None:
            width = longest
        else:
            place = tf.searchsorted(bound_lengths, tf.reduce_max(lengths)[tf.newaxis])[0]
            width = bound_lengths[place]
        places = tf.gather(starts, at)[:, tf.newaxis] + tf.range(tf.cast(width, tf.int64))
        ids = tf.gather(pieces, tf.minimum(places, len(tokenized.ids) - 1))
        mask = tf.sequence_mask(lengths, width)
        second = mask & ~tf.sequence_mask(first_lengths, width)
        return {
            "input_ids": tf.where(mask, ids, tokenized.pad_id),
            "input_mask": tf.cast(mask, tf.int32),
            "segment_ids": tf.cast(second, tf.int32),
            "label_ids": tf.where(real, tf.gather(label_ids_of, at), 0),
            "is_real_example": tf.cast(real, tf.float32),
            "index": index,
        }

    return gather


def _label_ids(examples: Sequence[Example], labels: Sequence[str]) -> np.ndarray:
    ids = {label: index for index, label in enumerate(labels)}
    found = np.zeros(len(examples), np.int32)
    for index, example in enumerate(examples):
        if example.label is None:
            continue
        if example.label not in ids:
            raise DataError(
                f"{example.source}: the label is {example.label!r}; the labels are "
                f"{', '.join(labels)}."
            )
        found[index] = ids[example.label]
    return found
