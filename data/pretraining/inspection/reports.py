"""What was found in pre-training records, for people, for machines, and as a picture.

matplotlib is loaded when the picture is drawn.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.pretraining.inspection.inspection import Inspection
from data.pretraining.inspection.statistics import SHARE_BINS, Histogram
from data.pretraining.records.record_sets import RecordSets

SHOWN_PROBLEMS = 20
DPI = 110
_BARS = 16
_BAR_WIDTH = 40
_FLOOR = 0.5  # of the logarithmic axes
# Blue and orange of Okabe and Ito's palette, which the colour-blind can tell apart.
_BLUE, _ORANGE = "#0072B2", "#E69F00"


def summarize_inspection(
    inspection: Inspection,
    tokens: Sequence[str] | None = None,
    replacements: int | None = None,
    sets: RecordSets | None = None,
) -> dict[str, Any]:
    """All numbers (see `Statistics.summary`) and problems; `tokens` name the most predicted ids."""
    summary = inspection.statistics.summary(replacements)
    for entry in summary["most_predicted"]:
        entry["piece"] = tokens[entry["id"]] if tokens else None
    return {
        "files": inspection.files,
        "complete": inspection.complete,
        "records_looked_at": inspection.records,
        "damaged_records": inspection.damaged,
        **summary,
        "problems": [
            {"file": p.file, "record": p.record, "problem": p.text} for p in inspection.problems
        ],
        "sets": (sets or RecordSets()).summary(),
    }


def text_report(summary: dict[str, Any]) -> str:
    """The summary as lines for the terminal."""
    files, records = len(summary["files"]), summary["records_looked_at"]
    damaged = summary["damaged_records"]
    lines = [
        f"{files:,} file{'s' * (files != 1)}, {records:,} record{'s' * (records != 1)}"
        f"{'' if summary['complete'] else ' looked at'}"
        + (f", {damaged:,} of them damaged" if damaged else "")
    ]
    if summary["records"]:
        lines += [f"{name:<24}{text}" for name, text in _statistics(summary)]
        lines += ["", "records by length", *_bars(summary["length"]["histogram"])]
    shown = summary["problems"][:SHOWN_PROBLEMS]
    if shown:
        lines += ["", *(f"{p['file']}: record {p['record']} {p['problem']}" for p in shown)]
    if damaged > len(shown):
        lines.append(f"… and {damaged - len(shown):,} more damaged records")
    told = [*_sets(summary["sets"], files)]
    lines += ["", *told] if told else []
    return "\n".join(lines)


def _statistics(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and what is told of them."""
    predictions, pairs = summary["predictions"], summary["next_sentence"]
    length, tokens = summary["length"], summary["tokens"]
    yield "pieces", f"{tokens:,} with [CLS] and [SEP], {_mean(length)} a record"
    yield "max_seq_length", _widths(summary["max_seq_length"])
    yield (
        "length",
        f"{length['min']}–{length['max']}, median {length['median']};"
        f" full {_percent(summary['full_length_share'])},"
        f" less than half {_percent(summary['short_share'])}",
    )
    yield "padding", f"{_percent(summary['padding_share'])} of all places"
    for name in "AB":
        values = summary[f"segment_{name.lower()}_length"]
        told = f"{_mean(values, 1)} pieces on average, median {values['median']}"
        yield f"segment {name}", "none" if values["mean"] is None else told
    if pairs["records_with_second_segment"]:
        yield "B is random", _with_interval(pairs["random"])
    if summary["masked_records"]:
        per_record = _mean(summary["predictions_per_record"])
        yield "predictions", f"{predictions:,}, {per_record} a record"
        yield "max_predictions_per_seq", _widths(summary["max_predictions_per_seq"])
        yield (
            "predicted share",
            f"{_percent(summary['masked_share'])} of the pieces,"
            f" {_percent(summary['masked_share_of_text'])} without [CLS] and [SEP]",
        )
    else:
        yield "predictions", "none: the records are not masked"
    if not predictions:
        return
    replaced = summary["replaced"]
    drawn, note = replaced["replacements"], ""
    if replaced["mask_id"] is None:
        note = "; its id isn't known"
    elif replaced["mask_id_is_concluded"]:
        note = f"; taken to be id {replaced['mask_id']}"
    corrected = f"; 1 in {drawn:,} draws looks as if kept, which is made up for" if drawn else ""
    yield "  [MASK] stands there", _with_interval(replaced["mask"]) + note
    yield "  a random piece", _with_interval(replaced["random"]) + corrected
    yield "  kept as it was", _with_interval(replaced["kept"])
    most = (
        f"{repr(entry['piece'])[1:-1] if entry['piece'] else 'id ' + str(entry['id'])}"
        f" {_percent(entry['share'], 1)}"
        for entry in summary["most_predicted"]
    )
    yield "  most predicted", "  ".join(most)


def _sets(sets: dict[str, Any], files: int) -> Iterator[str]:
    """What the files say of themselves."""
    if sets["marked_files"]:
        yield (
            f"By their first records, {sets['marked_files']:,} of {files:,} files have"
            f" {sets['marked_records']:,} records, made with the vocabulary"
            f" {sets['vocabulary_checksum'][:8]}."
        )
    yield from sets["problems"][:SHOWN_PROBLEMS]
    yield from sets["notes"]


