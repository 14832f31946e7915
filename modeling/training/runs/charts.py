"""Pictures of a run, an evaluation and a search: curves, confusion matrix, spread.

The PNGs are written under a temporary name and renamed, on any file system that tf.io.gfile
knows. matplotlib is loaded when the first one is drawn.
"""

import functools
import io
import math
import operator
import os
import posixpath
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from modeling.checkpoints.files import join, staged
from modeling.errors import ModelingError
from modeling.metrics import first_best_metric

DPI = 110
NAME_LENGTH = 22  # characters of a class' name that are shown
SETTING_LENGTH = 44
PERCENT_CLASSES = 12  # up to so many the cells of a confusion matrix hold percents too
NUMBER_CLASSES = 70  # up to so many they hold numbers
MAX_INCHES = 22.0
# Blue and orange of Okabe and Ito's palette, which the colour-blind can tell apart.
_BLUE, _ORANGE, _GRAY = "#0072B2", "#D55E00", "#555555"
_FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "SimHei", "PingFang SC")
PRETRAINING_CURVES = {
    "Loss": ["masked_lm_loss", "next_sentence_loss"],
    "Accuracy": ["masked_lm_accuracy", "next_sentence_accuracy"],
    "Perplexity": ["masked_lm_perplexity"],
}
"""Of a pre-training run: title → names of quantities."""


