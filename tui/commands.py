"""Every action of the app and its panels, as `commands.json` lists them once.

Bindings, footer, help and palette are made from them. A list is named after the panel that takes
the keys; `rows` and `open` are those of tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import msgspec
from textual.binding import Binding, BindingType
from textual.keys import format_key

from decodescope.tui.model.view import View

# Where Textual displays a key otherwise.
_SHOWN = {
    "enter": "enter",
    "backspace": "backspace",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
}
_WINDOW_HELP = "Take the next window of what runs; its traces stay as files"
# In the order of the choices.
CHOICE_KEYS = "1234567890"


@dataclass(frozen=True, slots=True)
class Command:
    """An action of the app and its `key`, or several joined with commas. Help and footer display
    the first, or `shown`.

    An empty `label` keeps it out of the footer; a low `priority` stays there longest. It is offered
    where all of `when` holds (`offered`).
    """

    action: str
    key: str
    title: str = ""
    help: str = ""
    label: str = ""
    priority: int = 0
    shown: str = ""
    when: tuple[str, ...] = ()

    @property
    def shown_key(self) -> str:
        first = self.key.partition(",")[0]
        return self.shown or _SHOWN.get(first) or format_key(first)


@cache
def _scopes() -> dict[str, tuple[Command, ...]]:
    data = files(__package__).joinpath("commands.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, tuple[Command, ...]])


def commands_of(*scopes: str) -> tuple[Command, ...]:
    return tuple(command for scope in scopes for command in _scopes()[scope])


COMMANDS = commands_of("app")
REPLAY_COMMANDS = commands_of("replay")


def rekeyed(
    commands: Iterable[Command], scope: str, keymap: Mapping[str, str]
) -> tuple[Command, ...]:
    """The same commands with the keys that `keymap` gives those of `scope`."""
    renamed = []
    for command in commands:
        keys = keymap.get(f"{scope}.{command.action}")
        if keys is not None:
            first = keys.split(",")[0]
            shown = f"^{first[5:]}" if first.startswith("ctrl+") else format_key(first)
            command = replace(command, key=keys, shown=shown)
        renamed.append(command)
    return tuple(renamed)


def bindings(commands: Iterable[Command], scope: str) -> list[BindingType]:
    """The key bindings of `commands`, with ids for a keymap; Textual binds the palette itself."""
    return [
        Binding(c.key, c.action, c.title, show=False, id=f"{scope}.{c.action}")
        for c in commands
        if c.action != "command_palette"
    ]


def reachable(local: Sequence[Command], everywhere: Iterable[Command]) -> tuple[Command, ...]:
    """The commands of the app whose keys the panel with these `local` commands does not take."""
    taken = {key for command in local for key in command.key.split(",")}
    return tuple(command for command in everywhere if taken.isdisjoint(command.key.split(",")))


def offered(view: View) -> tuple[Command, ...]:
    """The commands that do something to what is shown. While a run is followed, nothing here
    commands its worker, and nothing comes sooner than it happens."""
    holds = {
        "steps": view.has_steps,
        "choices": len(view.possible) > 1,
        "live": view.kind == "live",
        "file": view.kind != "live",
        "run": view.kind != "trace",
        "windows": view.kind != "trace" or view.attached is not None,
        "two windows": view.attached is not None and len(view.choices) > 1,
        "growing": view.playback is not None and view.playback.growing,
        "commanded": not view.following,
    }
    commands = (*REPLAY_COMMANDS, *COMMANDS) if view.kind == "replay" else COMMANDS
    return tuple(_as_shown(each, view) for each in commands if all(map(holds.get, each.when)))


def _as_shown(command: Command, view: View) -> Command:
    """The command with the words that fit what is shown."""
    if command.action == "capture" and view.is_attached:
        return replace(command, label="window", priority=1, help=_WINDOW_HELP)
    if command.action != "pause":
        return command
    if view.playback is not None:
        waits = view.playback.state in ("paused", "ended")
        return replace(command, label="play") if waits else command
    return replace(command, label="resume") if view.state == "paused" else command
