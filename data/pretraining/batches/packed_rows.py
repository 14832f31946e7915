"""Instances to rows that hold several of them: the packing of one window, in NumPy.

A row has three capacities: pieces, predictions and sequences. Of one window of instances after
the other, rows are filled greedily: the longest instance that still fits, until none does. If
more than `MAX_PADDING` of the row is then empty, one of its instances gives way to a longer one
that fills it; if there is none, the longest instance left is cut in two, before the first piece
of a word where possible. Both parts are sequences of their own, without additional [CLS] or
[SEP]; predictions go with their pieces, and a part may be cut again. So almost nothing is cut
where lengths vary, and only as much as fills the rows where they don't. What fills no row in
the end waits for the next window: nothing is ever dropped, neither instance nor prediction.

So rows are at most 5 % padding, but for the odd one (fewer than one in thirty even where lengths
are worst) whose predictions are used up before, which the others of its batch make up for. That
takes instances with no more predictions per piece on average than rows have room for (see
`PackedRowLimits.of`; a corpus of instances of three or four pieces has more), and rows of 128
pieces or more: short ones can't always be filled where no part may have less than `MIN_PART`
pieces. The last rows of a finite dataset take what there is.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.errors import DataError

MAX_PADDING = 0.05
MIN_PART = 4
"""Pieces that a cut leaves on either side."""
_WAITING_ROWS = 4
_PREDICTED_SHARE = 0.15
PER_PIECE = ("input_ids", "input_mask", "segment_ids")
PER_PREDICTION = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


@dataclass(frozen=True, slots=True)
class PackedRowLimits:
    """What a row can hold.

    Attributes:
        pieces: S, its length.
        predictions: P′, its masked_lm_* slots.
        sequences: K, how many instances or parts of some.
        padding: Empty pieces that may stay in a full row.
    """

    pieces: int
    predictions: int
    sequences: int
    padding: int

    @classmethod
    def of(cls, max_seq_length: int, max_predictions: int) -> "PackedRowLimits":
        """Those of rows for instances of at most S pieces with at most P predictions.

        P′ is the next multiple of 8 above P, or above 15 % of S if that is more (as it is where P
        cuts off what long instances would have): a row's instances have about as many predictions
        as one long instance has, but each rounds its number by itself. K is S / 4.

        Raises:
            DataError: P isn't from 1 to S.
        """
        if not 1 <= max_predictions <= max_seq_length:
            raise DataError(
                f"max_predictions is {max_predictions} and max_seq_length {max_seq_length}, but a"
                " row holds at least 1 prediction and at most one per piece."
            )
        most = max(max_predictions, round(_PREDICTED_SHARE * max_seq_length))
        padding = int(MAX_PADDING * max_seq_length)
        return cls(max_seq_length, most // 8 * 8 + 8, max(1, max_seq_length // 4), padding)


def packed_row_window(
    window: Mapping[str, np.ndarray],
    limits: PackedRowLimits,
    rng: np.random.Generator,
    continues_word: np.ndarray | None = None,
    keep_rest: bool = False,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Packs instances into rows.

    Args:
        window: W instances as `packing.pack_dataset` takes them.
        limits: Of a row.
        rng: Shuffles the rows.
        continues_word: See `packing.pack_dataset`.
        keep_rest: Whether the last few rows stay out if they can't be filled.

    Returns:
        (R rows as `packing.pack_dataset` gives them; what stays out, as instances of the same
        form as the window's, with index only if that has it.)

    Raises:
        DataError: An instance might not fit into a row.
    """
    (count, width), slots = window["input_ids"].shape, window["masked_lm_ids"].shape[1]
    if width > limits.pieces or slots > limits.predictions or limits.sequences < 1:
        raise DataError(
            f"{count} instances of up to {width} pieces and {slots} predictions were to be packed"
            f" into rows that hold less: {limits}."
        )
    source = _Source(window, continues_word)
    rows, rest = _fill_rows(source, limits, keep_rest)
    order = rng.permutation(len(rows))
    packed = _lay_out(source, [rows[i] for i in order], limits.pieces, limits.predictions)
    numbers = packed.pop("number"), packed.pop("row"), packed.pop("of")
    if "index" in window:
        packed["index"] = np.full((len(rows), limits.sequences), -1, np.int64)
        packed["index"][numbers[1], numbers[0]] = window["index"][numbers[2]]
    packed["is_real_example"] = np.ones(len(rows), np.float32)
    kept = _lay_out(source, [[part] for part in rest], limits.pieces, slots)
    if "index" in window:
        kept["index"] = window["index"][kept["of"]]
    return packed, {name: kept[name] for name in window if name in kept}


