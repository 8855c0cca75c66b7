"""The table of kernels."""

from collections.abc import Hashable

from decodescope.analyzer.formatting import count, microseconds, percent
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.views.names import shorten_kernel
from decodescope.tui.model.picks import KernelPick, Pick
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Cell, Column, Records, Rows
from decodescope.tui.style.palette import Inks

_COLUMNS = (
    Column("kernel", "left", first="up", flexible=True, least=16),
    Column("launches", priority=2),
    Column("total µs"),
    Column("mean µs", priority=3),
    Column("share %", priority=1),
)


class KernelTablePanel(TablePanel):
    """Every kernel of the window."""

    NAME = "kernels"

    def source(self, view: View, moment: Moment) -> object:
        return view.window, view.waiting if view.window is None else ""

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        if view.window is None:
            return Empty("Kernels", view.waiting)
        kernels = view.window.report.kernels
        if not kernels:
            return Empty("Kernels", "no kernels in this window")
        return Records(_COLUMNS, kernels, _key, _cells, _values, _key)

    def title(self) -> str:
        return "Kernels"

    def pick_of(self, key: Hashable) -> Pick | None:
        return KernelPick(str(key))

    def key_of(self, pick: Pick | None) -> Hashable:
        return pick.name if isinstance(pick, KernelPick) else None


def _key(kernel: KernelReport) -> str:
    return kernel.name


def _cells(kernel: KernelReport, inks: Inks, room: int) -> tuple[Cell, ...]:
    return (
        Cell(shorten_kernel(kernel.name, room)),
        Cell(count(kernel.count)),
        Cell(microseconds(kernel.total_ns), inks.strong),
        Cell(microseconds(kernel.mean_ns)),
        Cell(percent(kernel.share)),
    )


def _values(kernel: KernelReport) -> tuple[object, ...]:
    return kernel.name, kernel.count, kernel.total_ns, kernel.mean_ns, kernel.share
