"""What `tests.benchmarks.training_speed` found, for people: Markdown tables, a TSV, curves."""

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from tests.benchmarks.turns import ratio

OURS = "ours"
TITLES = {
    "ours_compiled": "ours, --xla",
    "ours_whole": "ours, not in parts",
    "keras_hub": "KerasHub",
    "model_garden": "Model Garden",
    "pytorch": "PyTorch",
    "pytorch_compiled": "PyTorch, compiled",
}
NOTHING = "–"


@dataclasses.dataclass(frozen=True)
class Result:
    """Steps of fixed shape of one task in one number format.

    Attributes:
        title: Of the task.
        dtype: Of the matrix products.
        examples: In a step.
        flops: Of a step's matrix products.
        seconds: Engine → seconds of a step in each round.
        ceiling: Operations per second of matrix products alone in each round.
        memory: Engine → bytes, the peak of the whole process and that of the steps alone.
        missing: Engine → why it wasn't measured.
        facts: What else to know of the run.
    """

    title: str
    dtype: str
    examples: int
    flops: int
    seconds: Mapping[str, Sequence[float]]
    ceiling: Sequence[float]
    memory: Mapping[str, Sequence[int]]
    missing: Mapping[str, str]
    facts: Mapping[str, object]

    def speed(self, engine: str) -> str:
        """Examples per second."""
        return _number(self.examples / statistics.median(self.seconds[engine]))

    def share(self) -> float:
        """Of the ceiling that our steps reach: model FLOPs, median of the rounds."""
        speeds = [self.flops / seconds for seconds in self.seconds[OURS]]
        return ratio(speeds, self.ceiling)[0]


@dataclasses.dataclass(frozen=True)
class LengthsResult:
    """Epochs over texts of different lengths.

    Attributes:
        dtype, missing, facts: As in `Result`.
        seconds: Engine → padding → seconds per unit in each round; the last padding is our own
            way, which peers may lack.
        lengths: In words.
        unit: What is counted.
    """

    dtype: str
    seconds: Mapping[str, Mapping[str, Sequence[float]]]
    lengths: str
    missing: Mapping[str, str]
    facts: Mapping[str, object]
    unit: str = "examples"


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of our curves: `seconds` of a step in each round."""

    axis: str
    value: int
    dtype: str
    tokens: int
    flops: int
    seconds: Sequence[float]

    def microseconds(self) -> tuple[float, float, float]:
        """Per token: median, least, most."""
        each = [1e6 * seconds / self.tokens for seconds in self.seconds]
        return statistics.median(each), min(each), max(each)


# ---- Tables ----


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> str:
    """A table whose first columns, so many, are names and the others numbers."""
    rule = ["---"] * names + ["---:"] * (len(header) - names)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(dividends: Sequence[float], divisors: Sequence[float]) -> str:
    return "{:.2f} ({:.2f}–{:.2f})".format(*ratio(dividends, divisors))


def _peers(seconds: Sequence[Mapping], missing: Sequence[Mapping]) -> list[str]:
    there = {engine for mapping in (*seconds, *missing) for engine in mapping}
    return [peer for peer in TITLES if peer in there]


def speed_table(results: Sequence[Result]) -> str:
    """Examples per second, and how many times those of each peer ours are."""
    peers = _peers([r.seconds for r in results], [r.missing for r in results])
    header = ["step", "precision", "ours", "of the ceiling"]
    header += [part for peer in peers for part in (TITLES[peer], "×")]
    rows = []
    for result in results:
        row = [result.title, result.dtype, result.speed(OURS), f"{100 * result.share():.0f} %"]
        for peer in peers:
            if peer in result.seconds:
                row += [result.speed(peer), _times(result.seconds[peer], result.seconds[OURS])]
            else:
                row += [NOTHING, NOTHING]
        rows.append(row)
    return markdown(header, rows, 2)


def memory_table(results: Sequence[Result]) -> str:
    """Peaks in GiB: of the steps, and of the whole process in brackets."""
    peers = _peers([r.seconds for r in results], [r.missing for r in results])
    rows = []
    for result in results:
        row = [result.title, result.dtype]
        for engine in (OURS, *peers):
            cell = NOTHING
            if engine in result.memory:
                whole, steps = (number / 2**30 for number in result.memory[engine])
                cell = f"{steps:.2f} ({whole:.2f})"
            row.append(cell)
        rows.append(row)
    return markdown(["step", "precision", OURS, *(TITLES[p] for p in peers)], rows, 2)


def lengths_table(results: Sequence[LengthsResult]) -> str:
    """Units per second by padding; how many times each ours in our way are."""
    paddings = list(results[0].seconds[OURS])
    header = ["precision", "trained with"]
    header += [part for padding in paddings for part in (padding, f"ours, {paddings[-1]}")]
    rows = []
    for result in results:
        best = result.seconds[OURS][paddings[-1]]
        for engine, of_padding in result.seconds.items():
            row = [result.dtype, TITLES.get(engine, engine)]
            for padding in paddings:
                if padding in of_padding:
                    seconds = of_padding[padding]
                    row += [_number(1 / statistics.median(seconds)), _times(seconds, best)]
                else:
                    row += [NOTHING, NOTHING]
            rows.append(row)
        rows += [
            [result.dtype, TITLES[engine], *([NOTHING] * (len(header) - 2))]
            for engine in result.missing
        ]
    return markdown(header, rows, 2)


def notes(results: Sequence[Result | LengthsResult]) -> list[str]:
    """Lines on what ran where, each once, and on what didn't."""
    lines: dict[str, None] = {}
    for result in results:
        facts = result.facts
        lines[
            f"{facts['cpu']}, {facts['threads']} threads; medians of {facts['rounds']} rounds; "
            f"{facts['date']}, commit {facts['commit']}"
        ] = None
        lines |= dict.fromkeys(facts["programs"])
        if isinstance(result, LengthsResult):
            lines[result.lengths] = None
        for engine, reason in result.missing.items():
            title = getattr(result, "title", "lengths")
            lines[f"{TITLES[engine]} not measured ({title}, {result.dtype}): {reason}"] = None
    ceilings: dict[str, list[float]] = {}
    for result in results:
        if isinstance(result, Result):
            ceilings.setdefault(result.dtype, []).extend(result.ceiling)
    for dtype, speeds in ceilings.items():
        median, least, most = (
            number / 1e9 for number in (statistics.median(speeds), min(speeds), max(speeds))
        )
        lines[
            f"Ceiling in {dtype}, matrix products alone: {median:.0f} ({least:.0f}–{most:.0f}) "
            f"GFLOP/s"
        ] = None
    return [f"- {line}" for line in lines]