class _Source:
    """A window's arrays and what is asked of them again and again.

    Attributes:
        window: As given.
        lengths: int64 [W], up to the last real or predicted piece.
        predictions: (instance, slot) of each that counts, two int64 [n].
        before: int64 [W, S + 1], how many predictions stand before a place.
        inside: bool [W, S], whether a piece continues the word of the one before it.
    """

    def __init__(self, window: Mapping[str, np.ndarray], continues_word: np.ndarray | None):
        self.window = window
        count, width = window["input_ids"].shape
        place = np.arange(1, width + 1)
        last = (window["input_mask"] * place).max(1, initial=0)
        used = window["masked_lm_weights"] != 0
        positions = window["masked_lm_positions"]
        last = np.maximum(last, np.where(used, positions + 1, 0).max(1, initial=0))
        self.lengths = last.astype(np.int64)
        self.predictions = np.nonzero(used)
        instance, _ = self.predictions
        flat = instance * width + positions[used]
        counts = np.bincount(flat, minlength=count * width).reshape(count, width)
        self.before = np.zeros((count, width + 1), np.int64)
        np.cumsum(counts, axis=1, out=self.before[:, 1:])
        self.inside = np.zeros((count, width), bool)
        if continues_word is not None:
            # A mask hides what was there, but the label tells it.
            ids = window["input_ids"].copy()
            ids.reshape(-1)[flat] = window["masked_lm_ids"][used]
            self.inside = continues_word[ids]

    def predicted(self, part: tuple[int, int, int]) -> int:
        instance, start, length = part
        return int(self.before[instance, start + length] - self.before[instance, start])


Part = tuple[int, int, int]
"""Instance of the window, first piece, number of pieces."""


class _Pool:
    """The parts that are in no row yet, by length and then by number of predictions."""

    def __init__(self, source: _Source, instances: np.ndarray):
        self._source = source
        self._by_length: dict[int, list[tuple[int, int, int]]] = {}
        predictions, lengths = source.before[:, -1].tolist(), source.lengths.tolist()
        for instance in instances.tolist():
            entry = (predictions[instance], instance, 0)
            self._by_length.setdefault(lengths[instance], []).append(entry)
        for entries in self._by_length.values():
            entries.sort()
        self._lengths = sorted(self._by_length)

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def add(self, part: Part) -> None:
        instance, start, length = part
        if length not in self._by_length:
            insort(self._lengths, length)
        entries = self._by_length.setdefault(length, [])
        insort(entries, (self._source.predicted(part), instance, start))

    def rest(self) -> list[Part]:
        """All that are left."""
        return [(i, s, n) for n in self._lengths for _, i, s in self._by_length[n]]

    def take(self, shortest: int, longest: int, predictions: int) -> Part | None:
        """Takes out the longest part within bounds; of those, one with the most predictions."""
        for i in range(bisect_right(self._lengths, longest) - 1, -1, -1):
            length = self._lengths[i]
            if length < shortest:
                return None
            entries = self._by_length[length]
            # Behind every entry with that many predictions.
            place = bisect_left(entries, (predictions + 1, -1, -1)) - 1
            if place >= 0:
                _, instance, start = entries.pop(place)
                if not entries:
                    del self._by_length[length]
                    del self._lengths[i]
                return instance, start, length
        return None


