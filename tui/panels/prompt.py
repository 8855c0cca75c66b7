"""One line of text that a panel edits, a search or a filter, and the panels that do."""

from dataclasses import dataclass

from textual import events

from decodescope.tui.commands import commands_of
from decodescope.tui.panels.messages import KeysChanged
from decodescope.tui.panels.panel import Data, KeysNow, Panel
from decodescope.tui.panels.sheet import Row
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

    def drawn(self, inks: Inks) -> Row:
        return Row().add(self.label, inks.key).add(self.text, inks.strong).add("▏", inks.accent)


_PROMPT_KEYS = KeysNow(commands_of("prompt"), alone=True)


class PromptPanel(Panel[Data]):
    """A panel with a search, which may have a prompt: it takes every key while there is one."""

    _prompt: Prompt | None = None
    _search = ""

    def action_find(self) -> None:
        self._ask(Prompt("/", self._search))

    @property
    def keys_now(self) -> KeysNow:
        return _PROMPT_KEYS if self._prompt is not None else super().keys_now

    def _ask(self, prompt: Prompt | None) -> None:
        """Edit `prompt`, or no longer."""
        self._prompt = prompt
        self.post_message(KeysChanged())
        self._redraw()

    def edited(self, prompt: Prompt, key: str) -> None:
        """`key` changed the text of the prompt, or ended it."""
        raise NotImplementedError

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return self._prompt is not None

    def on_key(self, event: events.Key) -> None:
        prompt = self._prompt
        if prompt is None:
            return
        event.stop()
        event.prevent_default()
        self._press(prompt, event.key, event.character)

    def action_press(self, key: str) -> None:
        """Press a key of the prompt, for a click on the footer."""
        if self._prompt is not None:
            self._press(self._prompt, key, None)

    def _press(self, prompt: Prompt, key: str, character: str | None) -> None:
        if prompt.press(key, character):
            self._ask(None)
        self.edited(prompt, key)