def report(
    results: Sequence[Result], lengths: Sequence[LengthsResult], points: Sequence[Point]
) -> str:
    """Everything, in Markdown."""
    parts = []
    if results:
        parts += [
            "Training steps, examples per second. × tells how many times as fast as the peer ours "
            "is (least–most of the rounds; above 1 ours is faster); the share of the ceiling is "
            "that of the model's FLOPs in what the machine reaches in matrix products alone.",
            speed_table(results),
            "Peak memory of the steps (of the whole process), GiB.",
            memory_table(results),
        ]
    for unit in dict.fromkeys(result.unit for result in lengths):
        parts += [
            f"Texts of different lengths, {unit} per second by how they are padded, each with "
            f"how many times as fast ours is in the last way.",
            lengths_table([result for result in lengths if result.unit == unit]),
        ]
    if points:
        parts += ["Our time per token.", curve_table(points)]
    parts.append("\n".join(notes([*results, *lengths])))
    return "\n\n".join(part for part in parts if part)


# ---- Curves ----

COLUMNS = (
    *("axis", "value", "dtype", "tokens", "us_per_token", "least", "most"),
    *("mflop_per_token", "gflop_per_second"),
)


def curve_rows(points: Sequence[Point]) -> list[list[str]]:
    """A row of `COLUMNS` for each point."""
    rows = []
    for point in points:
        median, least, most = point.microseconds()
        each = point.flops / point.tokens
        times = [f"{number:.3f}" for number in (median, least, most)]
        speed = each / median / 1e3
        row = [point.axis, str(point.value), point.dtype, str(point.tokens), *times]
        rows.append([*row, f"{each / 1e6:.3f}", f"{speed:.1f}"])
    return rows


def curve_table(points: Sequence[Point]) -> str:
    return markdown([name.replace("_", " ") for name in COLUMNS], curve_rows(points), 3)


def write_curves(points: Sequence[Point], tsv: str, png: str) -> None:
    """Writes the rows, and a picture of time per token over operations per token."""
    lines = ["\t".join(row) for row in (COLUMNS, *curve_rows(points))]
    pathlib.Path(tsv).write_text("\n".join(lines) + "\n", encoding="utf-8")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axes = list(dict.fromkeys(point.axis for point in points))
    figure = Figure(figsize=(4.5 * len(axes), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    names = {"length": "tokens in a row", "batch": "rows of 128 tokens", "layers": "layers"}
    for plot, axis in zip(figure.subplots(1, len(axes), squeeze=False)[0], axes, strict=True):
        beside = plot.twinx()
        for dtype, color in zip(
            dict.fromkeys(point.dtype for point in points), ("#0072B2", "#D55E00"), strict=False
        ):
            line = sorted(
                (p for p in points if (p.axis, p.dtype) == (axis, dtype)), key=lambda p: p.value
            )
            values = [point.value for point in line]
            medians, least, most = zip(*(p.microseconds() for p in line), strict=True)
            plot.plot(values, medians, "o-", color=color, label=dtype)
            plot.fill_between(values, least, most, color=color, alpha=0.2)
            each = [point.flops / point.tokens / 1e6 for point in line]
            beside.plot(values, each, "--", color="#555555", linewidth=1)
        if axis != "layers":
            plot.set_xscale("log", base=2)
            plot.set_xticks(values, [str(value) for value in values])
            plot.minorticks_off()
        plot.set_xlabel(names.get(axis, axis))
        plot.set_ylabel("µs per token")
        plot.set_ylim(bottom=0)
        beside.set_ylabel("MFLOP per token (dashed)")
        beside.set_ylim(bottom=0)
        plot.legend(frameon=False, loc="lower right")
    figure.savefig(png, dpi=110)
