"""The ranges of two sides, aligned across layers and fusion."""

from collections.abc import Hashable

from decodescope.analyzer.schema.comparison_report import Pair
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import microseconds
from decodescope.analyzer.views.range_rows import RangeRow, range_rows
from decodescope.analyzer.vocabulary.words import change_text
from decodescope.tui.panels.comparing.changes import (
    ChangesTable,
    changed_to,
    moved_style,
    signed_microseconds,
)
from decodescope.tui.panels.table_rows import Cell, Column, Records
from decodescope.tui.style.palette import Inks


class ComparisonRangesPanel(ChangesTable):
    """A fused range is one row; the parts it stands for follow, under the side they are on."""

    NAME = "ab_ranges"
    WHAT = "ranges"

    def changes(
        self, pair: Pair, windows: tuple[Report, Report], names: tuple[str, str]
    ) -> Records:
        time = "attr. µs" if pair.overlapping else "µs"
        columns = (
            Column("range", "left", first="up", flexible=True, least=14),
            Column(f"{names[0]} {time}", priority=1),
            Column(f"{names[1]} {time}"),
            Column("change µs"),
            Column("change", priority=2),
            Column("idle µs", priority=4),
            Column("→ idle µs", priority=3),
            Column("ops", priority=6),
            Column("→ ops", priority=5),
        )
        return Records(columns, range_rows(pair, *windows), _key, _cells, _values, _text)


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


def _values(row: RangeRow) -> tuple[object, ...]:
    time, idle, ops = row.time_ns, row.idle_ns, row.gpu_ops
    return (row.path, time.base, time.other, abs(row.moved_ns), changed_to(time),
            idle.base, idle.other, ops.base, ops.other)  # fmt: skip
