"""The kernels of two sides, matched by name."""

from functools import partial

from decodescope.analyzer.comparing.kernel_changes import KernelChange, kernel_changes
from decodescope.analyzer.names.kernel_names import ShortNames
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.comparison_report import Pair
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import microseconds, number
from decodescope.analyzer.vocabulary.words import change_text
from decodescope.tui.panels.comparing.changes import (
    ChangesTable,
    changed_to,
    moved_style,
    signed_microseconds,
)
from decodescope.tui.panels.table_rows import Cell, Column, Records
from decodescope.tui.style.palette import Inks


class ComparisonKernelsPanel(ChangesTable):
    """The kernel whose time changed most is first."""

    NAME = "ab_kernels"
    WHAT = "kernels"

    def changes(
        self, pair: Pair, windows: tuple[Report, Report], names: tuple[str, str]
    ) -> Records:
        rows = kernel_changes(*windows)
        columns = (
            Column("operator" if windows[0].on_cpu else "kernel", "left", first="up",
                   flexible=True, least=16),
            Column(f"{names[0]} µs", priority=2),
            Column(f"{names[1]} µs", priority=1),
            Column("change µs"),
            Column("change", priority=3),
            Column("count", priority=5),
            Column("→ count", priority=4),
        )  # fmt: skip
        cells = partial(_cells, ShortNames(row.name for row in rows))
        return Records(columns, rows, _key, cells, _values, _text)


def _key(row: KernelChange) -> str:
    return row.name


def _text(row: KernelChange) -> str:
    return f"{row.name}\n{short_name(row.name)}"


def _cells(names: ShortNames, row: KernelChange, inks: Inks, room: int) -> tuple[Cell, ...]:
    return (
        Cell(names.of(row.name, room)),
        Cell(microseconds(row.ns.base)),
        Cell(microseconds(row.ns.other)),
        Cell(signed_microseconds(row.moved_ns), moved_style(row.moved_ns, inks)),
        Cell(_words(row)),
        Cell(number(row.count.base), inks.dim),
        Cell(number(row.count.other), inks.dim),
    )


def _words(row: KernelChange) -> str:
    if row.ns.base is None:
        return "new"
    return "gone" if row.ns.other is None else change_text(row.ns)


def _values(row: KernelChange) -> tuple[object, ...]:
    return (row.name, row.ns.base, row.ns.other, abs(row.moved_ns), changed_to(row.ns),
            row.count.base, row.count.other)  # fmt: skip
