"""The bottom line: the keys of the focused panel, then those of the app."""

from collections.abc import Mapping

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
