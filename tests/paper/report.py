"""A table of the paper beside ours: as text, TSV and PNG."""

import dataclasses
import datetime
import itertools
import math
import pathlib
import statistics
from collections.abc import Sequence

from tests.paper import experiment
from tests.paper.experiment import Cell, Table

BLUE, ORANGE = "#0072B2", "#D55E00"
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


@dataclasses.dataclass(frozen=True)
class Number:
    """A cell with ours in it; mean and standard deviation are None where there are too few."""

    cell: Cell
    values: Sequence[float]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """Mean ± standard deviation (number of runs)."""
        if not self.values:
            return "–"
        spread = f" ± {self.deviation:.1f}" if self.deviation is not None else ""
        return f"{self.mean:.1f}{spread} ({len(self.values)})"


@dataclasses.dataclass(frozen=True)
class Order:
    """How many of a column's pairs of rows stand as in the paper.

    Attributes:
        right: Pairs in the paper's order.
        pairs: All whose numbers differ in the paper and that we have.
        unsure: Pairs that are less than two standard errors apart here.
    """

    right: int
    pairs: int
    unsure: int

    @property
    def text(self) -> str:
        if not self.pairs:
            return "–"
        verdict = "holds" if self.right == self.pairs else f"{self.right} of {self.pairs}"
        return verdict + (f", {self.unsure} unsure" if self.unsure else "")


def order(numbers: Sequence[Number]) -> Order:
    """Of one column, or of one line; equal means are no order."""
    known = [n for n in numbers if n.cell.paper is not None and n.values]
    right = pairs = unsure = 0
    for one, other in itertools.combinations(known, 2):
        theirs = one.cell.paper - other.cell.paper
        if not theirs:
            continue
        ours = one.mean - other.mean
        pairs += 1
        right += ours * theirs > 0
        unsure += abs(ours) < 2 * _standard_error(one, other)
    return Order(right, pairs, unsure)


def _standard_error(one: Number, other: Number) -> float:
    """Of the difference of two means; runs of one seed are taken to spread like the other's.

    Where both are of one seed nobody knows: infinite.
    """
    spreads = [n.deviation for n in (one, other) if n.deviation is not None]
    if not spreads:
        return math.inf
    usual = max(spreads)
    return math.sqrt(
        sum(
            (n.deviation if n.deviation is not None else usual) ** 2 / len(n.values)
            for n in (one, other)
        )
    )


def show(table: Table, work: pathlib.Path) -> None:
    """Prints the table, and writes NAME.txt, NAME.tsv and NAME.png into the work folder."""
    numbers = [Number(cell, experiment.numbers(cell, work)) for cell in table.cells]
    spent = experiment.seconds(table.runs, work)
    made = {
        "date": datetime.date.today().isoformat(),
        "commit": " ".join(experiment.commits(table.runs, work)),
        "seconds": f"{spent:.0f}",
    }
    text = as_text(table, numbers) + (
        f"\n{made['date']}, commit {made['commit'] or 'unknown'}, "
        f"{datetime.timedelta(seconds=round(spent))} h of runs.\n"
    )
    print(text)
    (work / f"{table.name}.txt").write_text(text, encoding="utf-8")
    (work / f"{table.name}.tsv").write_text(as_tsv(table, numbers, made), encoding="utf-8")
    plot(table, numbers, str(work / f"{table.name}.png"))


def as_text(table: Table, numbers: Sequence[Number]) -> str:
    """A line per row, with the paper's number and ours in each column; below, the order."""
    rows = list(dict.fromkeys(n.cell.row for n in numbers))
    columns = list(dict.fromkeys(n.cell.column for n in numbers))
    at = {(n.cell.row, n.cell.column): n for n in numbers}
    grid = [["", *(text for c in columns for text in (c, ""))]]
    grid.append(["", *("paper", "ours") * len(columns)])
    for row in rows:
        line = [row]
        for column in columns:
            number = at.get((row, column))
            paper = number.cell.paper if number else None
            line += ["" if paper is None else f"{paper:g}", number.text if number else ""]
        grid.append(line)
    line = ["the paper's order"]
    for column in columns:
        line += ["", order([n for n in numbers if n.cell.column == column]).text]
    grid.append(line)
    widths = [max(len(line[place]) for line in grid) for place in range(len(grid[0]))]
    lines = [table.title, ""]
    for line in grid:
        first, *rest = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        lines.append("  ".join([first, *rest]).rstrip())
    if table.line:
        for row in rows:
            along = order([n for n in numbers if n.cell.row == row])
            lines.append(f"the paper's order along {row}: {along.text}")
    lines += ["", "ours: mean ± standard deviation (runs). unsure: pairs of numbers that are less "]
    lines[-1] += "than two standard errors apart."
    return "\n".join([*lines, *table.notes]) + "\n"


