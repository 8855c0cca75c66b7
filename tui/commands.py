"""Every action of the app, once: bindings, footer, help and palette are made from this list.

Widgets that take keys have commands of their own, in the same form.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.keys import format_key
from textual.widget import Widget

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
# In the order of the choices.
CHOICE_KEYS = "1234567890"


@dataclass(frozen=True, slots=True)
class Command:
    """An action of the app and its `key`, or several joined with commas. Help and footer display
    the first, or `shown`.

    An empty `label` keeps it out of the footer; a low `priority` stays there longest.
    """

    action: str
    key: str
    title: str = ""
    help: str = ""
    label: str = ""
    priority: int = 0
    shown: str = ""

    @property
    def shown_key(self) -> str:
        first = self.key.partition(",")[0]
        return self.shown or _SHOWN.get(first) or format_key(first)


COMMANDS = (
    Command("help", "question_mark", "Help", "All keys, and what each figure means", "help", 1),
    Command(
        "variants",
        "v",
        "Switch variant or file",
        "List the variants or the opened files; a number chooses one",
        "switch",
        2,
    ),
    Command(
        "freeze",
        "space",
        "Freeze the view",
        "Stop repainting and analysing, or resume; the run itself continues",
        "freeze",
        5,
    ),
    Command(
        "pause", "p", "Pause or resume", "Pause the worker or the replay, or resume it", "pause", 3
    ),
    Command(
        "settings",
        "S",
        "Settings",
        "Model, context, batch, sampling and prompt of the live run",
        "settings",
        8,
    ),
    Command("step", "x", "One step", "While paused: run one decode step"),
    Command(
        "capture",
        "t",
        "Capture a trace",
        "Write the next window as .json.gz into the current folder",
        "trace",
        4,
    ),
    Command(
        "open",
        "o",
        "Open a recording or trace",
        "Choose a bundled recording, or type a path",
        "open",
        6,
    ),
    Command(
        "copy", "y", "Copy the page", "Copy what the page shows as text to the clipboard", "copy", 8
    ),
    Command(
        "export",
        "e",
        "Export",
        "Write what is shown: a Chrome trace, a page, tables, a picture, or text",
        "export",
        9,
    ),
    Command(
        "restart", "R", "Restart", "Restart the worker, or replay from the start", "restart", 9
    ),
    Command(
        "save_svg",
        "ctrl+s",
        "Screenshot",
        "Write the screen as SVG into the current folder",
        "svg",
        10,
        "^s",
    ),
    Command(
        "command_palette", "ctrl+p", "Command palette", "Search all actions", "palette", 7, "^p"
    ),
    Command(
        "clear",
        "escape",
        "Clear the selection",
        "Hide the banner; then drop search and filter; then the selection; then show all",
    ),
    Command("quit", "q,ctrl+c", "Quit", "Stop the worker and leave", "quit", 0),
)

REPLAY_COMMANDS = (
    Command(
        "seek_mark('window',False)",
        "left_curly_bracket",
        "Previous window",
        "In a replay, go to the window before",
        "window",
        4,
        "{ }",
    ),
    Command(
        "seek_mark('window',True)",
        "right_curly_bracket",
        "Next window",
        "In a replay, go to the window after",
    ),
    Command(
        "seek_mark('switch',False)",
        "left_parenthesis",
        "Previous switch",
        "In a replay, go to where another variant began before",
    ),
    Command(
        "seek_mark('switch',True)",
        "right_parenthesis",
        "Next switch",
        "In a replay, go to where another variant begins",
    ),
    Command(
        "speed(-1)",
        "less_than_sign",
        "Slower",
        "Replay more slowly, down to 0.25x",
        "speed",
        4,
        "< >",
    ),
    Command(
        "speed(1)",
        "greater_than_sign",
        "Faster",
        "Replay faster, up to 32x and then as fast as possible",
    ),
    Command(
        "follow",
        "F",
        "Follow the run",
        "While it is being recorded, go to its newest moment and stay there",
        "follow",
        3,
    ),
    Command(
        "seek_time", "colon", "Go to a time", "In a replay, go to a time that you type", "time", 5
    ),
)


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
    """The key bindings of `commands`, whose ids in a keymap begin with `scope`; Textual binds the
    palette itself."""
    return [
        Binding(c.key, c.action, c.title, show=False, id=f"{scope}.{c.action}")
        for c in commands
        if c.action != "command_palette"
    ]


class KeyedWidget(Widget, can_focus=False):
    """A widget whose keys are its `COMMANDS`. A widget that has some takes the focus.

    `commands` are the same with the user's keys. `NAME` is the id of the widget, and the name of
    its table in a keymap.
    """

    NAME: ClassVar[str]
    COMMANDS: ClassVar[tuple[Command, ...]] = ()
    _scope: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        if "COMMANDS" in vars(cls):
            cls._scope = getattr(cls, "NAME", "table")
            cls.BINDINGS = bindings(cls.COMMANDS, cls._scope)
            options.setdefault("can_focus", bool(cls.COMMANDS))
        super().__init_subclass__(**options)

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.commands = self.COMMANDS

    def use_keys(self, keymap: Mapping[str, str]) -> None:
        """Name the user's keys in `commands`."""
        self.commands = rekeyed(self.COMMANDS, self._scope, keymap)


def reachable(local: Sequence[Command], everywhere: Iterable[Command]) -> tuple[Command, ...]:
    """The commands of the app whose keys the panel with these `local` commands does not take."""
    taken = {key for command in local for key in command.key.split(",")}
    return tuple(command for command in everywhere if taken.isdisjoint(command.key.split(",")))


def offered(view: View) -> tuple[Command, ...]:
    """The commands that do something to what is shown. While a run is followed, nothing here
    commands its worker, and nothing comes sooner than it happens."""
    without = set()
    if view.kind == "trace":
        without |= {"pause", "capture", "restart", "freeze"}
    if view.kind != "live":
        without |= {"settings", "step"}
    if len(view.possible) < 2:
        without.add("variants")
    if view.following:
        without |= {"variants", "capture", "restart", "speed(-1)", "speed(1)", "follow"}
    if view.playback is None or not view.playback.growing:
        without.add("follow")
    commands = (*REPLAY_COMMANDS, *COMMANDS) if view.kind == "replay" else COMMANDS
    kept = (command for command in commands if command.action not in without)
    goes_on = ""
    if view.playback is not None and view.playback.state in ("paused", "ended"):
        goes_on = "play"
    elif view.playback is None and view.state == "paused":
        goes_on = "resume"
    return tuple(
        replace(command, label=goes_on) if goes_on and command.action == "pause" else command
        for command in kept
    )
