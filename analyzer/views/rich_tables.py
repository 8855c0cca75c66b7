"""A declared table in a terminal of any width."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from decodescope.analyzer.tables.columns import DETAIL, TEXT, Column, Table, Tone, kept_columns
from decodescope.analyzer.views.table_parts import plain_table

Row = TypeVar("Row")
_GAP = 2
# Cells in which the short name of most kernels fits.
_COMFORTABLE = 48
_STYLES: dict[Tone, str] = {"dim": "dim", "strong": "bold"}


def rich_table(table: Table[Row], width: int) -> RenderableType:
    """The columns that fit in `width`, the least important dropped first; a last line says how many
    rows are left out. A flexible column has the room that the others leave."""
    columns = [*table.shown(), *_bars(table)]
    cells = [_cells(table, column, width) for column in columns]
    natural = [
        max(map(cell_len, (column.heading, *texts)))
        for column, texts in zip(columns, cells, strict=True)
    ]
    shown = _fitting(columns, natural, width)
    fixed = sum(natural[place] for place in shown if not columns[place].flexible)
    flexible = [place for place in shown if columns[place].flexible]
    room = (width - fixed - _GAP * (len(shown) - 1)) // max(len(flexible), 1)
    drawn = plain_table()
    for place in shown:
        column = columns[place]
        drawn.add_column(
            column.heading,
            justify=column.align,
            no_wrap=not column.wrap,
            max_width=room if column.wrap else None,
        )
        if column.flexible and natural[place] > room:
            cells[place] = _cells(table, column, room)
    for number, row in enumerate(table.rows):
        style = _STYLES.get(table.tone(row)) if table.tone is not None else None
        drawn.add_row(*(Text(cells[place][number]) for place in shown), style=style)
    if not table.more:
        return drawn
    return Group(drawn, Text(f"and {table.more} more {table.noun}", style="dim"))


def _cells(table: Table[Row], column: Column[Row], room: int) -> list[str]:
    """The texts of a column; in a tree, the first one is indented."""
    if table.depth is None or column is not table.columns[0]:
        return [column.cell(row, None if column.wrap else room) for row in table.rows]
    indents = ("  " * table.depth(row) for row in table.rows)
    return [
        indent + column.cell(row, max(room - len(indent), 1))
        for indent, row in zip(indents, table.rows, strict=True)
    ]


def _fitting(columns: Sequence[Column[Row]], natural: Sequence[int], width: int) -> list[int]:
    """The places of the columns to show: details only where names keep a comfortable width."""

    def kept(least: Callable[[Column[Row]], int]) -> list[int]:
        need = [
            min(cells, least(column)) if column.flexible else cells
            for column, cells in zip(columns, natural, strict=True)
        ]
        return kept_columns(columns, need, width, _GAP)

    detailed = kept(lambda column: _COMFORTABLE)
    shown = kept(lambda column: min(column.least, width // 4))
    return [place for place in shown if columns[place].priority < DETAIL or place in detailed]


def _bars(table: Table[Row]) -> list[Column[Row]]:
    """A bar of each share that has one, dropped before anything else."""
    return [
        Column(f"{column.key} bar", "", TEXT, column.help, text=_bar_of(column), priority=99)
        for column in table.shown()
        if column.bar
    ]


def _bar_of(column: Column[Row]) -> Callable[[Row], str]:
    return lambda row: "█" * round(min(max(column.figure(row) or 0.0, 0.0), 1.0) * column.bar)
