"""Masks made and taken back in the tf.data graph, so that no two epochs have the same ones.

    batch = mask_batch(unmask_batch(batch), settings, max_predictions, seed)

The same rules and chances as `masking.mask_instances` and `word_spans`, whose NumPy these
operations mirror; only the random numbers are others, a function of `seed` alone (Philox).

Shapes: B rows, S pieces each, P slots for predictions; B may be unknown in the graph.
"""

import numpy as np
import tensorflow as tf

from data.pretraining.instances import masking, word_spans

_STREAMS = 5
_ALGORITHM = "philox"


def unmask_batch(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Puts the masked words back: masked_lm_ids at masked_lm_positions where the weight isn't 0.

    Args:
        batch: input_ids int32 [B, S] and the masked_lm_* [B, P] of the same records.

    Returns:
        The batch with other input_ids.
    """
    used = batch["masked_lm_weights"] > 0
    ids = _put(batch["input_ids"], batch["masked_lm_positions"], batch["masked_lm_ids"], used)
    return batch | {"input_ids": ids}


def mask_batch(
    batch: dict[str, tf.Tensor],
    settings: masking.MaskSettings,
    max_predictions: int,
    seed: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Masks a batch anew.

    Args:
        batch: input_ids (unmasked) and input_mask, both int32 [B, S]; ids below the size of the
            settings' vocabulary. Words are told by "##".
        settings: What is masked.
        max_predictions: P.
        seed: int64 [2]; the same one gives the same masks.

    Returns:
        The batch with other input_ids, and masked_lm_positions (ascending), masked_lm_ids int32
        and masked_lm_weights float32, all [B, P] and padded with 0, as `mask_instances` gives.
    """
    vocabulary = settings.vocabulary
    ids, real = batch["input_ids"], batch["input_mask"] > 0
    candidates = real & (ids != vocabulary.cls_id) & (ids != vocabulary.sep_id)
    lengths = np.arange(ids.shape[1] + 1)
    number_by_length = masking.number_to_predict(lengths, settings.masked_lm_prob, max_predictions)
    numbers = tf.gather(number_by_length.astype(np.int32), _count(real))
    seeds = tf.unstack(tf.random.split(seed, _STREAMS, alg=_ALGORITHM))

    positions, used = _choose_pieces(candidates, numbers, max_predictions, seeds[0])
    if settings.do_whole_word_mask or settings.max_ngram > 1:
        before = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
        continues = tf.gather(vocabulary.continues_word, ids)
        starts = candidates & ~(continues & before)
        selected = _choose_words(
            candidates, starts, before, numbers, settings.max_ngram, seeds[1:3]
        )
        # Where no word fits, the single pieces stay.
        some = tf.reduce_any(selected, axis=1, keepdims=True)
        in_words, used_by_words = _slots(selected, max_predictions)
        positions = tf.where(some, in_words, positions)
        used = tf.where(some, used_by_words, used)

    labels = tf.where(used, tf.gather(ids, positions, batch_dims=1), 0)
    u = tf.random.stateless_uniform(tf.shape(positions), seeds[3], alg=_ALGORITHM)
    drawn = tf.random.stateless_uniform(
        tf.shape(positions),
        seeds[4],
        maxval=len(vocabulary.replacements),
        dtype=tf.int32,
        alg=_ALGORITHM,
    )
    drawn = tf.gather(vocabulary.replacements, drawn)
    kept_or_random = tf.where(u < settings.mask_share + settings.random_share, drawn, labels)
    inserted = tf.where(u < settings.mask_share, vocabulary.mask_id, kept_or_random)
    return batch | {
        "input_ids": _put(ids, positions, inserted, used),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


def _put(ids: tf.Tensor, positions: tf.Tensor, values: tf.Tensor, used: tf.Tensor) -> tf.Tensor:
    """Writes values [B, P] to the used positions of ids [B, S]."""
    size, length = tf.unstack(tf.shape(ids))
    # Unused slots all write to a column of their own, which is cut off again.
    positions = tf.where(used, positions, length)
    rows = tf.broadcast_to(tf.range(size)[:, tf.newaxis], tf.shape(positions))
    wider = tf.pad(ids, [[0, 0], [0, 1]])
    wider = tf.tensor_scatter_nd_update(wider, tf.stack([rows, positions], axis=-1), values)
    return tf.ensure_shape(wider[:, :-1], ids.shape)


def _count(marks: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(marks, tf.int32), axis=1)


def _random_keys(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Any int32, for sorting at random."""
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.int32, alg=_ALGORITHM
    )


def _choose_pieces(
    candidates: tf.Tensor, numbers: tf.Tensor, max_predictions: int, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`word_spans.choose_pieces`: positions int32 [B, P] and used bool [B, P]."""
    keys = _random_keys(tf.shape(candidates), seed)
    keys = tf.where(candidates, tf.maximum(keys, tf.int32.min + 1), tf.int32.min)
    width = candidates.shape[1]
    slots = min(max_predictions, width)
    chosen = tf.math.top_k(keys, slots).indices
    used = tf.range(slots) < tf.minimum(numbers, _count(candidates))[:, tf.newaxis]
    return _padded(tf.sort(tf.where(used, chosen, width), axis=1), width, max_predictions)


def _slots(selected: tf.Tensor, max_predictions: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Positions int32 [B, P] of the selected pieces, bool [B, S], and which slots they use."""
    width = selected.shape[1]
    # The larger of these numbers stand further to the left.
    from_right = tf.where(selected, tf.range(width, 0, -1), 0)
    first = tf.math.top_k(from_right, min(max_predictions, width)).values
    return _padded(width - first, width, max_predictions)


def _padded(positions: tf.Tensor, width: int, max_predictions: int) -> tuple[tf.Tensor, tf.Tensor]:
    """From ascending positions, where `width` means none."""
    missing = max_predictions - positions.shape[1]
    positions = tf.pad(positions, [[0, 0], [0, missing]], constant_values=width)
    used = positions < width
    return tf.where(used, positions, 0), used


def _choose_words(
    candidates: tf.Tensor,
    starts: tf.Tensor,
    before: tf.Tensor,
    numbers: tf.Tensor,
    max_ngram: int,
    seeds: list[tf.Tensor],
) -> tf.Tensor:
    """`word_spans.choose_words` without its last resort; bool [B, S], the pieces chosen.

    `starts` and `before` bool [B, S]: where a word starts, and whether a candidate precedes.
    """
    if max_ngram == 1:
        return _fill(candidates, starts, starts, numbers, seeds[0])
    size, width = tf.shape(candidates)[0], candidates.shape[1]
    thresholds = word_spans.span_length_thresholds(max_ngram).astype(np.float32)
    u = tf.random.stateless_uniform(tf.shape(candidates), seeds[0], alg=_ALGORITHM)
    lengths = 1 + tf.reduce_sum(tf.cast(u[..., tf.newaxis] >= thresholds, tf.int32), axis=-1)
    opening = tf.minimum(tf.cumsum(lengths, axis=1), width)
    opens = _sum_at(tf.ones_like(opening), opening, size, width + 1) > 0
    number = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
    opened = (number <= 0) | tf.gather(opens, tf.maximum(number, 0), batch_dims=1)
    units = starts & (opened | ~before)
    return _fill(candidates, starts, units, numbers, seeds[1])


def _sum_at(values: tf.Tensor, columns: tf.Tensor, size: tf.Tensor, width: int) -> tf.Tensor:
    """[size, width]: in each row the sum of the values [size, n] of each column."""
    places = columns + width * tf.range(size)[:, tf.newaxis]
    sums = tf.math.unsorted_segment_sum(values, places, size * width)
    return tf.reshape(sums, [size, width])


def _number(starts: tf.Tensor) -> tf.Tensor:
    """Which of the row's words or units a place is in, int32 [B, S]; 0 before the first."""
    return tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)


def _fill(
    candidates: tf.Tensor,
    starts: tf.Tensor,
    units: tf.Tensor,
    numbers: tf.Tensor,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Takes the words of units in random order, each that fits into what is left of `numbers`.

    Returns:
        The pieces taken, bool [B, S].
    """
    size, width = tf.shape(candidates)[0], candidates.shape[1]
    # A word is represented by its first place.
    word = _number(starts)
    lengths = _sum_at(tf.cast(candidates, tf.int32), word, size, width)
    lengths = tf.where(starts, tf.gather(lengths, word, batch_dims=1), 0)
    keys = _random_keys(tf.shape(candidates), seed)
    if units is not starts:
        keys = tf.gather(keys, _number(units), batch_dims=1)
    # Equal keys stay in the order of their places.
    order = tf.math.top_k(keys, width).indices
    lengths = tf.gather(lengths, order, batch_dims=1)

    def fitting(chosen: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return tf.where(chosen | (lengths > left[:, tf.newaxis]), 0, lengths)

    def some_fit(chosen: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(fitting(chosen, left) > 0)

    def take(chosen: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Up to the first that doesn't fit. As `left` only falls, that one never will, nor will
        # those that are too long now: a few of these rounds take what going one by one takes.
        lengths = fitting(chosen, left)
        lengths = tf.where(tf.cumsum(lengths, axis=1) <= left[:, tf.newaxis], lengths, 0)
        return chosen | (lengths > 0), left - tf.reduce_sum(lengths, axis=1)

    chosen, _ = tf.while_loop(
        some_fit, take, (tf.zeros_like(candidates), numbers), parallel_iterations=1
    )
    ranks = tf.gather(word, order, batch_dims=1)
    chosen = _sum_at(tf.cast(chosen, tf.int32), ranks, size, width)
    return candidates & (tf.gather(chosen, word, batch_dims=1) > 0)
