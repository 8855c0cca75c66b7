"""The rows below the tracks: times, marks and the meaning of colours and glyphs."""

import math
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

import numpy as np
from rich.cells import cell_len
from rich.style import Style

from decodescope.analyzer.text.formatting import TIME_UNITS, duration
from decodescope.analyzer.tracks.track import TrackKind
from decodescope.analyzer.vocabulary.class_colors import FAMILY_LETTERS, GAP_LETTERS
from decodescope.tui.panels.sheet import Row
from decodescope.tui.panels.timeline.cells import GAP_STEPS_NS
from decodescope.tui.panels.timeline.drawing import Canvas

_LABEL_CELLS = 12
Entry = tuple[str, Style, str]


def scale_step_ns(span_ns: int, columns: int) -> int:
    """Distance between the scale's labels: 1, 2 or 5 times a power of ten, at least 12 cells."""
    if span_ns <= 0 or columns <= 0:
        return 1
    least = span_ns * _LABEL_CELLS / columns
    power = 10 ** max(math.floor(math.log10(least)), 0) if least >= 1 else 1
    return next((power * factor for factor in (1, 2, 5) if power * factor >= least), power * 10)


def exact_time(ns: int, step_ns: int) -> str:
    """A time from the start of the trace, with the digits that tell times `step_ns` apart."""
    factor, unit = next((scale for scale in TIME_UNITS if ns >= scale[0]), TIME_UNITS[-1])
    digits = max(math.ceil(math.log10(factor / max(step_ns, 1))), 0)
    return f"{ns / factor:,.{digits}f} {unit}"


def axis(canvas: Canvas) -> Row:
    """The time of the first column from the start of the trace, then times from there; `~` where
    time is cut short, brackets around the selection, and the canvas's marks."""
    look, inks, columns = canvas.look, canvas.inks, canvas.columns
    start_ns, end_ns = look.shown
    step_ns = scale_step_ns(end_ns - start_ns, columns)
    from_start = start_ns - look.tracks.world[0]
    marks: list[tuple[int, str]] = [(0, exact_time(from_start, step_ns) if from_start else "0")]
    if look.time.limit_ns:
        edges = (canvas.edges_ns - start_ns).tolist()
        marks += [
            (at, duration(edges[at])) for at in range(_LABEL_CELLS + 2, columns, _LABEL_CELLS + 2)
        ]
    else:
        ticks = range(step_ns, end_ns - start_ns + 1, step_ns)
        marks += [(look.column_of(start_ns + at, columns), _round_label(at)) for at in ticks]
    sign = "+" if from_start else ""
    text, styles = [" "] * columns, [inks.dim] * columns
    for at in _cut_columns(canvas):
        text[at] = "~"
    first, last = canvas.chosen_columns()
    ends = {first: "[", last: "]"} if last > first else {first: canvas.glyphs.tick}
    ends = ends if first <= last else {}
    marked = {look.column_of(at, columns): mark for at, mark in canvas.marks_ns.items()}
    ends = {at: mark for at, mark in (marked | ends).items() if 0 <= at < columns}
    free = 0
    for at, label in marks:
        label = f"╵{sign if at else ''}{label}"
        after = at + cell_len(label)
        if at >= free and after <= columns and not any(at <= end < after for end in ends):
            text[at:after] = label
            styles[at] = inks.faint
            free = after + 1
    for at, mark in ends.items():
        text[at], styles[at] = mark, inks.accent
    row = Row().to(canvas.gutter)
    for style, cells in groupby(zip(styles, text, strict=True), key=itemgetter(0)):
        row.add("".join(char for _, char in cells), style)
    return row


def _cut_columns(canvas: Canvas) -> list[int]:
    """The columns that show less time than they stand for."""
    cut, edges = canvas.look.time.cut, canvas.edges_ns
    first = np.searchsorted(cut.end_ns, edges[:-1], side="right")
    after = np.searchsorted(cut.start_ns, edges[1:], side="left")
    return np.flatnonzero(after > first).tolist()


def _round_label(ns: int) -> str:
    value, unit = duration(ns).split(" ")
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"


def fitting_legend(
    busy: list[Entry], ramp: list[Entry], why: list[Entry], cells: int
) -> list[Entry]:
    """The entries that fit in `cells`; the ramp is dropped first, then families, then gaps."""
    busy, ramp, why = list(busy), list(ramp), list(why)
    while busy or ramp or why:
        entries = [*busy, *ramp, *why]
        if sum(cell_len(mark) + cell_len(name) + 3 for mark, _, name in entries) - 2 <= cells:
            return entries
        (ramp or busy or why).pop()
    return []


def legend(canvas: Canvas, width: int) -> Row:
    """The families and gap classes that are visible, and what the heights of gaps mean."""
    inks, glyphs = canvas.inks, canvas.glyphs

    def entries(kind: TrackKind, letters: Mapping[str, str]) -> list[Entry]:
        ink = inks.family if kind == "stream" else inks.gap
        seen = [name for name in letters if (kind, name) in canvas.kinds_seen]
        return [(inks.mark(letters[name], glyphs.swatch), ink(name), name) for name in seen]

    busy = entries("stream", FAMILY_LETTERS)
    why = entries("gap", GAP_LETTERS)
    steps = "".join(
        f"{glyph}{duration(step).replace('.00', '').replace('.0', '').replace(' ', '')}"
        for glyph, step in zip(glyphs.ramp[1:], GAP_STEPS_NS, strict=False)
    )
    ramp = [(f"gaps {steps}{glyphs.ramp[len(GAP_STEPS_NS) + 1]}", inks.dim, "")] if why else []
    row = Row().to(canvas.gutter)
    for mark, style, name in fitting_legend(busy, ramp, why, width - row.cells):
        row.add(f"{mark} ", style).add(f"{name}  ", inks.dim)
    return row
