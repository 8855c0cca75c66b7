"""The ranges of two sides, aligned across layers and fusion."""

from collections.abc import Hashable

from rich.style import Style

from decodescope.analyzer.formatting import microseconds
from decodescope.analyzer.views.range_rows import RangeRow, range_rows
from decodescope.analyzer.views.words import change_text
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable, windows_of
from decodescope.tui.panels.panel import Empty
from decodescope.tui.panels.table_rows import Cell, Column, Records, Rows
from decodescope.tui.style.palette import Inks

_TITLE = "Ranges"
NAME_CELLS = 12


class ComparisonRangesPanel(ComparisonTable):
    """A fused range is one row; the parts it stands for follow, under the side they are on."""

    NAME = "ab_ranges"

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.side

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        found = windows_of(view.comparison)
        if isinstance(found, str):
            return Empty(_TITLE, found)
        (first, side, pair), windows = found
        rows = range_rows(pair, *windows)
        if not rows:
            return Empty(_TITLE, "no ranges to compare in these windows")
        self._names = (first.name, side.name)
        time = "crit. µs" if pair.overlapping else "µs"
        columns = (
            Column("range", "left", first="up", flexible=True, least=14),
            Column(f"{first.name[:NAME_CELLS]} {time}", priority=1),
            Column(f"{side.name[:NAME_CELLS]} {time}"),
            Column("change µs"),
            Column("change", priority=2),
            Column("idle µs", priority=4),
            Column("idle then", priority=3),
            Column("ops", priority=6),
            Column("ops then", priority=5),
        )
        return Records(columns, rows, _key, _cells, _values, _text)

    def wanted_rows(self, width: int) -> int | None:
        return len(self._shown) if isinstance(self._shown, Rows) else 0

    def title(self) -> str:
        return f"{_TITLE}: {self._names[0]} to {self._names[1]}"


def _key(row: RangeRow) -> Hashable:
    return row.path, row.part


def _text(row: RangeRow) -> str:
    return row.path


def _cells(row: RangeRow, inks: Inks, room: int) -> tuple[Cell, ...]:
    style = inks.dim if row.part else inks.text
    moved, words = "", ""
    if not row.part:
        moved, words = signed_microseconds(row.moved_ns), change_text(row.time_ns)
    return (
        Cell("  " * row.depth + ("· " if row.part else "") + row.name, style),
        Cell(microseconds(row.time_ns.base), style),
        Cell(microseconds(row.time_ns.other), style),
        Cell(moved, moved_style(row.moved_ns, inks)),
        Cell(words, style),
        Cell(microseconds(row.idle_ns.base), inks.dim),
        Cell(microseconds(row.idle_ns.other), inks.dim),
        Cell(_count(row.gpu_ops.base), inks.dim),
        Cell(_count(row.gpu_ops.other), inks.dim),
    )


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def signed_microseconds(ns: float) -> str:
    """A change of time, with its sign."""
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return sign + microseconds(abs(ns))


def moved_style(ns: float, inks: Inks) -> Style:
    """More time is bad, less is good; the sign says so without colour."""
    return inks.bad if ns > 0 else inks.good if ns < 0 else inks.dim


def _values(row: RangeRow) -> tuple[object, ...]:
    time, idle, ops = row.time_ns, row.idle_ns, row.gpu_ops
    ratio = time.other / time.base if time.base and time.other is not None else None
    return (row.path, time.base, time.other, abs(row.moved_ns), ratio,
            idle.base, idle.other, ops.base, ops.other)  # fmt: skip
