"""The bottom lines: the log, and the keys."""

from rich.style import Style

from decodescope.tui.commands import Command, footer
from decodescope.tui.model.view import LogLine, Moment, View
from decodescope.tui.panels.panel import Panel, Row, Sheet

LOG_LINES_SHOWN = 8


class LogPanel(Panel[tuple[LogLine, ...]]):
    """The last lines of the log, newest at the bottom."""

    NAME = "log"
    FRAMES = ()

    def pick(self, view: View, moment: Moment) -> tuple[LogLine, ...]:
        return view.log[-LOG_LINES_SHOWN:]

    def draw(self, data: tuple[LogLine, ...], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        styles = {"info": inks.dim, "warning": inks.warn, "error": inks.bad}
        rows = [Row() for _ in range(height - len(data))]
        for line in data[-height:]:
            prefix = "" if line.level == "info" else f"{line.level}: "
            text = " ".join(line.text.split())
            rows.append(Row().left(f" {prefix}{text}", width, styles[line.level]))
        return Sheet(rows)


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

    def pick(self, view: View, moment: Moment) -> tuple[Command, ...]:
        return footer(view.kind, len(view.choices))

    def draw(self, data: tuple[Command, ...], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        row = Row().add(" ", inks.text)
        for command in fitting_keys(data, width - 1):
            click = Style.from_meta({"@click": f"app.{command.action}"})
            row.add(command.shown_key, inks.key + click)
            row.add(f" {command.label}", inks.dim + click).add("  ", inks.text)
        return Sheet([row])
