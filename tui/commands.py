"""Every action of the app, once: bindings, footer, help and palette are made from this list."""

from dataclasses import dataclass

from textual.binding import Binding

# In the order of the choices.
CHOICE_KEYS = "1234567890"


@dataclass(frozen=True, slots=True)
class Command:
    """An action of the app and its `key`, displayed as `shown` if that differs.

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
        """The key as help and footer display it."""
        return self.shown or self.key


COMMANDS = (
    Command("help", "question_mark", "Help", "All keys, and what each figure means",
            "help", 1, "?"),
    Command("freeze", "space", "Freeze the view",
            "Stop repainting and analysing, or resume; the run itself continues", "freeze", 3),
    Command("pause", "p", "Pause or resume", "Pause the worker or the replay, or resume it",
            "pause", 2),
    Command("capture", "t", "Capture a trace",
            "Write the next window as .json.gz into the current folder", "trace", 4),
    Command("open", "o", "Open a recording or trace",
            "Choose a bundled recording, or type a path", "open", 5),
    Command("copy", "y", "Copy the figures", "Copy the figures as text to the clipboard",
            "copy", 7),
    Command("restart", "R", "Restart", "Restart the worker, or replay from the start",
            "restart", 8),
    Command("save_svg", "ctrl+s", "Screenshot",
            "Write the screen as SVG into the current folder", "svg", 9, "^s"),
    Command("command_palette", "ctrl+p", "Command palette", "Search all actions",
            "palette", 6, "^p"),
    Command("dismiss_banner", "escape", "Dismiss the banner", "Hide the message on top",
            shown="esc"),
    Command("quit", "q,ctrl+c", "Quit", "Stop the worker and leave", "quit", 0, "q"),
)  # fmt: skip


def bindings() -> list[Binding]:
    """The app's key bindings; Textual binds the palette itself."""
    keys = [Binding(c.key, c.action, c.title, show=False) for c in COMMANDS
            if c.action != "command_palette"]  # fmt: skip
    keys.extend(
        Binding(key, f"choose({number})", f"Choose number {number}", show=False)
        for number, key in enumerate(CHOICE_KEYS, 1)
    )
    return keys


def footer(kind: str, choices: int) -> tuple[Command, ...]:
    """What the footer shows for a source of this kind with `choices` choices."""
    shown = [command for command in COMMANDS if command.label]
    if kind == "trace":
        without = ("pause", "capture", "restart", "freeze")
        shown = [command for command in shown if command.action not in without]
    if choices > 1 and kind != "replay":
        keys = f"1\u2013{choices}" if choices < len(CHOICE_KEYS) else "0\u20139"
        noun = "file" if kind == "trace" else "variant"
        shown.insert(0, Command("next_choice", keys, label=noun, priority=2))
    return tuple(shown)
