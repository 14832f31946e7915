"""Which places of an instance are masked: single pieces, whole words, or spans of words.

`masking.py` says how many; this picks them. Everything is done for a batch of instances at once
with NumPy; `graph_masking.py` does the same in TensorFlow, with the same probabilities.

Shapes here: n instances, S pieces each, P slots for predictions. `candidates` bool [n, S] are the
pieces that may be masked: not [CLS], not [SEP], not padding. A word or a span therefore never
reaches over the border of a segment.
"""

import numpy as np


def span_length_thresholds(max_ngram: int) -> np.ndarray:
    """Cumulated chances of all lengths but the last, float64 [max_ngram - 1].

    A span has n words, from 1 to max_ngram, with a chance proportional to 1/n (section 4.1 of
    ALBERT's paper): of a number that is uniform in [0, 1), the length is 1 + how many thresholds
    are not above it.
    """
    chances = 1 / np.arange(1, max_ngram + 1)
    return np.cumsum(chances / chances.sum())[:-1]


def _word_starts(candidates: np.ndarray, continues: np.ndarray) -> np.ndarray:
    """bool [n, S], the first piece of each word; `continues` bool [n, S] marks the others.

    A piece that continues nothing, at the beginning of a segment, starts a word.
    """
    starts = candidates.copy()
    starts[:, 1:] &= ~(continues[:, 1:] & candidates[:, :-1])
    return starts


def unit_starts(
    candidates: np.ndarray, starts: np.ndarray, max_ngram: int, rng: np.random.Generator
) -> np.ndarray:
    """Divides the words at random into units of 1 to max_ngram; bool [n, S], where one starts.

    The lengths are drawn one after the other, see `span_length_thresholds`; where a segment ends
    within a unit, it is cut there. As each word is in one unit, places near the borders are masked
    about as often as others.
    """
    n, width = starts.shape
    u = rng.random((n, width), np.float32)
    lengths = 1 + np.searchsorted(span_length_thresholds(max_ngram), u, side="right")
    opens = np.zeros((n, width + 1), bool)  # by a word's number in its row
    opens[:, 0] = True
    np.put_along_axis(opens, np.minimum(lengths.cumsum(axis=1), width), True, axis=1)
    number = np.maximum(starts.cumsum(axis=1) - 1, 0)
    opened = np.take_along_axis(opens, number, axis=1)
    opened[:, 0] = True
    opened[:, 1:] |= ~candidates[:, :-1]
    return starts & opened


def choose_pieces(
    candidates: np.ndarray, numbers: np.ndarray, max_predictions: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Single pieces, `numbers` [n] of each row or all there are.

    Returns:
        Ascending positions int32 [n, P] (0 in unused slots) and used bool [n, P].
    """
    order, available = _shuffled_positions(candidates, rng)
    width = candidates.shape[1]
    if width < max_predictions:
        order = np.pad(order, ((0, 0), (0, max_predictions - width)))
    count = np.minimum(numbers, available)
    used = np.arange(max_predictions)[None] < count[:, None]
    positions = np.where(used, order[:, :max_predictions], np.iinfo(np.int32).max)
    positions.sort(axis=1)
    return np.where(used, positions, 0).astype(np.int32), used


def choose_words(
    candidates: np.ndarray,
    continues: np.ndarray,
    numbers: np.ndarray,
    max_predictions: int,
    max_ngram: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Whole words, or spans of them, with `numbers` [n] pieces or less.

    Words come in random order, and those that no longer fit are skipped, so that what stays unused
    in the end is too little for any word left. With max_ngram above 1 they come unit by unit
    (`unit_starts`): whole units, then of one the words that still fit, then single words if some
    do. A row in which no word fits (longer ones only) gets single pieces.

    Returns:
        As `choose_pieces`.
    """
    starts = _word_starts(candidates, continues)
    units = unit_starts(candidates, starts, max_ngram, rng) if max_ngram > 1 else starts
    selected, total = _fill(candidates, starts, units, numbers, rng)
    n = len(candidates)
    positions = np.zeros((n, max_predictions), np.int32)
    row, position = np.nonzero(selected)
    slot = np.arange(len(row)) - np.concatenate([[0], np.cumsum(total)])[row]
    positions[row, slot] = position
    used = np.arange(max_predictions)[None] < total[:, None]
    empty = np.flatnonzero(total == 0)
    if len(empty):
        positions[empty], used[empty] = choose_pieces(
            candidates[empty], numbers[empty], max_predictions, rng
        )
    return positions, used


def _shuffled_positions(
    eligible: np.ndarray, rng: np.random.Generator, leaders: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Each row's eligible positions in random order, then junk; and how many they are.

    Those with the same one of `leaders` (places, [n, S]) stay together, in their order.

    Random bits above, the position below: sorting these words is sorting by random keys.
    """
    width = eligible.shape[1]
    bits = max(1, (width - 1).bit_length())
    keys = rng.integers(0, 2 ** (32 - bits) - 1, eligible.shape, dtype=np.uint32)
    if leaders is not None:
        keys = np.take_along_axis(keys, leaders, axis=1)
    keys = (keys << np.uint32(bits)) | np.arange(width, dtype=np.uint32)
    keys[~eligible] = np.iinfo(np.uint32).max
    keys.sort(axis=1)
    positions = (keys & np.uint32(2**bits - 1)).astype(np.int32)
    # Junk has all bits set, which is no position unless the width is a power of two.
    return np.minimum(positions, width - 1), eligible.sum(axis=1)


def _fill(
    candidates: np.ndarray,
    starts: np.ndarray,
    units: np.ndarray,
    numbers: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Takes the words of units in random order, each that fits into what is left of `numbers`.

    Returns:
        The pieces taken, bool [n, S], and their number, int64 [n].
    """
    n, width = candidates.shape
    column = np.arange(width, dtype=np.int32)
    # A word ends where the next one starts or the candidates end.
    borders = np.where(starts | ~candidates, column, np.int32(width))
    following = np.full((n, width), width, np.int32)
    following[:, :-1] = np.minimum.accumulate(borders[:, :0:-1], axis=1)[:, ::-1]
    lengths = following - column

    leaders = None if units is starts else _last_mark(units)
    order, words = _shuffled_positions(starts, rng, leaders)
    order = order[:, : int(words.max(initial=1))]
    sizes = np.ascontiguousarray(np.take_along_axis(lengths, order, axis=1).T)
    exists = np.arange(order.shape[1])[:, None] < words[None]
    chosen = np.zeros(sizes.shape, bool)
    total = np.zeros(n, np.int64)
    # Word by word in random order, all instances at once.
    for k in range(len(sizes)):
        fits = exists[k] & (total + sizes[k] <= numbers)
        total += sizes[k] * fits
        chosen[k] = fits
        if (total == numbers).all():
            break
    chosen_starts = np.zeros((n, width), bool)
    rank, row = np.nonzero(chosen)
    chosen_starts[row, order[row, rank]] = True
    return candidates & np.take_along_axis(chosen_starts, _last_mark(starts), axis=1), total


def _last_mark(marks: np.ndarray) -> np.ndarray:
    """int32 [n, S], the place of the last mark up to each place; 0 before the first."""
    column = np.arange(marks.shape[1], dtype=np.int32)
    return np.maximum.accumulate(np.where(marks, column, 0), axis=1)
