"""Decode steps drawn along time: ops of each stream above, the gaps of the device below.

What is at least `SINGLE_PX` wide is a shape of its own with its name. Shorter ops and gaps are
taken together in columns of `COLUMN_PX`, filled as high as the share of the column's time that they
took; so thousands of ops stay a small picture in which nothing is hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from decodescope.analyzer.formatting import duration
from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, time_ticks
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.intervals import covered_until, union
from decodescope.analyzer.timing.op_families import FAMILIES, op_families
from decodescope.analyzer.timing.step_timeline import StepTimeline
from decodescope.analyzer.trace import Int8s, Int64s
from decodescope.analyzer.views.names import cut_middle, shorten_kernel

SINGLE_PX = 1.5
COLUMN_PX = 2.0
MAX_STREAMS = 6
EXCERPT_OPS = 24
_LEFT, _RIGHT = 150.0, 8.0
_PLOT = CHART_WIDTH - _LEFT - _RIGHT
_OPS_PX, _GAPS_PX, _ROW_SPACE, _LANE_SPACE, _AXIS_PX = 26.0, 14.0, 3.0, 16.0, 22.0
_TIP_CELLS = 90
_LABEL_PX, _LETTER_PX, _TICK_TEXT_PX, _PATTERN_PX = 48.0, 6.9, 50.0, 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """Intervals of one row, sorted by start: what each is (`kind`, an index in `classes`) and the
    class names of the shapes."""

    label: str
    start_ns: Int64s
    end_ns: Int64s
    kind: Int8s
    classes: tuple[str, ...]
    names: tuple[str, ...]
    name: Int64s
    height: float
    labelled: bool


@dataclass(frozen=True, slots=True)
class _Scale:
    """Which times lie where: `from_ns` at the plot's left edge, `ns` across the plot."""

    from_ns: int
    ns: int

    @property
    def px_per_ns(self) -> float:
        return _PLOT / max(self.ns, 1)

    def x(self, at_ns: float) -> float:
        return _LEFT + (at_ns - self.from_ns) * self.px_per_ns


def steps_svg(steps: Sequence[tuple[str, StepTimeline]]) -> Markup:
    """One step of each variant, all on the scale of the longest."""
    scale = _Scale(0, max(step.length_ns for _, step in steps))
    lengths = ", ".join(f"{name}: {duration(step.length_ns)}" for name, step in steps)
    return _drawing(steps, scale, "One step of each variant on one time scale", lengths)


def step_svg(name: str, step: StepTimeline) -> Markup:
    """One step across the whole width."""
    title = f"One step of {name} at its own scale"
    return _drawing([("", step)], _Scale(0, step.length_ns), title, _described(step))


def excerpt_svg(name: str, step: StepTimeline) -> Markup | None:
    """`EXCERPT_OPS` consecutive ops from the middle of the step, wide enough to tell apart; None
    where the whole step has few ops."""
    count = len(step.op_starts_ns)
    if count < 2 * EXCERPT_OPS:
        return None
    first = (count - EXCERPT_OPS) // 2
    start = int(step.op_starts_ns[first])
    end = int(step.op_ends_ns[first : first + EXCERPT_OPS].max())
    title = f"{EXCERPT_OPS} ops from the middle of a step of {name}"
    return _drawing([("", step)], _Scale(start, end - start), title, f"from {duration(start)} on")


def _described(step: StepTimeline) -> str:
    return (
        f"{duration(step.length_ns)}, {len(step.op_starts_ns)} ops on "
        f"{len(np.unique(step.op_streams))} streams, {len(step.gap_starts_ns)} gaps"
    )


def _drawing(
    steps: Sequence[tuple[str, StepTimeline]], scale: _Scale, title: str, description: str
) -> Markup:
    lanes = [(name, step, _rows(step)) for name, step in steps]
    height = _AXIS_PX + sum(_lane_height(rows) for _, _, rows in lanes)
    drawing = Drawing(height, title, description)
    _axis(drawing, scale, height)
    y = _AXIS_PX
    for name, step, rows in lanes:
        _lane(drawing, name, step, rows, scale, y)
        y += _lane_height(rows)
    return drawing.markup()


def _lane_height(rows: Sequence[_Row]) -> float:
    return sum(row.height + _ROW_SPACE for row in rows) + _LANE_SPACE


def _rows(step: StepTimeline) -> list[_Row]:
    """A row for each of the streams with most ops, one for all the others, one for the gaps."""
    families = op_families(step)
    streams, sizes = np.unique(step.op_streams, return_counts=True)
    busiest = streams[np.argsort(-sizes, kind="stable")[:MAX_STREAMS]]
    rows = []
    for stream in sorted(busiest.tolist()):
        mine = step.op_streams == stream
        rows.append(_op_row(f"stream {stream}", step, families, mine))
    if len(streams) > len(busiest):
        rest = ~np.isin(step.op_streams, busiest)
        others = len(streams) - len(busiest)
        rows.append(_op_row(f"{others} more streams", step, families, rest))
    return [*rows, _gap_row(step)]


