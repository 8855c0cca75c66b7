"""The median decode step by role: its time, and where the bytes are known its rate and limit."""

from dataclasses import dataclass

from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import RoleReport
from decodescope.analyzer.tables.steps_table import roles_table
from decodescope.analyzer.vocabulary.words import layers_words
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Empty, Sheet, TextLine
from decodescope.tui.panels.table_layout import table_lines
from decodescope.tui.panels.table_rows import TableRows, text_lines

TITLE = "Busy time of a step by role"


@dataclass(frozen=True, slots=True)
class RolesData:
    """The roles, the longest first, and the layers in words ("" without any)."""

    rows: TableRows[RoleReport]
    layers: str


class RolesPanel(Panel[RolesData]):
    """One row a role; roles add up to the busy time of the step."""

    NAME = "roles"

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        self._window: Window | None = None
        self._picked: RolesData | Empty = Empty("", "")
        super().__init__(brush, view, moment)

    def pick(self, view: View, moment: Moment) -> RolesData | Empty:
        if view.window is None:
            return Empty(TITLE, view.waiting)
        if view.window is not self._window:
            self._window = view.window
            self._picked = self._table(view.window.report)
        return self._picked

    def _table(self, report: Report) -> RolesData | Empty:
        if not report.roles:
            return Empty(TITLE, "no step of this trace launched an op")
        structure = report.structure
        layers = layers_words(structure) if structure is not None and structure.layers else ""
        return RolesData(TableRows(roles_table(report.roles), lambda: self._brush.glyphs), layers)

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else len(self._data.rows) + 1

    def as_text(self, data: RolesData) -> list[TextLine]:
        title = f"{TITLE}: {data.layers}" if data.layers else TITLE
        return [title, *text_lines(data.rows, self._brush.inks)]

    def draw(self, data: RolesData, width: int, height: int) -> Sheet:
        rows = table_lines(data.rows, width, max(height, 2), self._brush)
        more = len(data.rows) - (len(rows) - 1)
        if len(rows) > height:
            del rows[0]
        note = f"{more} more roles take less" if more else data.layers
        return Sheet(rows[:height], TITLE, note)
