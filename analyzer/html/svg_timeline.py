"""Decode steps drawn along time: ops of each stream above, the gaps of the device below.

An op or gap at least `SINGLE_PX` wide is a shape of its own with its name. Shorter ones are merged
into columns of `COLUMN_PX`, filled as high as their share of the column's time, so that thousands
of ops stay a small picture in which nothing is hidden. While an op before it in its row still runs,
an op is a low shape at the bottom of the row, and it does not count for the columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, time_ticks
from decodescope.analyzer.names.fitted_names import cut_middle, short_kernel
from decodescope.analyzer.names.kinds import FAMILIES
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.timing.intervals import attributed_ns, covered_until
from decodescope.analyzer.timing.timeline import StepTimeline, families_of
from decodescope.analyzer.trace import Int8s, Intervals

SINGLE_PX = 1.5
COLUMN_PX = 2.0
MAX_STREAMS = 6
EXCERPT_OPS = 24
_LEFT, _RIGHT = 150.0, 8.0
_PLOT = CHART_WIDTH - _LEFT - _RIGHT
_OPS_PX, _GAPS_PX, _ROW_SPACE, _TRACK_SPACE, _AXIS_PX = 26.0, 14.0, 3.0, 16.0, 22.0
_EARLY_PX = 7.0
_TIP_CELLS = 90
_LABEL_PX, _LETTER_PX, _TICK_TEXT_PX, _PATTERN_PX = 48.0, 6.9, 50.0, 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """Intervals of one row, sorted by start. `kind` is an index in `classes`, the class names of
    the shapes; `name` is one in `names`. Ops have their names written on them if there is room."""

    label: str
    at: Intervals
    kind: Int8s
    classes: tuple[str, ...]
    names: tuple[str, ...]
    name: npt.NDArray[np.integer]
    height: float
    are_ops: bool


def steps_svg(steps: Sequence[tuple[str, StepTimeline]]) -> Markup:
    """One step of each variant, all on the scale of the longest."""
    lengths = ", ".join(f"{name}: {duration(step.length_ns)}" for name, step in steps)
    longest_ns = max(step.length_ns for _, step in steps)
    return _drawn(steps, (0, longest_ns), "One step of each variant on one time scale", lengths)


def step_svg(name: str, step: StepTimeline) -> Markup:
    """One step across the whole width."""
    about = (
        f"{duration(step.length_ns)}, {len(step.ops)} ops on "
        f"{len(np.unique(step.ops.stream))} streams, {len(np.unique(step.gaps.gap))} gaps"
    )
    return _drawn([("", step)], (0, step.length_ns), f"One step of {name} at its own scale", about)


def excerpt_svg(name: str, step: StepTimeline) -> Markup | None:
    """`EXCERPT_OPS` consecutive ops from the middle of the step, wide enough to distinguish; None
    if the whole step has few ops."""
    count = len(step.ops)
    if count < 2 * EXCERPT_OPS:
        return None
    first = (count - EXCERPT_OPS) // 2
    start = int(step.ops.start_ns[first])
    end = int(step.ops.end_ns[first : first + EXCERPT_OPS].max())
    title = f"{EXCERPT_OPS} ops from the middle of a step of {name}"
    return _drawn([("", step)], (start, end), title, f"from {duration(start)} on")


def _drawn(
    steps: Sequence[tuple[str, StepTimeline]], window_ns: tuple[int, int], title: str, about: str
) -> Markup:
    """The steps below each other, between the same two times."""
    tracks = [(name, step, _rows(step)) for name, step in steps]
    heights = [sum(row.height + _ROW_SPACE for row in rows) + _TRACK_SPACE for _, _, rows in tracks]
    plot = _Plot(Drawing(_AXIS_PX + sum(heights), title, about), *window_ns)
    plot.axis(_AXIS_PX + sum(heights) - _TRACK_SPACE)
    y = _AXIS_PX
    for (name, step, rows), height in zip(tracks, heights, strict=True):
        plot.track(name, step, rows, y)
        y += height
    return plot.drawing.markup()


def _rows(step: StepTimeline) -> list[_Row]:
    """A row for each of the streams with most ops, one for all the others, one for the gaps."""
    ops, families = step.ops, families_of(step.names, step.ops)
    streams, sizes = np.unique(ops.stream, return_counts=True)
    busiest = streams[np.argsort(-sizes, kind="stable")[:MAX_STREAMS]]
    groups = {f"stream {stream}": ops.stream == stream for stream in sorted(busiest.tolist())}
    if others := len(streams) - len(busiest):
        groups[f"{others} more streams"] = ~np.isin(ops.stream, busiest)
    rows = [
        _Row(
            label=label,
            at=ops.take(chosen),
            kind=families[chosen],
            classes=tuple(f"f-{name}" for name in FAMILIES),
            names=step.names,
            name=ops.name[chosen],
            height=_OPS_PX,
            are_ops=True,
        )
        for label, chosen in groups.items()
    ]
    gaps = _Row(
        label="gaps",
        at=step.gaps,
        kind=step.gaps.kind,
        classes=tuple(f"g-{name}" for name in GAP_CLASSES),
        names=GAP_CLASSES,
        name=step.gaps.kind,
        height=_GAPS_PX,
        are_ops=False,
    )
    return [*rows, gaps]


@dataclass(frozen=True, slots=True)
class _Plot:
    """A drawing whose plot shows the time from `from_ns` to `until_ns`."""

    drawing: Drawing
    from_ns: int
    until_ns: int

    @property
    def px_per_ns(self) -> float:
        return _PLOT / max(self.until_ns - self.from_ns, 1)

    def x(self, at_ns: float) -> float:
        return _LEFT + (at_ns - self.from_ns) * self.px_per_ns

    def axis(self, bottom: float) -> None:
        for at, text in time_ticks(self.until_ns - self.from_ns):
            x = _LEFT + at * self.px_per_ns
            self.drawing.line(x, _AXIS_PX - 6, x, bottom, "grid")
            if self.from_ns:
                text = f"+{text}" if at else f"from {duration(self.from_ns)}"
            if x < _LEFT + _PLOT - _TICK_TEXT_PX:
                self.drawing.text(x + 3, 12, text, "dim")

    def track(self, name: str, step: StepTimeline, rows: Sequence[_Row], y: float) -> None:
        """All rows of one step from `y` down."""
        if name:
            self.drawing.text(0, y + 12, cut_middle(name, 20), "strong")
            self.drawing.text(0, y + 27, duration(step.length_ns), "dim")
        end = min(self.x(step.length_ns), _LEFT + _PLOT)
        for row in rows:
            if len(rows) > 2 or not name:
                self.drawing.text(_LEFT - 8, y + row.height / 2 + 4, row.label, "dim", "end")
            self.drawing.rect(_LEFT, y, end - _LEFT, row.height, "track")
            self._row(row, y)
            y += row.height + _ROW_SPACE

    def _row(self, row: _Row, y: float) -> None:
        alone_ns = row.at.end_ns - attributed_ns(row.at.start_ns, row.at.end_ns)
        seen = (row.at.start_ns < self.until_ns) & (row.at.end_ns > self.from_ns)
        kind, name, at = row.kind[seen], row.name[seen], row.at.take(seen)
        start_ns, alone_ns, end_ns = (
            np.clip(times, self.from_ns, self.until_ns)
            for times in (at.start_ns, alone_ns[seen], at.end_ns)
        )
        single = (end_ns - start_ns) * self.px_per_ns >= SINGLE_PX
        self._columns(row, y, Intervals(alone_ns, end_ns).take(~single), kind[~single])
        for index in np.flatnonzero(single):
            x, middle, right = (self.x(int(ns[index])) for ns in (start_ns, alone_ns, end_ns))
            shape = row.classes[kind[index]]
            shape = shape if right - x >= _PATTERN_PX else _plain(shape)
            text = row.names[name[index]]
            tip = f"{short_kernel(text, _TIP_CELLS)}\n{duration(at.length_ns[index])}"
            tip += f", at {duration(int(start_ns[index]))}"
            if middle > x:
                early_ns = int(alone_ns[index] - start_ns[index])
                tip += f", for {duration(early_ns)} beside an op before it"
                low = y + row.height - _EARLY_PX
                self.drawing.rect(x, low, middle - x, _EARLY_PX, f"{shape} early", tip)
            if right > middle:
                self.drawing.rect(middle, y, right - middle, row.height, shape, tip)
            if row.are_ops and right - middle >= _LABEL_PX:
                label = short_kernel(text, int((right - middle - 6) / _LETTER_PX))
                self.drawing.text(middle + 3, y + row.height / 2 + 4, label, "on-op")

    def _columns(self, row: _Row, y: float, short: Intervals, kind: Int8s) -> None:
        """Disjoint short intervals as columns, the kinds stacked upon each other."""
        columns = int(_PLOT / COLUMN_PX)
        window_ns = self.until_ns - self.from_ns
        edges = self.from_ns + np.linspace(0, window_ns, columns + 1).astype(np.int64)
        widths = np.maximum(np.diff(edges), 1)
        foot = np.full(columns, y + row.height)
        for index in np.unique(kind):
            intervals = short.take((kind == index) & (short.length_ns > 0))
            height = np.diff(covered_until(intervals, edges)) / widths * row.height
            foot = foot - height
            shape = row.classes[index]
            self.drawing.boxes(
                (
                    (_LEFT + column * COLUMN_PX, foot[column], COLUMN_PX, height[column])
                    for column in np.flatnonzero(height >= 0.005)
                ),
                _plain(shape),
                f"{shape[2:]}: each shorter than {SINGLE_PX:g} px, taken together",
            )


def _plain(shape: str) -> str:
    """The class of the same colour without a pattern: a pattern is invisible on small shapes, and
    each one costs kilobytes in print."""
    return f"s-{shape[2:]}" if shape.startswith("g-") else shape
