"""How a table fits a width: which columns are shown, how wide they are, and its lines."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.style import Style

from decodescope.analyzer.names.fitted_names import MIN_CELLS
from decodescope.analyzer.tables.columns import Column, kept_with_details
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.panels.sheet import Brush, Row
from decodescope.tui.panels.table_rows import Cell, Rows

Columns = tuple[Column[Any], ...]
_GAP = 1
_ARROW = 2
# Cells that names have before details are shown; whole names stand in the details pane.
_COMFORTABLE = 30


class TableLayout:
    """The columns of a table as they were last fitted. A column that became wider stays so while
    other rows are shown."""

    def __init__(self) -> None:
        self._widest: list[int] = []
        self._columns: Columns = ()
        self._cells: list[int] = []
        self._titles: list[tuple[int, int, int]] = []

    def forget(self) -> None:
        self._widest = []

    def column_at(self, x: int) -> int | None:
        return next((place for place, start, end in self._titles if start <= x < end), None)

    def fit(
        self, data: Rows, visible: Sequence[int], width: int, by: int | None, brush: Brush
    ) -> list[tuple[int, Sequence[Cell]]]:
        """Fit the columns to `width`; returns the `visible` rows, each with its cells. Where not
        even the columns that always stay fit, names are shorter than their least."""
        columns = self._columns = data.columns
        lines = [(row, data.cells(row, brush, width)) for row in visible]
        widest = self._widest_cells(columns, [cells for _, cells in lines], by)
        need, comfortable = _needed(columns, widest)
        shown = kept_with_details(columns, need, comfortable, width, _GAP)
        spare = width - sum(need[place] + _GAP for place in shown) + _GAP
        self._cells = [need[place] if place in shown else 0 for place in range(len(columns))]
        flexible = [place for place in shown if columns[place].flexible]
        # Figures stay beside the names that they belong to.
        longest = max((widest[place] for place in flexible), default=0)
        for place in flexible:
            more = max(longest - need[place], 0)
            fair = min(spare // len(flexible), more)
            self._cells[place] = max(need[place] + fair, min(need[place], MIN_CELLS))
        if flexible and self._cells[flexible[0]] < width:
            room = self._cells[flexible[0]]
            lines = [(row, data.cells(row, brush, room)) for row in visible]
        return lines

    def lines(self, rows: Rows, width: int, height: int, brush: Brush) -> list[Row]:
        """The titles and the first rows, of a table that does not scroll."""
        fitted = self.fit(rows, range(min(len(rows), max(height - 1, 0))), width, None, brush)
        return [self.titles(None, True, brush), *(self.line(cells, brush) for _, cells in fitted)]

    def titles(self, by: int | None, down: bool, brush: Brush) -> Row:
        inks, row = brush.inks, Row()
        self._titles = []
        for place, (column, cells) in enumerate(zip(self._columns, self._cells, strict=True)):
            if not cells:
                continue
            if row.cells:
                row.add(" " * _GAP, inks.text)
            title = column.heading
            if place == by:
                title += brush.glyphs.down if down else brush.glyphs.up
            start = row.cells
            style = inks.key if place == by else inks.dim
            (row.left if column.align == "left" else row.right)(title, cells, style)
            self._titles.append((place, start, row.cells))
        return row

    def line(
        self, cells: Sequence[Cell], brush: Brush, matches: bool = False, cursor_width: int = 0
    ) -> Row:
        """The line of one row, which may match the search; the one at the cursor is drawn over
        `cursor_width` cells."""
        inks, row = brush.inks, Row()
        over = inks.cursor if cursor_width else Style.null()
        for column, cell, wide in zip(self._columns, cells, self._cells, strict=True):
            if not wide:
                continue
            if row.cells:
                row.add(" " * _GAP, inks.text + over)
            style = (cell.style or inks.text) + over
            if matches and column.flexible:
                style += inks.match
            (row.left if column.align == "left" else row.right)(cell.text, wide, style)
        return row.add(" " * (cursor_width - row.cells), over)

    def _widest_cells(
        self, columns: Columns, lines: Sequence[Sequence[Cell]], by: int | None
    ) -> list[int]:
        """The cells of the widest text of each column, its title included, now and before."""
        before = self._widest if len(self._widest) == len(columns) else [0] * len(columns)
        self._widest = []
        for place, column in enumerate(columns):
            title = cell_len(column.heading) + _ARROW * (place == by)
            texts = (plain_line(cells[place].text) for cells in lines)
            wide = max(map(cell_len, texts), default=0)
            self._widest.append(max(title, wide, before[place]))
        return self._widest


def _needed(columns: Columns, widest: Sequence[int]) -> tuple[list[int], list[int]]:
    """The cells that each column needs, and those where its names are comfortable to read."""
    need, comfortable = [], []
    for column, cells in zip(columns, widest, strict=True):
        flexible, least = column.flexible, column.least
        need.append(least if flexible else max(least, cells))
        comfortable.append(max(least, min(cells, _COMFORTABLE)) if flexible else need[-1])
    return need, comfortable