def _op_row(label: str, step: StepTimeline, families: Int8s, mine: np.ndarray) -> _Row:
    return _Row(
        label=label,
        start_ns=step.op_starts_ns[mine],
        end_ns=step.op_ends_ns[mine],
        kind=families[mine],
        classes=tuple(f"f-{name}" for name in FAMILIES),
        names=step.names,
        name=step.op_names[mine].astype(np.int64),
        height=_OPS_PX,
        labelled=True,
    )


def _gap_row(step: StepTimeline) -> _Row:
    return _Row(
        label="gaps",
        start_ns=step.gap_starts_ns,
        end_ns=step.gap_ends_ns,
        kind=step.gap_classes,
        classes=tuple(f"g-{name}" for name in GAP_CLASSES),
        names=GAP_CLASSES,
        name=step.gap_classes.astype(np.int64),
        height=_GAPS_PX,
        labelled=False,
    )


def _axis(drawing: Drawing, scale: _Scale, height: float) -> None:
    for at, text in time_ticks(scale.ns):
        x = _LEFT + at * scale.px_per_ns
        drawing.line(x, _AXIS_PX - 6, x, height - _LANE_SPACE, "grid")
        if scale.from_ns:
            text = f"+{text}" if at else f"from {duration(scale.from_ns)}"
        if x < _LEFT + _PLOT - _TICK_TEXT_PX:
            drawing.text(x + 3, 12, text, "dim")


def _lane(
    drawing: Drawing,
    name: str,
    step: StepTimeline,
    rows: Sequence[_Row],
    scale: _Scale,
    y: float,
) -> None:
    if name:
        drawing.text(0, y + 12, cut_middle(name, 20), "strong")
        drawing.text(0, y + 27, duration(step.length_ns), "dim")
    for row in rows:
        if len(rows) > 2 or not name:
            drawing.text(_LEFT - 8, y + row.height / 2 + 4, row.label, "dim", "end")
        end = min(scale.x(step.length_ns), _LEFT + _PLOT)
        drawing.rect(_LEFT, y, end - _LEFT, row.height, "lane")
        _draw_row(drawing, row, scale, y)
        y += row.height + _ROW_SPACE


def _draw_row(drawing: Drawing, row: _Row, scale: _Scale, y: float) -> None:
    until = scale.from_ns + scale.ns
    seen = (row.start_ns < until) & (row.end_ns > scale.from_ns)
    start_ns = np.clip(row.start_ns[seen], scale.from_ns, until)
    end_ns = np.clip(row.end_ns[seen], scale.from_ns, until)
    kind, name = row.kind[seen], row.name[seen]
    whole_ns = (row.end_ns - row.start_ns)[seen]
    single = (end_ns - start_ns) * scale.px_per_ns >= SINGLE_PX
    _draw_columns(drawing, row, scale, y, start_ns[~single], end_ns[~single], kind[~single])
    for index in np.flatnonzero(single):
        x, right = scale.x(int(start_ns[index])), scale.x(int(end_ns[index]))
        text = row.names[name[index]]
        at = int(start_ns[index])
        tip = f"{shorten_kernel(text, _TIP_CELLS)}\n{duration(whole_ns[index])}, at {duration(at)}"
        shape = row.classes[kind[index]]
        shape = shape if right - x >= _PATTERN_PX else _plain(shape)
        drawing.rect(x, y, right - x, row.height, shape, tip)
        if row.labelled and right - x >= _LABEL_PX:
            cells = int((right - x - 6) / _LETTER_PX)
            drawing.text(x + 3, y + row.height / 2 + 4, shorten_kernel(text, cells), "on-op")


def _draw_columns(
    drawing: Drawing,
    row: _Row,
    scale: _Scale,
    y: float,
    start_ns: Int64s,
    end_ns: Int64s,
    kind: Int8s,
) -> None:
    """Short intervals as columns, the kinds stacked upon each other."""
    columns = int(_PLOT / COLUMN_PX)
    edges = scale.from_ns + np.linspace(0, scale.ns, columns + 1).astype(np.int64)
    widths = np.maximum(np.diff(edges), 1)
    foot = np.full(columns, y + row.height)
    for index in np.unique(kind):
        mine = kind == index
        taken = np.diff(covered_until(union(start_ns[mine], end_ns[mine]), edges))
        height = np.minimum(taken / widths * row.height, foot - y)
        foot = foot - height
        tip = f"{row.classes[index][2:]}: each shorter than {SINGLE_PX:g} px, taken together"
        drawing.boxes(
            (
                (_LEFT + column * COLUMN_PX, foot[column], COLUMN_PX, height[column])
                for column in np.flatnonzero(height >= 0.005)
            ),
            _plain(row.classes[index]),
            tip,
        )


def _plain(shape: str) -> str:
    """The class of the same colour without a pattern: on small shapes a pattern cannot be told, and
    each one costs kilobytes in print."""
    return f"s-{shape[2:]}" if shape.startswith("g-") else shape
