"""Batches of mixed lengths, computed in groups of like lengths: in the graph of an export.

A short text next to a long one isn't computed at the long one's length.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

LIMITS = (64, 128, 256, 384, *(2**n for n in range(9, 15)))
"""Texts between two of these are one group, padded to its longest; beyond the last, another.

Few, since padding costs in attention only (`graph.unpadding`), and larger products are faster.
"""

PIECES_AT_ONCE = 16_384
"""Most places of a group, so that memory doesn't grow with the windows of a long context."""

PIECES = ("input_ids", "input_mask", "segment_ids")
"""Inputs whose last axis is that of the pieces."""

Call = Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]


def in_buckets(
    call: Call,
    batch: Mapping[str, tf.Tensor],
    results: Mapping[str, tf.Tensor],
    cut: Sequence[str] = PIECES,
    most_rows: tf.Tensor | int | None = None,
) -> dict[str, tf.Tensor]:
    """What `call` gives, with less padding.

    Args:
        call: The model. Its outputs have a row for each of the batch's.
        batch: `input_ids`, `input_mask`, `segment_ids` int32 [N, ..., T]; others [N, ...] as they
            are.
        results: What to take of the outputs, as zeros of the final shape. An output whose second
            axis is that of the pieces is filled up with the zeros' values.
        cut: Of the batch, what is cut to the longest row of a group.
        most_rows: Most rows of a group; None: as `PIECES_AT_ONCE` allows.

    Returns:
        As `results`.
    """
    lengths = real_lengths(batch["input_mask"])

    def alone() -> list[tf.Tensor]:
        row = {name: tensor[:1] for name, tensor in batch.items()}
        for name, tensor in batch.items():
            # So that it is known where `call` is traced. Not by tf.ensure_shape, which TensorFlow
            # takes out of the condition.
            row[name].set_shape([1, *tensor.shape[1:]])
        outputs = call(_cut(row, cut, lengths[0]))
        return [_filled_up(outputs[name], like) for name, like in results.items()]

    def groups() -> list[tf.Tensor]:
        return _in_groups(call, batch, results, cut, lengths, _groups(lengths, batch, most_rows))

    one = lengths.shape[0] == 1  # as in a model for a device
    values = alone() if one else tf.cond(tf.size(lengths) == 1, alone, groups)
    return dict(zip(results, values, strict=True))


def real_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """int32 [N], up to each one's last real place; a model wants one place at least."""
    place = tf.range(1, tf.shape(input_mask)[-1] + 1)
    axes = list(range(1, input_mask.shape.rank))
    lengths = tf.reduce_max(place * tf.cast(input_mask != 0, tf.int32), axes)
    return tf.maximum(lengths, 1)


def _cut(rows: Mapping[str, tf.Tensor], cut: Sequence[str], length) -> dict[str, tf.Tensor]:
    """Rows of a batch, in which what `cut` names is of that length."""
    shorter = {}
    for name, tensor in rows.items():
        shorter[name] = tensor
        if name in cut:
            shorter[name] = tensor[..., :length]
            # The middle axis isn't known any more after slicing with an ellipsis.
            shorter[name].set_shape([*tensor.shape[:-1], None])
    return shorter


def _filled_up(output: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """An output as long as `like` is, where its second axis is that of the pieces."""
    if like.shape.rank < 2 or like.shape[1] is not None:
        return output
    lacking = tf.shape(like)[1] - tf.shape(output)[1]
    return tf.pad(output, [[0, 0], [0, lacking]] + [[0, 0]] * (like.shape.rank - 2))


def _groups(lengths, batch, most_rows) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows in the order of their groups, int32 [N]; where each begins, int64, and N."""
    group = tf.searchsorted(tf.constant(LIMITS), lengths)
    per_row = tf.reduce_prod(tf.shape(batch["input_mask"])[1:-1])
    longest = tf.constant((*LIMITS, PIECES_AT_ONCE)) * tf.maximum(per_row, 1)
    of_group = tf.maximum(PIECES_AT_ONCE // longest, 1)
    if most_rows is not None:
        of_group = tf.minimum(of_group, tf.maximum(most_rows, 1))
    # The how-manieth row of its group each one is, to cut the groups that are too large.
    order = tf.argsort(group, stable=True)
    ordered = tf.gather(group, order)
    before = tf.searchsorted(ordered, ordered)
    part = (tf.range(tf.size(order)) - before) // tf.gather(of_group, ordered)
    changes = (ordered[1:] != ordered[:-1]) | (part[1:] != part[:-1])
    begins = tf.concat(
        [
            tf.where(tf.concat([[True], changes], 0)[: tf.size(order)])[:, 0],
            [tf.size(order, tf.int64)],
        ],
        0,
    )
    return order, begins


def _in_groups(call, batch, results, cut, lengths, groups) -> list[tf.Tensor]:
    """One group after the other."""
    order, begins = groups
    names = list(results)

    def body(number, *values):
        rows = order[begins[number] : begins[number + 1]]
        longest = tf.reduce_max(tf.gather(lengths, rows))
        chosen = {name: tf.gather(tensor, rows) for name, tensor in batch.items()}
        outputs = call(_cut(chosen, cut, longest))
        updated = []
        for name, value in zip(names, values, strict=True):
            output = _filled_up(outputs[name], value)
            updated.append(tf.tensor_scatter_nd_update(value, rows[:, tf.newaxis], output))
        return number + 1, *updated

    _, *values = tf.while_loop(
        lambda number, *_: number < tf.size(begins) - 1,
        body,
        (tf.constant(0), *results.values()),
        parallel_iterations=1,
        shape_invariants=(tf.TensorShape([]), *(value.shape for value in results.values())),
    )
    return values
