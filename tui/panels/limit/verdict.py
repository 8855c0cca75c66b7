"""The verdict with every reason and every advice; it scrolls where room is short."""

from decodescope.tui.commands import Command
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.sheet import Brush, Sheet
from decodescope.tui.panels.verdict import VerdictData, VerdictPanel


class FullVerdictPanel(VerdictPanel):
    """The verdict, always unfolded."""

    NAME = "verdict_full"
    PART = None
    COMMANDS = (
        Command("scroll(-1)", "up,k", "Up", "Scroll up", "scroll", 3, "↑↓"),
        Command("scroll(1)", "down,j", "Down", "Scroll down", shown="↓"),
    )

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        super().__init__(brush, view, moment)
        self._unfolded, self._first = True, 0

    def draw(self, data: VerdictData, width: int, height: int) -> Sheet:
        rows = self._rows(width)
        self._first = max(min(self._first, len(rows) - height), 0)
        shown = rows[self._first : self._first + height]
        below = len(rows) - self._first - height
        if below > 0 and len(shown) > 1:
            shown[-1] = self._going_on(shown[-1], f"{below} more: tab, then down", width)
        return Sheet(shown)

    def on_click(self) -> None:
        """Nothing: it is always unfolded."""

    def action_scroll(self, lines: int) -> None:
        """Scroll by `lines`."""
        self._first += lines
        self._redraw()