def _mean(values: dict[str, Any], digits: int = 2) -> str:
    return f"{values['mean']:.{digits}f}" if values["mean"] is not None else "none"


def _percent(share: float | None, digits: int = 2) -> str:
    return "—" if share is None else f"{100 * share:.{digits}f} %"


def _with_interval(values: dict[str, Any]) -> str:
    low, high = 100 * values["low"], 100 * values["high"]
    return f"{_percent(values['share'])}  (99 %: {low:.2f}–{high:.2f})"


def _widths(records: dict[str, int]) -> str:
    if len(records) == 1:
        return next(iter(records))
    return ", ".join(f"{width} ({count:,} records)" for width, count in records.items())


def _bars(histogram: dict[str, int]) -> list[str]:
    counts = np.zeros(max(map(int, histogram)), np.int64)
    for length, count in histogram.items():
        counts[max(int(length) - 1, 0)] += count
    longest = len(counts)
    width, bins = _binned(counts, _BARS)
    most, digits = max(bins), len(str(longest))
    lines = []
    for number, count in enumerate(bins):
        first, last = number * width + 1, min((number + 1) * width, longest)
        bar = "█" * round(_BAR_WIDTH * count / most) or ("▏" if count else "")
        lines.append(f"{first:>{digits + 2}}–{last:<{digits}} {count:>12,}  {bar}".rstrip())
    return lines


def check_writable(paths: Sequence[str | None], inputs: Sequence[str]) -> None:
    """Raises DataError now if a path that isn't None couldn't be written after long work."""
    named = [path for path in paths if path]
    for number, path in enumerate(named):
        if path in named[:number] or os.path.realpath(path) in map(os.path.realpath, inputs):
            raise DataError(
                f"{path} is to be written, but it is one of the records' files or named twice. Give"
                " another name."
            )
        if tf.io.gfile.isdir(path):
            raise DataError(f"{path} is to be written, but it is a folder. Name a file in it.")
        atomic.check_writable(path)


def write_inspection_json(summary: dict[str, Any], path: str) -> None:
    """Writes the summary as a JSON object; DataError if that isn't possible."""
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    atomic.write_text(path, text)


def write_inspection_png(inspection: Inspection, path: str) -> None:
    """Draws histograms: lengths, padding; where the records are masked, predictions too.

    Raises:
        DataError: The file can't be written, or there is no sound record to draw.
    """
    statistics = inspection.statistics
    if not statistics.records:
        raise DataError(
            f"There is nothing to draw into {path}: {', '.join(inspection.files[:3])} hold no sound"
            " record. Name other files, or leave out --plot."
        )
    from matplotlib.figure import Figure

    rows = 2 if statistics.masked_records else 1
    figure = Figure(figsize=(10, 3.4 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, 2).ravel()
    lengths, segments = statistics.lengths, (statistics.segment_a, statistics.segment_b)
    title = f"length: mean {lengths.sum / lengths.total:.1f}"
    _draw(panels[0], lengths, title, "pieces, with [CLS] and [SEP]")
    for values, name, color in zip(segments, "AB", ("black", _ORANGE), strict=True):
        if values.total:
            panels[0].stairs(*_steps(values), baseline=_FLOOR, color=color, label=name)
    panels[0].legend(title="segment", frameon=False)
    title = f"padding: {1 - lengths.sum / statistics.places:.2%} of all places"
    _draw(panels[1], statistics.padding_shares, title, "share of padding in a record", True)
    if rows == 2:
        predictions, masked = statistics.predictions, statistics.masked_shares
        title = f"predictions: mean {predictions.sum / predictions.total:.2f}"
        _draw(panels[2], predictions, title, "predictions of a record")
        title = f"predicted: {predictions.sum / statistics.masked_tokens:.2%} of the pieces"
        _draw(panels[3], masked, title, "share of predicted pieces in a record", True)
    figure.suptitle(f"{statistics.records:,} records", fontsize=12)
    with atomic.writing(path) as file:
        # No version of matplotlib in the file: the same values are the same bytes.
        figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})


def _binned(counts: np.ndarray, most: int) -> tuple[int, list[int]]:
    """The width of at most `most` equal bins of whole numbers, and their sums."""
    width = -(-len(counts) // most)
    return width, np.add.reduceat(counts, np.arange(0, len(counts), width)).tolist()


def _steps(values: Histogram) -> tuple[list[int], list[float]]:
    width, counts = _binned(values.counts, 128)
    return counts, [i * width - 0.5 for i in range(len(counts) + 1)]


def _draw(panel, values: Histogram, title: str, label: str, shares: bool = False) -> None:
    from matplotlib.ticker import PercentFormatter, StrMethodFormatter

    counts, edges = _steps(values)
    if shares:
        counts = values.counts
        edges = [i / SHARE_BINS for i in range(len(counts) + 1)]
        panel.xaxis.set_major_formatter(PercentFormatter(1))
    panel.stairs(counts, edges, baseline=_FLOOR, fill=True, color=_BLUE, alpha=0.8)
    panel.set_title(title, fontsize=11)
    panel.set_xlabel(label)
    panel.set_ylabel("records, logarithmic")
    panel.set_yscale("log")  # most records are of full length
    panel.set_ylim(bottom=_FLOOR)
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    panel.grid(axis="y", alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
