"""The rows below the tracks: times, marks and the meaning of colours and glyphs."""

import math
from itertools import groupby
from operator import itemgetter

import numpy as np
from rich.cells import cell_len

from decodescope.analyzer.answer.parts import WORK
from decodescope.analyzer.text.formatting import TIME_UNITS, duration
from decodescope.analyzer.text.numbers import round_step
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS, PART_LETTERS
from decodescope.tui.panels.sheet import Row
from decodescope.tui.panels.timeline.cells import GAP_STEPS_NS
from decodescope.tui.panels.timeline.drawing import Canvas

_LABEL_CELLS, _MORE_CELLS = 12, 3


def scale_step_ns(span_ns: int, columns: int) -> int:
    """Distance between the scale's labels: 1, 2 or 5 times a power of ten, at least 12 cells."""
    return int(round_step(max(span_ns * _LABEL_CELLS / columns, 1.0))) if columns > 0 else 1


def exact_time(ns: int, step_ns: int) -> str:
    """A time from the start of the trace, with the digits that tell times `step_ns` apart."""
    factor, unit = next((scale for scale in TIME_UNITS if ns >= scale[0]), TIME_UNITS[-1])
    digits = max(math.ceil(math.log10(factor / max(step_ns, 1))), 0)
    return f"{ns / factor:,.{digits}f} {unit}"


def axis(canvas: Canvas) -> Row:
    """The time of the first column from the start of the trace, then times from there; `~` where
    time is cut short, brackets around the selection, and the cursor."""
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
        marks += [(look.column_of(start_ns + at), _round_label(at)) for at in ticks]
    sign = "+" if from_start else ""
    text, styles = [" "] * columns, [inks.dim] * columns
    for at in _cut_columns(canvas):
        text[at] = "~"
    first, last = canvas.chosen_columns()
    ends = {first: "[", last: "]"} if last > first else {first: canvas.glyphs.tick}
    ends = ends if first <= last else {}
    if canvas.at_ns is not None:
        ends = {look.column_of(canvas.at_ns): canvas.glyphs.tick} | ends
    ends = {at: mark for at, mark in ends.items() if 0 <= at < columns}
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
    cut, edges = canvas.look.time.cut, canvas.edges_ns
    first = np.searchsorted(cut.end_ns, edges[:-1], side="right")
    after = np.searchsorted(cut.start_ns, edges[1:], side="left")
    return np.flatnonzero(after > first).tolist()


def _round_label(ns: int) -> str:
    value, unit = duration(ns).split(" ")
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"


def legend(canvas: Canvas, width: int, most: int) -> list[Row]:
    """The parts and gap classes that were drawn, and what heights of gaps mean."""
    inks, glyphs, seen = canvas.inks, canvas.glyphs, canvas.kinds_seen
    # Parts share colours, so letters tell them apart.
    entries = [(PART_LETTERS[name], inks.part(name), name) for name in WORK if name in seen]
    why = [
        (inks.mark(letter, glyphs.swatch), inks.gap(name), name)
        for name, letter in GAP_LETTERS.items()
        if name in seen
    ]
    steps = "".join(
        f"{glyph}{duration(step).replace('.00', '').replace('.0', '').replace(' ', '')}"
        for glyph, step in zip(glyphs.ramp[1:], GAP_STEPS_NS, strict=False)
    )
    if why:
        why.append(("gaps", inks.dim, f"{steps}{glyphs.ramp[len(GAP_STEPS_NS) + 1]}"))
    entries += why
    rows = [Row().to(canvas.gutter)]
    for place, (mark, style, name) in enumerate(entries):
        after = len(entries) - place - 1
        cells = cell_len(mark) + cell_len(name) + 3 + (_MORE_CELLS if after else 0)
        if rows[-1].cells + cells > width and len(rows) < most:
            rows.append(Row().to(canvas.gutter))
        if rows[-1].cells + cells > width:
            rows[-1].left(f"+{after + 1}", min(width - rows[-1].cells, _MORE_CELLS), inks.dim)
            break
        rows[-1].add(f"{mark} ", style).add(f"{name}  ", inks.dim)
    return rows
