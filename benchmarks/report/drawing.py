"""Plots as SVG files: bars with limits, and lines or points on logarithmic axes.

A file has its own style sheet, with light and dark colours, and needs nothing else. The same
figures give the same bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from decodescope.analyzer.html.svg import Drawing, short, ticks

_STYLE = Path(__file__).with_name("plot.css").read_text(encoding="utf-8")
_WIDTH, _COLORS = 860.0, 7
_TOP, _ROW, _FOOT = 56.0, 24.0, 22.0
_LEFT, _RIGHT, _HEIGHT, _LEGEND = 70.0, 24.0, 440.0, 20.0

# A name in a drawing: its left and right end, and its baseline.
_Box = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One measured value with the range of its rounds and, if known, the most that is possible."""

    group: str
    name: str
    value: float
    low: float
    high: float
    limit: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) of one colour, `joined` by a line, each with one of `labels` if there are any;
    or, with a `limit`, a line without points: a "measured" or a "stated" one."""

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True
    limit: Literal["measured", "stated"] | None = None
    labels: tuple[str, ...] = ()


class Plot(Drawing):
    """A drawing that is written as a file of its own."""

    def file(self, style: str) -> str:
        """The drawing as an SVG file of its own, with its style sheet."""
        size = {"width": short(self.width), "height": short(self.height)}
        root = ElementTree.Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", **self.root.attrib, **size}
        )
        ElementTree.SubElement(root, "style").text = style
        root.extend(self.root)
        return ElementTree.tostring(root, encoding="unicode") + "\n"


def log_ticks(low: float, high: float) -> list[float]:
    """Round values from `low` > 0 to `high` for a logarithmic axis: powers of ten, or 1, 2 and 5
    times those, or all digits, the more the shorter the axis is."""
    digits = (1,) if high / low > 1000 else (1, 2, 5) if high / low > 10 else range(1, 10)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [digit * 10.0**power for power in powers for digit in digits]
    return [value for value in values if low <= value <= high]


def bars_file(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars from zero, by group; a dashed line is a bar's limit."""
    rows = len(bars) + len({bar.group for bar in bars})
    height = _TOP + rows * _ROW + _FOOT
    left = max(120.0, 44 + 7.8 * max(len(bar.name) for bar in bars))
    right = 24 + 7.6 * max(len(bar.text) for bar in bars)
    described = ", ".join(f"{bar.group} {bar.name}: {bar.text}" for bar in bars)
    drawing = Plot(height, title, described, _WIDTH)
    drawing.text(12, 22, title, "title")
    most = max(max(bar.high, bar.limit or 0.0) for bar in bars)
    scale = (_WIDTH - left - right) / most
    for at in ticks(most, 8):
        drawing.line(left + at * scale, _TOP - 8, left + at * scale, height - _FOOT, "grid")
        drawing.text(left + at * scale, _TOP - 14, f"{at:,g}", "dim", "middle")
    drawing.text(_WIDTH - 12, _TOP - 14, unit, "dim", "end")
    y, group = _TOP, None
    for number, bar in enumerate(bars):
        if bar.group != group:
            group, first = bar.group, number
            drawing.text(12, y + 16, group)
            y += _ROW
        _bar(drawing, bar, y, left, scale, (number - first) % _COLORS)
        y += _ROW
    return drawing.file(_STYLE)


def _bar(drawing: Drawing, bar: Bar, y: float, left: float, scale: float, color: int) -> None:
    drawing.text(28, y + 16, bar.name, "dim")
    drawing.rect(left, y + 4, bar.value * scale, 15, f"f{color}", bar.text)
    if bar.high > bar.low:
        drawing.line(left + bar.low * scale, y + 11.5, left + bar.high * scale, y + 11.5, "range")
    if bar.limit is not None:
        drawing.line(left + bar.limit * scale, y, left + bar.limit * scale, y + 22, "measured")
    end = max(bar.high, bar.limit or 0.0) * scale
    drawing.text(left + end + 8, y + 16, bar.text)


def lines_file(
    title: str, x_name: str, y_name: str, series: Sequence[Series], marks: Sequence[float] = ()
) -> str:
    """Series on two logarithmic axes, with a legend below; `marks` are the values named on the
    horizontal one, by default round values."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    across, up = _Axis.over(xs, _LEFT, _WIDTH - _RIGHT), _Axis.over(ys, _HEIGHT, _TOP)
    height = _HEIGHT + 48 + _LEGEND * math.ceil(len(series) / 2)
    drawing = Plot(height, title, ", ".join(one.name for one in series), _WIDTH)
    drawing.text(12, 22, title, "title")
    for at in marks or across.marks:
        drawing.line(across.place(at), _TOP, across.place(at), _HEIGHT, "grid")
        drawing.text(across.place(at), _HEIGHT + 18, f"{at:,g}", "dim", "middle")
    for at in up.marks:
        drawing.line(_LEFT, up.place(at), _WIDTH - _RIGHT, up.place(at), "grid")
        drawing.text(_LEFT - 8, up.place(at) + 4, f"{at:,g}", "dim", "end")
    drawing.text(_WIDTH - _RIGHT, _HEIGHT + 34, x_name, "dim", "end")
    drawing.text(12, 42, y_name, "dim")
    taken: list[_Box] = []
    for number, one in enumerate(series):
        _series(drawing, one, number, across, up)
        _labels(drawing, one, across, up, taken)
    return drawing.file(_STYLE)


def _series(drawing: Drawing, one: Series, number: int, across: "_Axis", up: "_Axis") -> None:
    color = number % _COLORS
    places = [(across.place(x), up.place(y)) for x, y in one.points]
    if one.joined:
        drawing.through(places, "polyline", one.limit or f"l{color}")
    if one.limit is None:
        for (x, y), (_, value) in zip(places, one.points, strict=True):
            drawing.circle(x, y, 4, f"f{color}", f"{one.name}: {value:,.4g}")
    x, y = _LEFT + (number % 2) * 390, _HEIGHT + 56 + (number // 2) * _LEGEND
    if one.limit is not None:
        drawing.line(x, y - 4, x + 24, y - 4, one.limit)
    else:
        drawing.rect(x + 4, y - 10, 16, 12, f"f{color}")
    drawing.text(x + 32, y, one.name)


def _labels(drawing: Drawing, one: Series, across: "_Axis", up: "_Axis", taken: list[_Box]) -> None:
    """The names of points below them, within the drawing, where no other name is."""
    for (x_value, y_value), label in zip(one.points, one.labels, strict=False):
        x, y = across.place(x_value), up.place(y_value)
        width = 7.5 * len(label)
        start = min(x + 8, _WIDTH - width)
        box = (start, start + width, y + 16)
        if not any(_overlap(box, other) for other in taken):
            drawing.text(box[0], box[2], label, "dim")
            taken.append(box)


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and abs(one[2] - other[2]) < 14


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis from `low` at pixel `first` to `high` at pixel `last`."""

    low: float
    high: float
    first: float
    last: float

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> "_Axis":
        """An axis with room on both sides of positive `values`."""
        low, high = min(values), max(values)
        room = max((high / low) ** 0.06, 1.1)
        return cls(low / room, high * room, first, last)

    @property
    def marks(self) -> list[float]:
        return log_ticks(self.low, self.high)

    def place(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.first + share * (self.last - self.first)
