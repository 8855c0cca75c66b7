"""The servers of a group that the app is attached to, one in each row."""

from typing import Any

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.tables.servers_table import servers_table
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Sheet, TextLine
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.table_rows import TableRows, text_lines

_TITLE = "Servers"


class ServersPanel(Panel[ServerFigures]):
    """Of one server it wants no rows: the strip has its figures."""

    NAME = "servers"

    def pick(self, view: View, moment: Moment) -> ServerFigures | Empty:
        sample = None if view.attached is None else view.attached.sample
        if sample is None or sample.figures is None or not sample.figures.servers:
            return Empty(_TITLE, "one server")
        return sample.figures

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else len(self._data.servers) + 2

    def as_text(self, data: ServerFigures) -> list[TextLine]:
        return [_TITLE, *text_lines(self._rows(data), self._brush.inks)]

    def draw(self, data: ServerFigures, width: int, height: int) -> Sheet:
        return Sheet(TableLayout().lines(self._rows(data), width, height, self._brush), _TITLE)

    def _rows(self, data: ServerFigures) -> TableRows[Any]:
        return TableRows(servers_table(data), self._brush.glyphs)
