"""Idle time by class: totals and, for each class, how long its gaps are; both filter the list."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.style import Style
from textual import events

from decodescope.analyzer.reports.distributions import shared_bounds
from decodescope.analyzer.reports.gap_list import GapChoice, idle_table
from decodescope.analyzer.tables.columns import Column, kept_columns
from decodescope.analyzer.tables.gaps_table import GapClassRow, gap_class_columns
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import NOTHING, GapFilter
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.messages import Sift
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine
from decodescope.tui.panels.table_rows import tone_style

TITLE, WHOLE = "Idle time by class", "whole window"
_NAME_CELLS = 18
_FIGURE_CELLS = 9
_CHART_TITLE = "gaps by length"
_LEAST_CHART = 8


@dataclass(frozen=True, slots=True)
class Classes:
    """The rows of one window and range, of all `devices` together; `bounds` are those of the
    buckets, in order. `place` names the step, else the whole window. `common_ns` is the idle time
    of the chosen step: that in which none of its devices was busy. `chosen` gaps are listed."""

    lines: tuple[GapClassRow, ...]
    bounds: tuple[int, ...]
    place: str
    within: str | None
    devices: int
    common_ns: int | None = None
    chosen: GapFilter = NOTHING.gaps


class GapClassesPanel(Panel[Classes]):
    """A row and a histogram a class (buckets of powers of two); both filter the list of gaps."""

    NAME = "gap_classes"
    COMMANDS = commands_of("gap_classes")

    _of: tuple[Window, str | None] | None = None
    _idle_classes: Classes | None = None
    # The lines that are drawn, and the width of a bucket.
    _shown: Sequence[GapClassRow] = ()
    _wide = 1

    def pick(self, view: View) -> Classes | Empty:
        window, within = view.window, view.selection.within
        if window is None:
            return Empty(TITLE, view.waiting)
        if (of := (window, within)) != self._of:
            self._of, self._idle_classes = of, _classes(window, within)
        if self._idle_classes is None:
            return Empty(TITLE, no_gaps(window))
        return replace(self._idle_classes, chosen=view.selection.gaps)

    def wanted_rows(self, width: int) -> int | None:
        return 3 if isinstance(self._data, Empty) else len(self._data.lines) + 2

    def as_text(self, data: Classes) -> list[TextLine]:
        columns = _columns(data)
        head = tuple(column.heading for column in columns)
        lines = (tuple(column.cell(line) for column in columns) for line in data.lines)
        return [f"{TITLE} ({self._place(data)})", head, *lines]

    def draw(self, data: Classes, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        name, *figures = _columns(data)
        need = [_LEAST_CHART, *map(_figure_cells, figures)]
        places = kept_columns((name, *figures), need, width - _NAME_CELLS, 0)
        kept = [figures[place - 1] for place in places if place]
        room = width - _NAME_CELLS - sum(map(_figure_cells, kept)) - 1
        wide = min(max(room // max(len(data.bounds), 1), 1), 6)
        bounds = data.bounds[: max(room, 0)] if len(data.bounds) > room else data.bounds
        head = Row().left(name.heading, _NAME_CELLS, inks.dim)
        chart = len(bounds) * wide
        title = _CHART_TITLE if chart >= len(_CHART_TITLE) else _CHART_TITLE.split()[-1]
        head.left(title, chart, inks.dim).to(width - sum(map(_figure_cells, kept)))
        for column in kept:
            head.right(column.heading, _figure_cells(column), inks.dim)
        lines = list(data.lines)
        if len(lines) + 2 > height:
            room = height - 2 - sum(not line.sub for line in lines)
            subs = [line for line in lines if line.sub]
            subs.sort(key=lambda line: line.total.total_ns, reverse=True)
            lines = [line for line in lines if not line.sub or line in subs[: max(room, 0)]]
        lines = _around(lines, data.chosen.gap_class, max(height - 1, 1))
        self._shown, self._wide = lines, wide
        rows = [head, *(self._line(line, data, bounds, kept, width, wide) for line in lines)]
        if height > len(rows):
            rows.append(self._axis(bounds, wide, width))
        hidden = sum(not line.sub for line in data.lines) - sum(not line.sub for line in lines)
        more = f"{hidden} more · " if hidden else ""
        return Sheet(rows, TITLE, more + self._place(data))

    def action_row(self, step: int) -> None:
        if isinstance(data := self._data, Classes):
            classes = [line.gap_class for line in data.lines if not line.sub]
            chosen = data.chosen.gap_class
            place = classes.index(chosen) if chosen in classes else 0
            place = max(min(place + step, len(classes) - 1), 0)
            chosen_class = replace(data.chosen, gap_class=classes[place], bucket_ns=None)
            self.post_message(Sift(chosen_class))

    def action_bucket(self, step: int) -> None:
        """Choose the next occupied bucket; before the first one, every length."""
        if isinstance(data := self._data, Classes):
            lines = {line.gap_class: line for line in data.lines if not line.sub}
            line = lines.get(data.chosen.gap_class)
            bounds = [bound for bound, _ in line.total.histogram] if line else []
            now = data.chosen.bucket_ns
            place = bounds.index(now[1]) if now is not None and now[1] in bounds else -1
            place = min(place + step, len(bounds) - 1)
            chosen = bucket(bounds[place]) if place >= 0 else None
            self.post_message(Sift(replace(data.chosen, bucket_ns=chosen)))

    def on_click(self, event: events.Click) -> None:
        """Choose the class of the row, and the bucket if one is there."""
        place = event.y - 1 - (self.inset > 0)
        if not isinstance(data := self._data, Classes) or not 0 <= place < len(self._shown):
            return
        line = self._shown[place]
        cell = (event.x - self.inset - _NAME_CELLS) // self._wide
        bound = data.bounds[cell] if 0 <= cell < len(data.bounds) else None
        if not line.sub:
            chosen = bucket(bound) if bound in dict(line.total.histogram) else None
            self.post_message(Sift(GapFilter(line.gap_class, chosen)))

    def _line(
        self,
        line: GapClassRow,
        data: Classes,
        bounds: Sequence[int],
        kept: Sequence[Column[GapClassRow]],
        width: int,
        wide: int,
    ) -> Row:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        chosen = not line.sub and line.gap_class == data.chosen.gap_class
        over = inks.cursor if chosen else Style.null()
        hue = inks.gap(line.gap_class) if line.gap_class and not line.sub else inks.text
        row = Row()
        mark = inks.mark(GAP_LETTERS.get(line.gap_class or "", " "), glyphs.swatch)
        row.add("   " if line.sub else f"{mark if line.gap_class else ' '} ", hue + over)
        plain = inks.dim if line.sub else inks.text
        row.left(line.name, _NAME_CELLS - row.cells, plain + over)
        counts = dict(line.total.histogram)
        most = max(counts.values(), default=1)
        for bound in bounds:
            number = counts.get(bound, 0)
            level = _level(number, most, len(glyphs.ramp) - 1)
            picked = chosen and data.chosen.bucket_ns == bucket(bound)
            style = hue + (Style(reverse=True) if picked else over)
            row.add(glyphs.ramp[level] * wide, style)
        end = width - sum(map(_figure_cells, kept))
        row.add(" " * max(end - row.cells, 0), over)
        for column in kept:
            strong = tone_style(column.tone_of(line), inks) if not line.sub else None
            row.right(column.cell(line), _figure_cells(column), (strong or plain) + over)
        return row

    def _axis(self, bounds: Sequence[int], wide: int, width: int) -> Row:
        row = Row().to(_NAME_CELLS)
        for place, bound in enumerate(bounds):
            text = f"{self._brush.glyphs.tick}≤{duration(bound)}"
            at = _NAME_CELLS + place * wide
            if at >= row.cells + (row.cells > _NAME_CELLS) and at + len(text) < width:
                row.to(at).add(text, self._brush.inks.faint)
        return row

    def _place(self, data: Classes) -> str:
        parts = [data.place]
        if data.within is not None:
            parts.append(f"in {data.within}")
        if data.devices > 1:
            parts.append(f"{data.devices} GPUs added up")
            if data.common_ns is not None:
                parts.append(f"none busy for {duration(data.common_ns)}")
        return " · ".join(parts)


def bucket(bound: int) -> tuple[int, int]:
    """The lengths in the bucket with this upper bound, (lower, upper]; the first has no lower."""
    return (bound // 2 if bound > 1 else -1, bound)


def no_gaps(window: Window) -> str:
    if not window.report.devices:
        return "no GPU activity in this trace: see 9 Log for what is missing"
    return "the GPU was never idle between two ops of this window"


def _level(number: int, most: int, top: int) -> int:
    """The ramp index of a count, 0 for none, on a logarithmic scale up to the largest one."""
    if number < 2 or most < 2:
        return min(number, 1)
    return 1 + round(math.log(number) / math.log(most) * (top - 1))


def _columns(data: Classes) -> tuple[Column[GapClassRow], ...]:
    return gap_class_columns("of window" if data.place == WHOLE else "of step")


def _figure_cells(column: Column[GapClassRow]) -> int:
    """The cells of a column of figures, with the space before it."""
    return max(_FIGURE_CELLS, len(column.heading) + 1)


def _around(lines: list[GapClassRow], chosen: str | None, rows: int) -> list[GapClassRow]:
    """As many of `lines` as there are rows for, with the chosen class among them."""
    place = next(
        (i for i, line in enumerate(lines) if line.gap_class == chosen and not line.sub), 0
    )
    first = max(min(place - rows + 1, len(lines) - rows), 0)
    return lines[first : first + rows]


def _classes(window: Window, within: str | None) -> Classes | None:
    """The classes of gaps that occurred, the largest first; None if the window has no gap."""
    analysis = window.analysis
    if not len(analysis.gaps):
        return None
    totals, of_ns = idle_table(analysis, analysis.ranges, GapChoice(within, window.step))
    lines = [GapClassRow("all idle", totals.all_gaps, of_ns)]
    for name, total in sorted(totals.gaps.items(), key=lambda item: -item[1].total_ns):
        if total.count:
            lines.append(GapClassRow(name, total, of_ns, name))
        if name == "host_wait":
            parts = [(label, part) for label, part in totals.host_wait.items() if part.count]
            subs = [GapClassRow(label, part, of_ns, name, True) for label, part in parts]
            lines += subs if len(subs) > 1 else []
    bounds = shared_bounds([line.total.histogram for line in lines])
    if window.step is None:
        return Classes(tuple(lines), tuple(bounds), WHOLE, within, len(analysis.busy))
    devices = len(analysis.steps.devices[window.step])
    common_ns = sum(part.ns for part in window.report.answer.parts if part.kernel is None)
    return Classes(tuple(lines), tuple(bounds), window.step_words, within, devices, common_ns)