def confusion_png(matrix, names: Sequence[str], path: str) -> None:
    """Draws a confusion matrix.

    A cell holds the count; its colour, and its percents where there are few classes, are the
    share of the row, so that rare classes show as well as frequent ones. With many classes the
    colours are spread towards small shares, or confusions wouldn't be seen beside the diagonal.
    Rows without examples stay gray. Names are shortened; those that no font can write become the
    class' number.

    Args:
        matrix: int [L, L], a row per label, a column per prediction.
        names: L names of the classes.
        path: Of the PNG; written over if it exists.

    Raises:
        ModelingError: The matrix isn't square, doesn't fit the names, or the folder of `path`
            can't be written.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    matrix = np.asarray(matrix)
    count = len(names)
    if not count or matrix.shape != (count, count):
        raise ModelingError(
            f"Can't draw a confusion matrix of shape {matrix.shape} for {count} class names; it "
            f"needs a row and a column for each."
        )
    rows = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, rows, out=np.full(matrix.shape, np.nan), where=rows > 0)
    numbers, percents = count <= NUMBER_CLASSES, count <= PERCENT_CLASSES
    cell = 0.85 if percents else 0.34
    side = min(max(cell * count, 2.6), MAX_INCHES - 4)
    ticks = _shown_names(names, NAME_LENGTH)
    margin = 0.9 + 0.075 * max(map(len, ticks))
    figure = _figure(side + margin + 0.9, side + margin + 0.4)
    axis = figure.subplots()
    axis.set_facecolor("#d9d9d9")
    norm = PowerNorm(1.0 if percents else 0.5, vmin=0, vmax=1)
    image = axis.imshow(shares, cmap="Blues", norm=norm)
    every = math.ceil(count * 0.13 / side)  # names must not overlap
    small = 9 if percents else 7
    places = range(0, count, every)
    for which in (axis.xaxis, axis.yaxis):
        which.set_ticks(list(places), [ticks[place] for place in places], fontsize=small)
        for label in which.get_ticklabels():
            label.set_parse_math(False)  # "$" in a name is a dollar
    flat = percents and max(map(len, ticks)) * 0.09 <= side / count
    axis.tick_params(axis="x", rotation=0 if flat else 90)
    axis.set_xlabel("predicted")
    axis.set_ylabel("label")
    right = int(np.trace(matrix))
    total = int(matrix.sum())
    share = f" ({right / total:.1%})" if total else ""
    axis.set_title(f"{right:,} of {total:,} right{share}", fontsize=11)
    if numbers:
        _number_cells(axis, matrix, shares, percents, dark=norm.inverse(0.55))
    axis.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=1.5 if percents else 0.5)
    axis.tick_params(which="minor", length=0)
    axis.spines[:].set_visible(False)
    place = axis.inset_axes([1 + 0.15 / side, 0, 0.16 / side, 1])
    bar = figure.colorbar(image, cax=place, format=PercentFormatter(1))
    bar.set_ticks([0, 0.2, 0.4, 0.6, 0.8, 1] if percents else [0, 0.01, 0.05, 0.2, 0.5, 1])
    bar.ax.tick_params(labelsize=9)
    bar.set_label("share of the label's examples", fontsize=9)
    bar.outline.set_visible(False)
    _save(figure, path)


def _number_cells(
    axis, matrix: np.ndarray, shares: np.ndarray, percents: bool, dark: float
) -> None:
    for row, column in np.ndindex(matrix.shape):
        value, share = int(matrix[row, column]), shares[row, column]
        if not percents and not value:
            continue  # what matters in many classes is where there is something
        text = f"{value:,}" if percents else _brief(value)
        if percents and math.isfinite(share):
            text += f"\n{share:.1%}"
        size = 9 if percents else 6.5 if len(text) < 4 else 5.5
        color = "white" if share > dark else "black"
        axis.text(column, row, text, ha="center", va="center", fontsize=size, color=color)


def spread_png(rows: Sequence[dict], path: str, metric: str) -> None:
    """Draws every run of a search as a dot in its setting's column.

    Beside the dots stands their mean with a bar of one standard deviation (of the sample: n - 1)
    to either side, degenerate runs counted. The best run is ringed: the largest value, or the
    smallest of metrics where less is better; the first of equals. Degenerate runs are hollow.
    Values that aren't finite aren't drawn or counted, but mentioned.

    Args:
        rows: Dicts with "setting" (str), "value" (float) and "degenerate" (bool), one per run;
            settings are drawn in the order in which they first come.
        path: Of the PNG; written over if it exists.
        metric: Name of the value.

    Raises:
        ModelingError: There are no rows, or the folder of `path` can't be written.
    """
    if not rows:
        raise ModelingError(
            f"There are no runs to draw into {path}; the search needs at least one."
        )
    settings = list(dict.fromkeys(str(row["setting"]) for row in rows))
    columns = [[row for row in rows if str(row["setting"]) == name] for name in settings]
    ticks = _shown_names(settings, SETTING_LENGTH)
    longest = max(map(len, ticks))
    width = min(max(0.85 * len(settings) + 1.6, 5.0), MAX_INCHES)
    upright = longest * 0.08 > (width - 0.9) / len(settings)
    figure = _figure(width, 4.6 + 0.08 * longest * upright)
    axis = figure.subplots()
    best = first_best_metric(metric, rows, operator.itemgetter("value"))
    # By kind of mark, as the legend names them: places across and values.
    dots: dict[str, list[tuple[float, float]]] = {"run": [], "degenerate run": [], "best run": []}
    means = []  # place, mean, standard deviation
    for place, runs in enumerate(columns):
        drawn = [run for run in runs if math.isfinite(run["value"])]
        values = np.array([run["value"] for run in drawn], np.float64)
        for run, offset in zip(drawn, _jitter(values), strict=True):
            dot = (place - 0.08 + offset, run["value"])
            dots["degenerate run" if run["degenerate"] else "run"].append(dot)
            if run is best:
                dots["best run"].append(dot)
        if len(values):
            deviation = values.std(ddof=1) if len(values) > 1 else math.nan
            means.append((place + 0.3, values.mean(), deviation))
    styles = {
        "run": {"color": _BLUE, "markersize": 6.5},
        "degenerate run": {"color": "white", "markeredgecolor": _BLUE, "markersize": 6.5},
        "best run": {"color": "none", "markeredgecolor": _ORANGE, "mew": 2, "markersize": 14},
    }
    for order, (label, style) in enumerate(styles.items(), 3):
        if dots[label] or label != "degenerate run":
            across, values = np.reshape(dots[label], [-1, 2]).T
            axis.plot(across, values, "o", label=label, zorder=order, **style)
    across, values, deviations = np.reshape(means, [-1, 3]).T
    style = {"color": _GRAY, "markersize": 12, "capsize": 4, "zorder": 2}
    axis.errorbar(across, values, deviations, fmt="_", label="mean ± std of all", **style)
    axis.set_xticks(range(len(settings)), ticks, fontsize=9, rotation=90 if upright else 0)
    for label in axis.get_xticklabels():
        label.set_parse_math(False)
    axis.set_xlim(-0.6, len(settings) - 0.4)
    axis.margins(y=0.12)
    axis.set_ylabel(metric, parse_math=False)
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if best is not None:
        where = ticks[settings.index(str(best["setting"]))]
        title = f"{len(rows)} run{'s' * (len(rows) > 1)}; best {best['value']:.4g} at {where}"
        axis.set_title(title, fontsize=11, parse_math=False)
    lost = sum(not math.isfinite(row["value"]) for row in rows)
    if lost:
        axis.set_xlabel(f"not drawn: {lost} of {len(rows)} runs, whose value isn't finite")
    figure.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    _save(figure, path)


def _jitter(values: np.ndarray) -> np.ndarray:
    """Sideways offsets by rank: neighbours in value, and only they, are set apart."""
    steps = np.array([0.0, 0.13, -0.13, 0.065, -0.065])
    offsets = np.empty(len(values))
    offsets[np.argsort(values, kind="stable")] = steps[np.arange(len(values)) % len(steps)]
    return offsets if len(values) > 1 else np.zeros(len(values))


def _brief(value: int) -> str:
    """A count in at most four characters or so: 1234 is 1.2k."""
    if value < 1000:
        return str(value)
    thousands = value / 1000
    return f"{thousands:.1f}k" if thousands < 9.95 else f"{thousands:.0f}k"


def _shown_names(names: Sequence[str], limit: int) -> list[str]:
    """Names on one line, those too long without their middle; all differ that differed."""
    names = [" ".join(str(name).split()) or "(empty)" for name in names]
    half = limit // 2
    shown = [n if len(n) <= limit else f"{n[:half]}…{n[1 + half - limit :]}" for n in names]
    return [
        f"#{number}"
        if not all(map(_drawable, name))
        else f"{names[number][: limit - 5]}…#{number}"
        if "…" in name and shown.count(name) > 1
        else name
        for number, name in enumerate(shown)
    ]


Curve = list[tuple[int, float]]


def scatter_png(rows: Sequence[dict], path: str, x_name: str, y_name: str) -> None:
    """Draws models as named dots: what they cost across, what they are worth upwards.

    Args:
        rows: Dicts with "name" (str), "x" and "y" (float) and "special" (bool): drawn otherwise.
        path: Of the PNG; written over if it exists.
        x_name, y_name: Of the axes; the one across begins at 0.

    Raises:
        ModelingError: The folder of `path` can't be written.
    """
    figure = _figure(6.4, 4.4)
    axis = figure.subplots()
    # Above and below in turn, or the names of neighbours would lie on each other.
    for number, row in enumerate(sorted(rows, key=operator.itemgetter("x"))):
        color = _ORANGE if row["special"] else _BLUE
        axis.plot([row["x"]], [row["y"]], "o", color=color, markersize=9, zorder=3)
        height = -18 if number % 2 else 9
        place = {"xytext": (0, height), "textcoords": "offset points", "ha": "center"}
        axis.annotate(row["name"], (row["x"], row["y"]), fontsize=9, parse_math=False, **place)
    axis.set_xlim(0, 1.25 * max(row["x"] for row in rows))
    axis.margins(y=0.25)
    axis.set_xlabel(x_name, parse_math=False)
    axis.set_ylabel(y_name, parse_math=False)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def curves_png(panels: Mapping[str, Sequence[tuple[str, Curve, Curve]]], path: str) -> None:
    """Draws quantities against the step.

    A panel that nothing was written for is left out, unless all would be. One of values from 1
    that span more than a factor of 10, as perplexities do, gets a logarithmic axis.

    Args:
        panels: Title → name of each quantity, its (step, value) pairs in training, drawn as a
            line, and on held-out data, drawn as dots.
        path: Of the PNG; written over if it exists.
    """
    from matplotlib import colormaps
    from matplotlib.ticker import EngFormatter

    filled = {t: c for t, c in panels.items() if any(train or dev for _, train, dev in c)}
    panels = filled or panels
    figure = _figure(5.2 * len(panels), 3.8)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for color, curve in zip(colormaps["tab10"].colors, curves, strict=False):
            _draw(axis, color, *curve)
        axis.set(title=title, xlabel="step")
        values = [y for line in axis.lines for y in line.get_ydata() if math.isfinite(y)]
        if values and min(values) >= 1 and max(values) > 10 * min(values):
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(EngFormatter(sep=""))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.25, which="both")
        axis.spines[["top", "right"]].set_visible(False)
        if axis.lines:
            axis.legend(fontsize=8, frameon=False)
    _save(figure, path, tight=False)


def _draw(axis, color, name: str, train: list, held_out: list) -> None:
    """Training pale, so that the dots of the held-out data stand out where the two are close."""
    label = name.replace("_", " ").replace(" lm ", " LM ")
    if train:
        axis.plot(*zip(*train, strict=True), color=color, alpha=0.55, linewidth=1.1, label=label)
    if held_out:
        # The last value of a step that was evaluated twice, in the order of steps.
        points = sorted(dict(held_out).items())
        style = {"marker": "o", "markersize": 4, "linewidth": 1.4, "linestyle": "--"}
        label = f"{label}, held out"
        axis.plot(*zip(*points, strict=True), color=color, label=label, **style)


@functools.cache
def _fonts() -> tuple[list[str], list]:
    """Names of fonts to draw with, and the fonts, to see what they have."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in _FONTS if name in installed)]
    return families, [font_manager.get_font(font_manager.findfont(f)) for f in families]


def _drawable(character: str) -> bool:
    return any(font.get_char_index(ord(character)) for font in _fonts()[1])


def _figure(width: float, height: float):
    """A figure that knows nothing of pyplot, so that none stays open and no window appears."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure, path: str, tight: bool = True) -> None:
    import matplotlib

    image = io.BytesIO()
    # Tight, because names and legends may need more room than the layout thought.
    # No version of matplotlib in the file: the same values are the same bytes.
    with matplotlib.rc_context({"font.family": _fonts()[0]}):
        figure.savefig(
            image,
            format="png",
            dpi=DPI,
            bbox_inches="tight" if tight else None,
            pad_inches=0.12,
            metadata={"Software": None},
        )
    path = os.fspath(path)
    split = posixpath.split if "://" in path else os.path.split
    directory, file_name = split(path)
    with (
        staged(directory or ".") as temporary,
        tf.io.gfile.GFile(join(temporary, file_name), "wb") as file,
    ):
        file.write(image.getvalue())
