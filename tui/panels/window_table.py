"""The base of panels that show a declared table of the window, from its first row on."""

from dataclasses import dataclass
from typing import Any, ClassVar

from decodescope.analyzer.tables.columns import Table
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Sheet, TextLine
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.table_rows import TableRows, text_lines


@dataclass(frozen=True, slots=True, eq=False)
class WindowTable:
    """The table of a window; `heading` is the title of the text that is copied."""

    table: Table[Any]
    title: str
    note: str
    heading: str


class WindowTablePanel(Panel[WindowTable]):
    """Subclasses implement `contents`, which is called once for each window; `_rows` are those of
    its table."""

    TITLE: ClassVar[str]
    CPU_TITLE: ClassVar[str] = ""

    _window: Window | None = None
    _picked: WindowTable | Empty = Empty("", "")
    _rows: TableRows[Any]

    def contents(self, window: Window, view: View) -> WindowTable | Empty:
        """The table of `window`, or why it has no rows."""
        raise NotImplementedError

    def pick(self, view: View, moment: Moment) -> WindowTable | Empty:
        if view.window is None:
            return Empty((view.on_cpu and self.CPU_TITLE) or self.TITLE, view.waiting)
        if view.window is not self._window:
            self._window, self._picked = view.window, self.contents(view.window, view)
            if isinstance(self._picked, WindowTable):
                self._rows = TableRows(self._picked.table, self._brush.glyphs)
        return self._picked

    def as_text(self, data: WindowTable) -> list[TextLine]:
        return [data.heading, *text_lines(self._rows, self._brush.inks)]

    def draw(self, data: WindowTable, width: int, height: int) -> Sheet:
        lines = TableLayout().lines(self._rows, width, height, self._brush)
        return Sheet(lines, data.title, data.note)
