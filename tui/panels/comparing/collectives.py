"""The collectives of ranks or GPUs: how long they transfer, and how long others wait in them."""

from decodescope.analyzer.tables.communication_table import collectives_table
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import Rows, TableRows

_TITLE = "Collectives"


class CollectivesPanel(ComparisonTable):
    """One row for each operation of each group, the one with most time first."""

    NAME = "collectives"

    def source(self, view: View, moment: Moment) -> object:
        return None if view.window is None else view.window.communication

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        found = None if view.window is None else view.window.communication
        if found is None or not found.collectives:
            return Empty(_TITLE, "no collectives")
        return TableRows(collectives_table(found))

    def title(self) -> str:
        return _TITLE

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 0
