"""The lines of keys: the row of pages on top, and at the bottom the keys of the focused panel and
those of the app.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style

from decodescope.tui.commands import Command, offered, reachable, rekeyed
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Row, Sheet


def fitting_keys(commands: tuple[Command, ...], width: int) -> tuple[Command, ...]:
    """The commands whose labels fit in `width` cells: the least important are dropped."""
    kept = list(commands)
    while kept and sum(len(command.shown_key) + len(command.label) + 3 for command in kept) > width:
        kept.remove(max(kept, key=lambda command: command.priority))
    return tuple(kept)


class KeysPanel(Panel[tuple[Command, ...]]):
    """The keys and what they do; each can be clicked."""

    NAME = "keys"
    FRAMES = ()

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        self._keymap: Mapping[str, str] = {}
        self._local: tuple[Command, ...] = ()
        self._app: tuple[Command, ...] = ()
        super().__init__(brush, view, moment)

    def use_keys(self, keymap: Mapping[str, str]) -> None:
        self._keymap = keymap

    def use_commands(self, commands: tuple[Command, ...]) -> None:
        """Show the commands of the panel that has the focus; its keys hide those of the app."""
        if commands != self._local:
            self._local = commands
            self._data = self._shown()
            self._redraw()

    def pick(self, view: View, moment: Moment) -> tuple[Command, ...]:
        commands = (command for command in offered(view) if command.label)
        self._app = rekeyed(commands, "app", self._keymap)
        return self._shown()

    def _shown(self) -> tuple[Command, ...]:
        left = reachable(self._local, self._app)
        return (*(command for command in self._local if command.label), *left)

    def draw(self, data: tuple[Command, ...], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        row = Row().add(" ", inks.text)
        for command in fitting_keys(data, width - 1):
            scope = "focused" if command in self._local else "app"
            click = Style.from_meta({"@click": f"{scope}.{command.action}"})
            row.add(command.shown_key, inks.key + click)
            row.add(f" {command.label}", inks.dim + click).add("  ", inks.text)
        return Sheet([row])


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
