"""The ranges of two sides, aligned across layers and fusion."""

from decodescope.analyzer.schema.comparison_report import Pair
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.range_changes_table import (
    RangeChangeRow,
    range_change_rows,
    range_changes_table,
)
from decodescope.tui.panels.comparing.changes import ChangesTable


class ComparisonRangesPanel(ChangesTable):
    """A fused range is one row; the parts it stands for follow, under the side they are on."""

    NAME = "ab_ranges"
    WHAT = "ranges"

    def changes(
        self, pair: Pair, windows: tuple[Report, Report], names: tuple[str, str]
    ) -> Table[RangeChangeRow]:
        rows = range_change_rows(pair, *windows)
        return range_changes_table(rows, names, attributed=pair.overlapping)