def as_tsv(table: Table, numbers: Sequence[Number], made: dict[str, str]) -> str:
    """A line per cell: row, column, paper, mean, deviation, n, values, and where from."""
    header = ["table", "row", "column", "paper", "mean", "standard_deviation", "n", "values"]
    lines = ["\t".join([*header, "order", *made])]
    for number in numbers:
        cell = number.cell
        alike = [n for n in numbers if n.cell.column == cell.column]
        values = [cell.paper, number.mean, number.deviation]
        texts = ["" if value is None else f"{value:.6g}" for value in values]
        each = " ".join(f"{value:.6g}" for value in number.values)
        fields = [table.name, cell.row, cell.column, *texts, str(len(number.values)), each]
        lines.append("\t".join([*fields, order(alike).text, *made.values()]))
    return "\n".join(lines) + "\n"


def plot(table: Table, numbers: Sequence[Number], path: str) -> None:
    """Paper beside ours: a panel for each column that we have, or lines over the columns."""
    from matplotlib.figure import Figure

    if table.line:
        figure = Figure(figsize=(10, 4), layout="constrained")
        _lines(figure, numbers)
    else:
        measured = [n for n in numbers if n.values] or numbers
        columns = list(dict.fromkeys(n.cell.column for n in measured))
        across = min(4, len(columns))
        down = math.ceil(len(columns) / across)
        rows = len({n.cell.row for n in numbers})
        size = (1 + 3.2 * across, down * (1.0 + 0.32 * rows))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(down, across, squeeze=False, sharey=True).flat
        for panel, column in itertools.zip_longest(panels, columns):
            if column is None:
                panel.set_axis_off()
            else:
                _panel(panel, column, [n for n in numbers if n.cell.column == column])
    figure.suptitle(table.title, fontsize=10)
    figure.savefig(path, dpi=110)


def _panel(panel, column: str, numbers: Sequence[Number]) -> None:
    """The paper's numbers and ours, on scales of their own, of one column."""
    names = [n.cell.row for n in numbers]
    places = range(len(names))
    papers = [(p, n.cell.paper) for p, n in zip(places, numbers, strict=True)]
    papers = [(p, value) for p, value in papers if value is not None]
    if papers:
        twin = panel.twiny()
        twin.plot([v for _, v in papers], [p for p, _ in papers], "D", color=BLUE, markersize=5)
        twin.tick_params(axis="x", colors=BLUE, labelsize=7)
    ours = [(p, n) for p, n in zip(places, numbers, strict=True) if n.values]
    panel.errorbar(
        [n.mean for _, n in ours],
        [p + 0.2 for p, _ in ours],
        xerr=[n.deviation or 0 for _, n in ours],
        fmt="o",
        color=ORANGE,
        capsize=3,
        markersize=5,
    )
    panel.set_yticks(list(places), names, fontsize=7)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.tick_params(axis="x", colors=ORANGE, labelsize=7)
    panel.set_xlabel(f"{column}: paper ◆ (top), ours ● (bottom)", fontsize=7)


def _lines(figure, numbers: Sequence[Number]) -> None:
    """The paper's panel and ours, columns by their number."""
    left, right = figure.subplots(1, 2)
    rows = list(dict.fromkeys(n.cell.row for n in numbers))
    for row, colour in zip(rows, itertools.cycle(COLOURS)):
        of_row = [n for n in numbers if n.cell.row == row]
        papers = [(float(n.cell.column), n.cell.paper) for n in of_row if n.cell.paper is not None]
        if papers:
            left.plot(*zip(*papers, strict=True), "D-", color=colour, label=row)
        ours = [(float(n.cell.column), n) for n in of_row if n.values]
        right.errorbar(
            [x for x, _ in ours],
            [n.mean for _, n in ours],
            yerr=[n.deviation or 0 for _, n in ours],
            fmt="o-",
            color=colour,
            capsize=3,
            label=row,
        )
    for panel, name in ((left, "paper"), (right, "ours")):
        panel.set_title(name, fontsize=9)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=8)
    right.legend(fontsize=8)
