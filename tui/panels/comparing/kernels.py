"""The kernels of two sides, matched by name."""

from functools import partial

from decodescope.analyzer.comparing.kernel_changes import KernelChange, kernel_changes
from decodescope.analyzer.formatting import microseconds, number
from decodescope.analyzer.views.kernel_names import ShortNames
from decodescope.analyzer.views.words import change_text
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.ranges import NAME_CELLS, moved_style, signed_microseconds
from decodescope.tui.panels.comparing.table import ComparisonTable, windows_of
from decodescope.tui.panels.panel import Empty
from decodescope.tui.panels.table_rows import Cell, Column, Records, Rows
from decodescope.tui.style.palette import Inks

_TITLE = "Kernels"


class ComparisonKernelsPanel(ComparisonTable):
    """The kernel whose time changed most is first."""

    NAME = "ab_kernels"

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.side

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        found = windows_of(view.comparison)
        if isinstance(found, str):
            return Empty(_TITLE, found)
        (first, side, _), windows = found
        rows = kernel_changes(*windows)
        if not rows:
            return Empty(_TITLE, "no kernels to compare in these windows")
        self._names = (first.name, side.name)
        noun = "operator" if windows[0].on_cpu else "kernel"
        self._title = f"{noun.capitalize()}s"
        columns = (
            Column(noun, "left", first="up", flexible=True, least=16),
            Column(f"{first.name[:NAME_CELLS]} µs", priority=2),
            Column(f"{side.name[:NAME_CELLS]} µs", priority=1),
            Column("change µs"),
            Column("change", priority=3),
            Column("count", priority=5),
            Column("then", priority=4),
        )
        cells = partial(_cells, ShortNames(row.name for row in rows))
        return Records(columns, rows, _key, cells, _values, _key)

    def wanted_rows(self, width: int) -> int | None:
        return len(self._shown) if isinstance(self._shown, Rows) else 0

    def title(self) -> str:
        return f"{self._title}: {self._names[0]} to {self._names[1]}"


def _key(row: KernelChange) -> str:
    return row.name


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
    ratio = row.ns.other / row.ns.base if row.ns.base and row.ns.other is not None else None
    return (row.name, row.ns.base, row.ns.other, abs(row.moved_ns), ratio,
            row.count.base, row.count.other)  # fmt: skip
