"""One line of text that a panel edits: a search or a filter."""

from dataclasses import dataclass

from textual import events

from decodescope.tui.panels.panel import Row
from decodescope.tui.style.palette import Inks


@dataclass(slots=True)
class Prompt:
    """Starts empty; escape restores the text before. `filters`: it is a filter, not a search."""

    label: str
    text: str
    filters: bool = False
    _before: str = ""

    def __post_init__(self) -> None:
        self._before, self.text = self.text, ""

    def press(self, key: str, character: str | None) -> bool:
        """Take a key; True if it ends the editing."""
        if key == "escape":
            self.text = self._before
        elif key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif character is not None and character.isprintable():
            self.text += character
        return key in ("escape", "enter")

    def take(self, event: events.Key) -> bool:
        """Take the key of an event, so that it is no command; True if it ends the editing."""
        event.stop()
        event.prevent_default()
        return self.press(event.key, event.character)

    def drawn(self, inks: Inks) -> Row:
        """The label, the text and a cursor."""
        return Row().add(self.label, inks.key).add(self.text, inks.strong).add("▏", inks.accent)
