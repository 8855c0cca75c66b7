"""The kernels of two sides, matched by name."""

from decodescope.analyzer.comparing.pair_changes import KernelChange
from decodescope.analyzer.schema.comparison_report import Pair
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.changes_table import kernel_changes_table
from decodescope.analyzer.tables.columns import Table
from decodescope.tui.panels.comparing.changes import ChangesTable


class ComparisonKernelsPanel(ChangesTable):
    """The kernel whose time changed most is first."""

    NAME = "ab_kernels"
    WHAT = "kernels"

    def changes(
        self, pair: Pair, windows: tuple[Report, Report], names: tuple[str, str]
    ) -> Table[KernelChange]:
        return kernel_changes_table(*windows, names)
