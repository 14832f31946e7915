"""Diagrams of a report as SVG inside of HTML: curves, reliability, numbers, bars.

Colours are the page's CSS variables, so that they follow its light or dark. Everything is built
as elements, whose text is escaped when they are written.
"""

import math
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from modeling.training.reports.calibration import Reliability
from modeling.training.reports.intervals import Interval

_WIDTH, _HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 40
_MOST_POINTS = 1500
_MOST_OF_CURVE = 400


def curves_drawing(
    curves: Mapping[str, tuple[Sequence[tuple[int, float]], Sequence[tuple[int, float]]]],
) -> Markup:
    """Quantities against the step.

    Args:
        curves: Name → (step, value) pairs in training, a line, and on held-out data, dots on a
            dashed one. What isn't finite is left out.
    """
    finite = {
        name: [[p for p in points if math.isfinite(p[1])] for points in both]
        for name, both in curves.items()
    }
    points = [point for both in finite.values() for part in both for point in part]
    frame = _Frame(*_range([x for x, _ in points]), *_range([y for _, y in points]), "step")
    for number, (train, held_out) in enumerate(finite.values()):
        colour = f"var(--series-{number + 1})"
        every = max(math.ceil(len(train) / _MOST_OF_CURVE), 1)
        frame.line(train[::every], colour, opacity="0.75")
        frame.line(held_out, colour, dashed=True)
        for step, value in held_out:
            frame.dot(step, value, colour, f"step {step}: {value:.4g}", 3.2)
    return frame.written()


def reliability_drawing(reliability: Reliability) -> Markup:
    """The share of right answers in each bin of probability, beside what it should be."""
    frame = _Frame(0, 1, 0, 1, "probability", "right")
    bins = len(reliability.counts)
    largest = max(int(reliability.counts.max()), 1)
    for number, count in enumerate(map(int, reliability.counts)):
        if count:
            share = reliability.right[number] / count
            said = reliability.confidence[number] / count
            title = f"{count} answers of probability {said:.3f} on average: {share:.3f} right"
            # Bins of few answers are pale.
            opacity = f"{0.25 + 0.65 * math.sqrt(count / largest):.2f}"
            frame.bar(number / bins, (number + 1) / bins, 0, share, opacity, title)
            frame.dot(said, share, "var(--ink)", title, 2.6)
    frame.line([(0, 0), (1, 1)], "var(--muted)", dashed=True)
    return frame.written()


def numbers_drawing(gold: np.ndarray, predicted: np.ndarray) -> Markup:
    """Right numbers and predicted ones, a dot each; of very many a part that is drawn at random."""
    keep = np.isfinite(predicted)
    gold, predicted = gold[keep], predicted[keep]
    if len(gold) > _MOST_POINTS:
        chosen = np.random.default_rng(0).choice(len(gold), _MOST_POINTS, replace=False)
        gold, predicted = gold[chosen], predicted[chosen]
    low, high = _range([*gold, *predicted])
    frame = _Frame(low, high, low, high, "right number", "predicted")
    frame.line([(low, low), (high, high)], "var(--muted)", dashed=True)
    for x, y in zip(gold.tolist(), predicted.tolist(), strict=True):
        frame.dot(x, y, "var(--accent)", f"right {x:g}, predicted {y:.4g}", 2.6, "0.45")
    return frame.written()


def bars_drawing(
    rows: Sequence[tuple[str, float, Interval | None, str]], label: str, most: float
) -> Markup:
    """A bar per row: its name below it, its height, where that may be, and words on it."""
    frame = _Frame(0, max(len(rows), 1), 0, most, "", label, x_ticks=False)
    for number, (name, value, interval, title) in enumerate(rows):
        frame.bar(number + 0.12, number + 0.88, 0, value, "0.8", title)
        if interval:
            frame.line([(number + 0.5, end) for end in interval], "var(--ink)", opacity="0.6")
        frame.text(number + 0.5, name)
    return frame.written()


class _Frame:
    """Axes with ticks, on which is drawn in the data's own numbers."""

    def __init__(self, left, right, bottom, top, x_label="", y_label="", x_ticks=True):
        self.x, self.y = (left, right), (bottom, top)
        self.svg = ElementTree.Element("svg", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img")
        for tick in _ticks(bottom, top):
            y = self._y(tick)
            self._add("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, stroke="var(--line)")
            self._text(_LEFT - 7, y + 4, f"{tick:g}", "end")
        for tick in _ticks(left, right) if x_ticks else []:
            self._text(self._x(tick), _HEIGHT - _BOTTOM + 17, f"{tick:g}", "middle")
        self._text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 5, x_label, "middle")
        y = (_TOP + _HEIGHT - _BOTTOM) / 2
        self._text(13, y, y_label, "middle", transform=f"rotate(-90 13 {y:g})")

    def _x(self, value: float) -> float:
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, value: float) -> float:
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def _add(self, kind: str, title: str = "", **attributes) -> ElementTree.Element:
        named = {name.replace("_", "-"): str(value) for name, value in attributes.items()}
        element = ElementTree.SubElement(self.svg, kind, named)
        if title:
            ElementTree.SubElement(element, "title").text = title
        return element

    def _text(self, x: float, y: float, text: str, anchor: str, **attributes) -> None:
        self._add(
            "text", x=round(x, 1), y=round(y, 1), text_anchor=anchor, **attributes
        ).text = text

    def line(self, points, colour: str, dashed: bool = False, opacity: str = "1") -> None:
        places = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in points)
        dashes = {"stroke_dasharray": "5 4"} if dashed else {}
        style = {"stroke": colour, "fill": "none", "stroke_width": 1.8, "opacity": opacity}
        self._add("polyline", points=places, **style, **dashes)

    def dot(self, x, y, colour: str, title: str, radius: float, opacity: str = "1") -> None:
        place = {"cx": self._x(x), "cy": self._y(y), "r": radius}
        self._add("circle", title, fill=colour, opacity=opacity, **place)

    def bar(self, left, right, bottom, top, opacity: str, title: str) -> None:
        x, y = self._x(left), self._y(top)
        sizes = {"width": round(self._x(right) - x, 1), "height": round(self._y(bottom) - y, 1)}
        self._add("rect", title, x=x, y=y, fill="var(--accent)", opacity=opacity, **sizes)

    def text(self, x: float, text: str) -> None:
        self._text(self._x(x), _HEIGHT - _BOTTOM + 17, text, "middle")

    def written(self) -> Markup:
        return Markup(ElementTree.tostring(self.svg, encoding="unicode"))


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest, with something in between."""
    low, high = (float(min(values)), float(max(values))) if len(values) else (0.0, 1.0)
    # More than a half where floats don't reach so far.
    margin = max(0.5, abs(low) * 1e-9)
    return (low, high) if high > low else (low - margin, high + margin)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, four to seven of them, within a range."""
    size = 10 ** math.floor(math.log10((high - low) / 5))
    step = next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) <= 6)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
