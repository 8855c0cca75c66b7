"""Every action of the app, once: its key, its footer label, and what the palette says of it."""

from dataclasses import dataclass

from textual.binding import Binding

from decodescope.tui.panels.lines import KeyHint


@dataclass(frozen=True, slots=True)
class Command:
    """`label` "" keeps it out of the footer; low `priority` stays there longest."""

    key: str
    shown_key: str
    action: str
    title: str
    help: str
    label: str = ""
    priority: int = 0


COMMANDS = (
    Command("question_mark", "?", "help", "Help", "All keys, and what each figure means",
            "help", 1),
    Command("space", "space", "freeze", "Freeze the view",
            "Stop repainting and analysing, or go on; the run itself continues", "freeze", 3),
    Command("p", "p", "pause", "Pause or resume", "Pause the worker or the replay, or resume it",
            "pause", 2),
    Command("t", "t", "capture", "Capture a trace",
            "Write the next window as .json.gz into the current folder", "trace", 4),
    Command("o", "o", "open", "Open a recording or trace",
            "Choose a bundled recording, or type a path", "open", 5),
    Command("y", "y", "copy", "Copy the figures", "Copy the figures as text to the clipboard",
            "copy", 7),
    Command("R", "R", "restart", "Restart", "Start the worker again, or the replay from its start",
            "restart", 8),
    Command("ctrl+s", "^s", "save_svg", "Screenshot",
            "Write the screen as SVG into the current folder", "svg", 9),
    Command("ctrl+p", "^p", "command_palette", "Command palette", "Search all actions",
            "palette", 6),
    Command("escape", "esc", "dismiss_banner", "Dismiss the banner", "Hide the message on top"),
    Command("q,ctrl+c", "q", "quit", "Quit", "Stop the worker and leave", "quit", 0),
)  # fmt: skip
CHOICE_KEYS = "123456789"


def bindings() -> list[Binding]:
    """The app's key bindings."""
    keys = [Binding(c.key, c.action, c.title, show=False) for c in COMMANDS
            if c.action != "command_palette"]  # fmt: skip
    keys.extend(
        Binding(key, f"choose({key})", f"Choose number {key}", show=False) for key in CHOICE_KEYS
    )
    return keys


def key_hints(kind: str, choices: int) -> tuple[KeyHint, ...]:
    """The footer for a source of this kind with so many choices."""
    hidden = {"trace": {"pause", "capture", "restart", "freeze"}, "replay": set()}.get(kind, set())
    noun = "file" if kind == "trace" else "variant"
    hints = []
    if choices > 1 and kind != "replay":
        keys = f"1\u2013{min(choices, 9)}"
        hints.append(KeyHint(keys, noun, "app.next_choice", 2))
    hints.extend(
        KeyHint(c.shown_key, c.label, f"app.{c.action}", c.priority)
        for c in COMMANDS
        if c.label and c.action not in hidden
    )
    return tuple(hints)
