"""The GPUs of one trace: who waits for whom."""

from decodescope.analyzer.tables.waiting_table import waiting_table
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import Rows, TableRows

_TITLE = "GPUs: who waits for whom"


class WaitingGpusPanel(ComparisonTable):
    """One row for each GPU that communicates, where one trace has several."""

    NAME = "gpus"

    def source(self, view: View, moment: Moment) -> object:
        return None if view.window is None else view.window.report.communication

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        found = None if view.window is None else view.window.report.communication
        if found is None:
            return Empty(_TITLE, "no GPUs that communicate")
        return TableRows(waiting_table(found))

    def title(self) -> str:
        return _TITLE

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 0
