"""The list of all gaps, the longest first."""

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.report import GapReport
from decodescope.analyzer.tables.gaps_table import gap_columns
from decodescope.analyzer.text.formatting import count, duration
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS
from decodescope.tui.model.picks import GapFilter, GapPick, Pick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.gap_classes import no_gaps
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Cell, Rows, drawing_of
from decodescope.tui.style.palette import Inks

if TYPE_CHECKING:
    from decodescope.analyzer.reports.gap_list import Field, GapTable

TITLE = "Gaps"
# What the columns are called in a table of gaps; the host's work is known of one gap at a time.
_FIELDS: dict[str, "Field"] = {
    "gap_class": "class",
    "at_ns": "at",
    "length_ns": "length",
    "prev": "after",
    "next": "before",
    "range": "range",
    "call": "call",
    "step": "step",
    "device": "device",
}
Key = tuple[int, int]


class GapRows(Rows):
    """Gaps of one window; a key is the window's identity and the gap's row in its analysis."""

    def __init__(self, table: "GapTable", window: Window) -> None:

        from decodescope.analyzer.timing.interruptions.interruption import interruptions_by_gap

        self._table, self._window = table, id(window)
        trace, analysis = window.analysis.trace, window.analysis
        self._interruptions = interruptions_by_gap(analysis.gaps, analysis.interruptions)
        names = ShortNames(trace.names[name] for name in set(trace.ops.name.tolist()))
        declared = gap_columns(window.report.devices, names, _causes)
        self.columns = tuple(column for column in declared if column.shown)
        self._flexible = [
            place for place, column in enumerate(self.columns) if column.kind.flexible
        ]
        # Flexible columns share what is left, each above its least: the room is that of the first.
        first = self.columns[self._flexible[0]].least_cells
        self._drawings = [
            (drawing_of(column), column.least_cells - first) for column in self.columns[1:]
        ]

    def __len__(self) -> int:
        return len(self._table)

    def key(self, row: int) -> Key:
        return self._window, int(self._table.rows[row])

    def place(self, key: Hashable) -> int | None:
        window, row = key if isinstance(key, tuple) else (0, -1)
        return self._table.place(row) if window == self._window else None

    def key_of(self, row: int) -> Key:
        """The key of the gap in this row of the analysis."""
        return self._window, row

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        gap = self._table.report(row)
        mark = f"{GAP_LETTERS.get(gap.gap_class, '?')} " if inks.letters else ""
        causes = Cell(f"{mark}{_causes(gap)}", inks.gap(gap.gap_class))
        if int(self._table.rows[row]) in self._interruptions:
            causes = Cell(f"{mark}interrupted, {_causes(gap)}", inks.warn)
        drawn = (draw(gap, inks, max(room + more, 1)) for draw, more in self._drawings)
        return [causes, *drawn]

    def refitted(self, row: int, cells: Sequence[Cell], inks: Inks, room: int) -> Sequence[Cell]:
        gap, fitted = self._table.report(row), list(cells)
        for place in self._flexible:
            draw, more = self._drawings[place - 1]
            fitted[place] = draw(gap, inks, max(room + more, 1))
        return fitted

    def text(self, row: int) -> str:
        gap = self._table.report(row)
        held = self._interruption_words(int(self._table.rows[row]))
        short = (short_name(gap.prev), short_name(gap.next))
        place = (gap.call or "", gap.range or "", held)
        return "\n".join((gap.gap_class, gap.prev, gap.next, *short, *place))

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        field = None if column is None else _FIELDS.get(self.columns[column].key)
        return range(len(self)) if field is None else self._table.order(field, down)

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        held = (gap for gap in self._interruptions if pattern.search(self._interruption_words(gap)))
        places = {self._table.place(gap) for gap in held}
        return self._table.matching(pattern) | {place for place in places if place is not None}

    def _interruption_words(self, gap: int) -> str:
        causes = (each.cause.replace("_", " ") for each in self._interruptions.get(gap, ()))
        return ", ".join(f"interruption: {cause}" for cause in causes)


class GapListPanel(TablePanel):
    """Every gap that the chosen class, bucket, step and range leave."""

    NAME = "gap_list"

    def source(self, view: View, moment: Moment) -> object:
        selection = view.selection
        return view.window, view.waiting, selection.within, selection.gaps

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        from decodescope.analyzer.reports.gap_list import GapChoice, GapTable

        window, within, chosen = view.window, view.selection.within, view.selection.gaps
        words = filter_words(chosen, within)
        if window is None:
            return Empty(TITLE, view.waiting)
        analysis = window.analysis
        if not len(analysis.gaps):
            return Empty(TITLE, no_gaps(window))
        choice = GapChoice(within, chosen.step, chosen.gap_class, chosen.bucket_ns)
        table = GapTable(analysis, analysis.ranges, choice)
        if not len(table):
            return Empty(TITLE, f"no gap here: {words}; esc shows more")
        self._title = f"{TITLE} {count(len(table))}{f': {words}' if words else ''}"
        return GapRows(table, window)

    def pick_of(self, key: Hashable) -> Pick | None:
        return GapPick(key[1]) if isinstance(key, tuple) else None

    def key_of(self, pick: Pick | None) -> Hashable:
        rows = self._shown
        if isinstance(pick, GapPick) and isinstance(rows, GapRows):
            return rows.key_of(pick.row)
        return None

    def opened(self, key: Hashable) -> None:
        """Show the gap in the timeline."""
        self.post_message(Choose(self.pick_of(key)))
        self.post_message(Turn("timeline"))


def _causes(gap: GapReport) -> str:
    """The class of the longest part, and how many parts follow."""
    return f"{gap.gap_class} +{len(gap.parts) - 1}" if len(gap.parts) > 1 else gap.gap_class


def filter_words(chosen: GapFilter, within: str | None) -> str:
    """The gaps that a filter leaves, in words; "" for everything."""
    parts = [chosen.gap_class] if chosen.gap_class else []
    if chosen.bucket_ns is not None:
        lower, upper = chosen.bucket_ns
        least = f"{duration(lower)} to " if lower > 0 else "up to "
        parts.append(f"{least}{duration(upper)}")
    if chosen.step is not None:
        parts.append(f"step {chosen.step}")
    if within is not None:
        parts.append(f"in {within}")
    return ", ".join(parts)
