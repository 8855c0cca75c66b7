"""One step as two rows: how busy the GPU was in each column, and the largest gap in it.

A column covers thousands of nanoseconds, so a gap would vanish in an average. The second row keeps
the largest gap, by length (one glyph per half decade) and by class (colour, or a letter). Where ops
overlap, a row between the two shows in which share of a column two or more ran at once.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from decodescope.analyzer.formatting import duration, percent
from decodescope.analyzer.views.class_colors import FAMILY_COLORS, GAP_COLORS, GAP_LETTERS
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Empty, Panel, Row, Sheet
from decodescope.tui.style.glyphs import Glyphs, column

if TYPE_CHECKING:
    from decodescope.analyzer.timing.step_timeline import StepTimeline

Entry = tuple[str, Style, str]
_LOWEST_GAP_NS = 1_000
_GUTTER = 5


@dataclass(frozen=True, slots=True)
class TimelineData:
    """`overlapping`: ops overlap, so one busy row would hide what runs when."""

    timeline: "StepTimeline"
    overlapping: bool
    title: str
    note: str


class Column(NamedTuple):
    """One slice of time: busy fraction, family of the ops ("" if none), largest gap, its class."""

    busy: float
    family: str
    gap_ns: int
    gap_class: str


def step_columns(timeline: "StepTimeline", columns: int) -> list[Column]:
    """The timeline in `columns` equal slices of time, computed by the analyzer."""
    from decodescope.analyzer.timing.op_families import FAMILIES, dominant_family
    from decodescope.analyzer.timing.step_timeline import busy_fraction, gap_class_name, largest_gap

    busy, families = busy_fraction(timeline, columns), dominant_family(timeline, columns)
    slices = zip(busy.tolist(), families.tolist(),
                 *(values.tolist() for values in largest_gap(timeline, columns)),
                 strict=True)  # fmt: skip
    return [
        Column(share, FAMILIES[family] if family >= 0 else "", gap_ns, gap_class_name(gap_class))
        for share, family, gap_ns, gap_class in slices
    ]


def gap_level(gap_ns: int, glyphs: Glyphs) -> int:
    """The ramp index of a gap: 0 for none, 1 below 3 µs, then one more per half decade.

    The full block is not used, so the row stays separate from the busy row above it.
    """
    if gap_ns <= 0:
        return 0
    top = len(glyphs.ramp) - 2
    if gap_ns < _LOWEST_GAP_NS:
        return 1
    return min(top, 1 + int(2 * math.log10(gap_ns / _LOWEST_GAP_NS)))


def scale_step_ns(span_ns: int, columns: int, label_cells: int = 12) -> int:
    """Distance between the scale's labels: 1, 2 or 5 times a power of ten, at least `label_cells`
    apart."""
    if span_ns <= 0 or columns <= 0:
        return 1
    least = span_ns * label_cells / columns
    power = 10 ** max(math.floor(math.log10(least)), 0) if least >= 1 else 1
    return next((power * factor for factor in (1, 2, 5) if power * factor >= least), power * 10)


def _round_label(ns: int) -> str:
    value, unit = duration(ns).split(" ")
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"


def fitting_legend(
    busy: list[Entry], ramp: list[Entry], why: list[Entry], cells: int
) -> list[Entry]:
    """The entries that fit in `cells`; the ramp is dropped first, then families, then gaps."""
    busy, why = list(busy), list(why)
    while busy or ramp or why:
        entries = [*busy, *ramp, *why]
        if sum(len(mark) + len(name) + 3 for mark, _, name in entries) - 2 <= cells:
            return entries
        ramp, dropped = [], (ramp or busy or why)
        if dropped:
            dropped.pop()
    return []


def overlap_shares(timeline: "StepTimeline", columns: int) -> list[float]:
    """The share of each of `columns` equal slices of time in which two or more ops ran."""
    from decodescope.analyzer.timing.step_timeline import overlap_fraction

    return list(map(float, overlap_fraction(timeline, columns)))


class LastStepPanel(Panel[TimelineData]):
    """Busy row(s), gap row, a row of class letters without colours, scale and legend."""

    NAME = "timeline_top"
    AGES = True

    def pick(self, view: View, moment: Moment) -> TimelineData | Empty:
        window = view.window
        if window is None:
            return Empty("Last step", view.waiting)
        if window.timeline is None or not window.report.steps:
            return Empty("Last step", "this trace marks no steps")
        span = duration(window.timeline.length_ns)
        ops = "operators" if view.on_cpu else "GPU ops"
        title = f"Last step  {span}, {window.report.steps[-1].gpu_ops:,} {ops}"
        overlapping = window.report.overlapping
        return TimelineData(window.timeline, overlapping, title, view.window_note(moment))

    def draw(self, data: TimelineData, width: int, height: int) -> Sheet:
        cells = max(width - _GUTTER, 1)
        columns = step_columns(data.timeline, cells)
        gaps, title = self._gaps(columns), data.title
        spare = height - 2 - len(gaps)
        overlap = []
        if data.overlapping:
            (share,) = overlap_shares(data.timeline, 1)
            title += f", overlapping for {percent(share)} % of it"
            if spare > 1:
                overlap = [self._overlap(overlap_shares(data.timeline, cells))]
        rows = [
            *self._busy(columns, max(spare - len(overlap), 1)),
            *overlap,
            *gaps,
            self._scale(data.timeline.length_ns, width),
            self._legend(columns, bool(overlap), width),
        ]
        return Sheet(rows[:height], title, data.note)

    def _gutter(self, label: str) -> Row:
        return Row().left(label, _GUTTER, self._brush.inks.faint)

    def _busy(self, columns: list[Column], height: int) -> list[Row]:
        rows = [self._gutter("busy" if index == height - 1 else "") for index in range(height)]
        for busy, family, _, _ in columns:
            style = self._brush.inks.family(family)
            for row, piece in zip(rows, column(busy, height, self._brush.glyphs), strict=True):
                row.add(piece, style)
        return rows

    def _overlap(self, shares: list[float]) -> Row:
        inks, row = self._brush.inks, self._gutter("over")
        for share in shares:
            row.add(column(share, 1, self._brush.glyphs)[0], inks.dim)
        return row

    def _gaps(self, columns: list[Column]) -> list[Row]:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        row, letters = self._gutter("gaps"), self._gutter("why")
        for _, _, gap_ns, gap_class in columns:
            row.add(glyphs.ramp[gap_level(gap_ns, glyphs)], inks.gap(gap_class))
            if inks.letters:
                letters.add(GAP_LETTERS.get(gap_class, "?") if gap_ns > 0 else " ", inks.dim)
        return [row, letters] if inks.letters else [row]

    def _scale(self, span_ns: int, width: int) -> Row:
        row, inks = self._gutter(""), self._brush.inks
        cells = max(width - _GUTTER, 1)
        step_ns = scale_step_ns(span_ns, cells)
        end = duration(span_ns)
        at_ns = 0
        while at_ns <= span_ns:
            place = _GUTTER + (round(at_ns / span_ns * cells) if span_ns else 0)
            label = "0" if at_ns == 0 else _round_label(at_ns)
            if place >= row.cells and place + len(label) + 2 < width - len(end):
                row.to(place).add("╵", inks.faint).add(label, inks.dim)
            at_ns += step_ns
        return row.to(width - len(end) - 1).add(end, inks.text).add("╵", inks.faint)

    def _legend(self, columns: list[Column], overlap: bool, width: int) -> Row:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        families = [name for name in FAMILY_COLORS if any(c.family == name for c in columns)]
        gaps = [name for name in GAP_COLORS if any(c.gap_class == name for c in columns)]
        busy = [(glyphs.swatch, inks.family(name), name) for name in families if inks.color]
        why = [(inks.mark(GAP_LETTERS[name], glyphs.swatch), inks.gap(name), name) for name in gaps]
        ramp = [(f"gaps {glyphs.ramp[1:-1]}", inks.dim, "1 µs to 1 ms")] if gaps else []
        if overlap:
            ramp.insert(0, ("over", inks.dim, "two or more at once"))
        row = self._gutter("")
        for mark, style, name in fitting_legend(busy, ramp, why, width - row.cells):
            row.add(f"{mark} ", style).add(f"{name}  ", inks.dim)
        return row
