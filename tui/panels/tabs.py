"""The row of pages: the number keys show them."""

from dataclasses import dataclass

from rich.style import Style

from decodescope.tui.commands import PAGE_KEYS
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Brush, Panel, Row, Sheet


@dataclass(frozen=True, slots=True)
class Tab:
    """A page: its name, its label, and the label where room is short."""

    name: str
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
        for place, tab in enumerate(self._tabs):
            current = tab.name == data
            click = Style.from_meta({"@click": f"app.page({place})"})
            key = PAGE_KEYS[place] if place < len(PAGE_KEYS) else " "
            label = f"{key} {tab.label}" if full or current else key
            if current:
                row.add(f" {label} ", inks.chip(inks.accent) + click)
            else:
                row.add(f" {key}", inks.key + click)
                row.add(f"{label[1:]} ", inks.dim + click)
            row.add(" " if full and row.cells < width else "", inks.text)
        return Sheet([row])
