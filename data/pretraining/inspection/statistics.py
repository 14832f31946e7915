"""Statistics of pre-training records, added up batch by batch in constant memory."""

import math
from typing import Any

import numpy as np

MOST_PREDICTED = 10
SHARE_BINS = 200
"""Of the histograms of shares from 0 to 1."""

_Z_99 = 2.5758293035489004


def _binomial_interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's 99 % interval of a share; (0, 1) of nothing."""
    if not total:
        return 0.0, 1.0
    share, z = count / total, _Z_99**2 / total
    middle = (share + z / 2) / (1 + z)
    half = _Z_99 / (1 + z) * math.sqrt(share * (1 - share) / total + z / total / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


class Histogram:
    """How often each of the numbers 0, 1, 2 … occurred."""

    def __init__(self) -> None:
        self.counts = np.zeros(1, np.int64)

    def add(self, numbers: np.ndarray) -> None:
        """Args: numbers: integers, none negative, any shape."""
        counts = np.bincount(numbers.ravel())
        if len(counts) < len(self.counts):
            self.counts[: len(counts)] += counts
        else:
            counts[: len(self.counts)] += self.counts
            self.counts = counts

    @property
    def total(self) -> int:
        """How many numbers there were."""
        return int(self.counts.sum())

    @property
    def sum(self) -> int:
        """Their sum."""
        return int(self.counts @ np.arange(len(self.counts)))

    def quantile(self, share: float) -> int | None:
        """The least number that at least this share of the numbers doesn't exceed."""
        if not self.total:
            return None
        return int(np.searchsorted(np.cumsum(self.counts), max(1, math.ceil(share * self.total))))

    def histogram(self) -> dict[str, int]:
        """Number → count, for those that occurred; names as JSON wants them."""
        return {str(n): int(self.counts[n]) for n in np.flatnonzero(self.counts)}

    def summary(self) -> dict[str, Any]:
        """mean, std, min, median, max and histogram; None of nothing."""
        n = self.total
        numbers = np.arange(len(self.counts))
        mean = self.sum / n if n else None
        variance = float(self.counts @ (numbers - mean) ** 2) / n if n else None
        return {
            "mean": mean,
            "std": math.sqrt(variance) if n else None,
            "min": self.quantile(0),
            "median": self.quantile(0.5),
            "max": self.quantile(1),
            "histogram": self.histogram(),
        }


class Statistics:
    """Adds up sound records.

    Lengths count [CLS] and [SEP]; the lengths of segments don't.

    At a prediction stands [MASK], another piece than the label ("random") or the label itself
    ("kept"). A random piece that happens to be the label looks as if kept: of r pieces to draw
    from, this is one in r of the random ones, so that their number is estimated as r / (r − 1)
    times what is seen, at the expense of the kept.

    Attributes:
        mask_id: Of [MASK]; None if it is unknown.
        max_seq_lengths, max_predictions: Records by the width of their features. Those that aren't
            masked have no max_predictions.
        lengths, segment_a, segment_b, predictions: Of each record; `segment_b` only of those that
            have one, `predictions` only of those that are masked.
        padding_shares, masked_shares: Of each record, in bins of 1 / SHARE_BINS.
    """

    def __init__(self, mask_id: int | None = None):
        self.mask_id = mask_id
        self.records = self.masked_records = self.masked_tokens = self.places = 0
        self.full = self.short = self.random_next = 0
        self.kept = self.masked_segments = 0
        self.max_seq_lengths, self.max_predictions = Histogram(), Histogram()
        self.lengths, self.segment_a, self.segment_b = Histogram(), Histogram(), Histogram()
        self.predictions = Histogram()
        self.padding_shares, self.masked_shares = Histogram(), Histogram()
        self.labels, self.changed = Histogram(), Histogram()

    def add(self, values: dict[str, np.ndarray]) -> None:
        """Adds a batch.

        Args:
            values: Features of sound records: integers [n, S], [n, P] or [n, 1], weights float
                [n, P]; the masked_lm features may be absent.
        """
        ids = values["input_ids"]
        n, width = ids.shape
        if not n:
            return
        lengths = values["input_mask"].sum(axis=1)
        b = values["segment_ids"].sum(axis=1)
        self.records += n
        self.places += n * width
        self.max_seq_lengths.add(np.full(n, width))
        self.lengths.add(lengths)
        self.segment_a.add(lengths - b - 2)
        self.segment_b.add(np.maximum(b[b > 0] - 1, 0))
        self.full += int((lengths == width).sum())
        self.short += int((2 * lengths < width).sum())
        self.padding_shares.add((width - lengths) * SHARE_BINS // width)
        self.random_next += int(values["next_sentence_labels"].sum())
        if "masked_lm_positions" not in values:
            return
        used = values["masked_lm_weights"] == 1
        predictions = used.sum(axis=1)
        row, slot = np.nonzero(used)
        labels = values["masked_lm_ids"][row, slot]
        inserted = ids[row, values["masked_lm_positions"][row, slot]]
        self.masked_records += n
        self.masked_tokens += int(lengths.sum())
        self.masked_segments += n + int((b > 0).sum())
        self.max_predictions.add(np.full(n, used.shape[1]))
        self.predictions.add(predictions)
        self.masked_shares.add(predictions * SHARE_BINS // lengths)
        self.kept += int((inserted == labels).sum())
        self.labels.add(labels)
        self.changed.add(inserted[inserted != labels])

    def summary(self, replacements: int | None = None) -> dict[str, Any]:
        """All numbers, for JSON.

        Args:
            replacements: How many pieces a random one is drawn from; None if unknown, where
                nothing is corrected.
        """
        tokens, predictions = self.lengths.sum, self.predictions.sum
        with_b = self.segment_b.total
        text = self.masked_tokens - self.masked_records - self.masked_segments
        return {
            "records": self.records,
            "masked_records": self.masked_records,
            "max_seq_length": self.max_seq_lengths.histogram(),
            "max_predictions_per_seq": self.max_predictions.histogram(),
            "tokens": tokens,
            "predictions": predictions,
            "masked_share": _share(predictions, self.masked_tokens),
            "masked_share_of_text": _share(predictions, text),
            "replaced": self._replaced(replacements),
            "next_sentence": {
                "records_with_second_segment": with_b,
                "random": _interval(self.random_next, with_b),
            },
            "padding_share": _share(self.places - tokens, self.places),
            "full_length_share": _share(self.full, self.records),
            "short_share": _share(self.short, self.records),
            "length": self.lengths.summary(),
            "segment_a_length": self.segment_a.summary(),
            "segment_b_length": self.segment_b.summary(),
            "predictions_per_record": self.predictions.summary(),
            "most_predicted": self.most_predicted(),
        }

    def _replaced(self, replacements: int | None) -> dict[str, Any]:
        predictions, changed = self.predictions.sum, self.changed.counts
        mask_id = self.mask_id
        if mask_id is None and self.changed.total:
            # [MASK] is four in five of what stands there, any other piece far less.
            likeliest = int(changed.argmax())
            mask_id = likeliest if changed[likeliest] > predictions / 20 else None
        masked = int(changed[mask_id]) if mask_id is not None and mask_id < len(changed) else 0
        different = self.changed.total - masked
        factor = replacements / (replacements - 1) if replacements and replacements > 1 else 1
        random = min(round(different * factor), different + self.kept)
        return {
            "mask_id": mask_id,
            "mask_id_is_concluded": self.mask_id is None and mask_id is not None,
            "replacements": replacements,
            "mask": _interval(masked, predictions),
            "random": _interval(random, predictions),
            "kept": _interval(predictions - masked - random, predictions),
            "seen_as_random": different,
            "seen_as_kept": self.kept,
        }

    def most_predicted(self) -> list[dict[str, Any]]:
        """The labels that are most frequent: id, count and share of all predictions."""
        counts, total = self.labels.counts, self.labels.total
        best = np.argsort(-counts, kind="stable")[:MOST_PREDICTED]
        return [
            {"id": int(i), "count": int(counts[i]), "share": int(counts[i]) / total}
            for i in best
            if counts[i]
        ]


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def _interval(count: int, total: int) -> dict[str, Any]:
    low, high = _binomial_interval(count, total)
    return {"count": count, "share": _share(count, total), "low": low, "high": high}
