"""The row of pages: the number keys show them."""

from dataclasses import dataclass

from rich.style import Style

from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Row, Sheet


@dataclass(frozen=True, slots=True)
class Tab:
    """A page: its name, its key and its label; where room is short, the key alone."""

    name: str
    key: str
    label: str


class TabsPanel(Panel[str]):
    """Every page with its key, the current one marked; each can be clicked."""

    NAME = "tabs"
    FRAMES = ()

    def __init__(self, brush: Brush, view: View, moment: Moment, tabs: tuple[Tab, ...]) -> None:
        self._tabs = tabs
        super().__init__(brush, view, moment)

    def pick(self, view: View, moment: Moment) -> str:
        return view.page

    def draw(self, data: str, width: int, height: int) -> Sheet:
        inks, row = self._brush.inks, Row()
        gaps = 3 * len(self._tabs)
        full = sum(len(tab.label) + 2 for tab in self._tabs) + gaps <= width + 1
        for tab in self._tabs:
            current = tab.name == data
            click = Style.from_meta({"@click": f"app.page('{tab.name}')"})
            label = f"{tab.key} {tab.label}" if full or current else tab.key
            if current:
                row.add(f" {label} ", inks.chip(inks.accent) + click)
            else:
                row.add(f" {tab.key}", inks.key + click)
                row.add(f"{label[1:]} ", inks.dim + click)
            row.add(" " if full and row.cells < width else "", inks.text)
        return Sheet([row])