def _fill_rows(
    source: _Source, limits: PackedRowLimits, keep_rest: bool
) -> tuple[list[list[Part]], list[Part]]:
    """(rows, what stays out)."""
    pool, dense = _sorted_out(source, limits)
    left = int(source.lengths.sum())
    rows = []
    while pool or dense:
        row: list[Part] = []
        gap, room = limits.pieces, limits.predictions
        quota = -(-len(dense) // max(1, left // limits.pieces))
        while gap and len(row) < limits.sequences:
            if len(row) < quota and source.predicted(dense[-1]) <= room and dense[-1][2] <= gap:
                part = dense.pop()
            else:
                part = pool.take(1, gap, room)
            if part is None:
                break
            row.append(part)
            gap -= part[2]
            room -= source.predicted(part)
        if gap > limits.padding:
            gap = _filled(source, pool, row, gap, room, limits)
        if gap > limits.padding and keep_rest and left <= _WAITING_ROWS * limits.pieces:
            return rows, [*row, *dense, *pool.rest()]
        left -= limits.pieces - gap
        rows.append(row)
    return rows, []


def _sorted_out(source: _Source, limits: PackedRowLimits) -> tuple[_Pool, list[Part]]:
    """The instances, and apart from them those that would use up a row's predictions first.

    Such ones, a few pieces long, are dealt out evenly. Taken by their length, they would be left
    over, too many predictions for the rows that their pieces fill.
    """
    predictions = source.before[:, -1]
    apart = predictions * limits.pieces > source.lengths * limits.predictions
    pool = _Pool(source, np.flatnonzero(~apart & (source.lengths > 0)))
    return pool, [(i, 0, int(source.lengths[i])) for i in np.flatnonzero(apart).tolist()]


def _filled(
    source: _Source, pool: _Pool, row: list[Part], gap: int, room: int, limits: PackedRowLimits
) -> int:
    """Exchanges a part of the row for a longer one, or else cuts one; the gap that is left."""
    for place, part in enumerate(row):
        longest = part[2] + gap
        shortest = longest - limits.padding
        other = pool.take(shortest, longest, room + source.predicted(part))
        if other is not None:
            row[place] = other
            pool.add(part)
            return longest - other[2]
    if len(row) == limits.sequences:
        return gap
    donor = pool.take(2 * MIN_PART, limits.pieces, limits.pieces)
    if donor is None:
        return gap
    instance, start, length = donor
    before, inside = source.before[instance, start:], source.inside[instance, start:]
    size = min(gap, length - MIN_PART)
    while size >= MIN_PART and before[size] - before[0] > room:
        size -= 1
    if size < MIN_PART:
        pool.add(donor)
        return gap
    for shorter in range(size, max(MIN_PART, gap - limits.padding) - 1, -1):
        if not inside[shorter]:
            size = shorter
            break
    row.append((instance, start, size))
    pool.add((instance, start + size, length - size))
    return gap - size


def _lay_out(
    source: _Source, rows: list[list[Part]], pieces: int, predictions: int
) -> dict[str, np.ndarray]:
    """Rows of parts as arrays; `row`, `number` (from 0) and `of` (instance) are of each part."""
    window = source.window
    width = window["input_ids"].shape[1]
    parts = np.array([part for row in rows for part in row], np.int64).reshape(-1, 3)
    of, start, length = parts.T
    sizes = np.array([len(row) for row in rows], np.int64)
    row = np.repeat(np.arange(len(rows)), sizes)
    number = _counted(sizes)
    ends = np.cumsum(length)
    # Where a part begins, were all rows one and without padding; less what earlier rows hold.
    first = np.cumsum(sizes) - sizes
    offset = (ends - length) - np.repeat((ends - length)[first[sizes > 0]], sizes[sizes > 0])

    # ---- Pieces ----
    part = np.repeat(np.arange(len(parts)), length)
    within = _counted(length)
    taken = (of * width + start)[part] + within
    put = (row * pieces + offset)[part] + within

    def placed(values):
        out = np.zeros(len(rows) * pieces, np.int32)
        out[put] = values
        return out.reshape(len(rows), pieces)

    features = {name: placed(window[name].reshape(-1)[taken]) for name in PER_PIECE}
    features["position_ids"] = placed(within)
    features["sequence_ids"] = placed(number[part] + 1)

    # ---- Predictions ----
    instance, slot = source.predictions
    position = window["masked_lm_positions"][instance, slot]
    part_of = np.full(window["input_ids"].size, -1, np.int64)
    part_of[taken] = part
    part = part_of[instance * width + position]
    here = part >= 0
    instance, slot, position, part = instance[here], slot[here], position[here], part[here]
    position = position - start[part] + offset[part]
    order = np.lexsort((position, row[part]))
    at_row = row[part][order]
    at_slot = _counted(np.bincount(at_row, minlength=len(rows)))

    def predicted(values):
        out = np.zeros((len(rows), predictions), values.dtype)
        out[at_row, at_slot] = values[order]
        return out

    features["masked_lm_positions"] = predicted(position.astype(np.int32))
    for name in ("masked_lm_ids", "masked_lm_weights"):
        features[name] = predicted(window[name][instance, slot])
    return features | {"row": row, "number": number, "of": of}


def _counted(sizes: np.ndarray) -> np.ndarray:
    """0, 1, …, size − 1 for each of the sizes, one after the other."""
    total = int(sizes.sum())
    return np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
