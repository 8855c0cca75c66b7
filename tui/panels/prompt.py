"""One line of text that is edited: a search or a filter, and the panels that have one; a field, in
which tab completes names and paths."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widgets import Input

from decodescope.tui.commands import Command, commands_of
from decodescope.tui.model.shelf import FOLDER, FileEntry, Shelf, folder_of, names_in
from decodescope.tui.panels.messages import PanelChanged
from decodescope.tui.panels.panel import Data, Panel
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


class PromptPanel(Panel[Data]):
    """A panel with a search, which may have a prompt: it takes every key while there is one."""

    _prompt: Prompt | None = None
    _search = ""

    def action_find(self) -> None:
        self._ask(Prompt("/", self._search))

    @property
    def keys_now(self) -> tuple[Command, ...]:
        return commands_of("prompt") if self._prompt is not None else super().keys_now

    def _ask(self, prompt: Prompt | None) -> None:
        """Edit `prompt`, or no longer."""
        self._prompt = prompt
        self.post_message(PanelChanged(self))
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


Paths = Literal["none", "files", "folders", "checkpoints"]


class Completion(Suggester):
    """Completes one of `names`, else a path from `folder` on; suggests the first that fits."""

    def __init__(self, paths: Paths, folder: Path = Path(), names: Sequence[str] = ()) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._paths, self._folder, self._names = paths, folder, names

    async def get_suggestion(self, value: str) -> str | None:
        return self._name(value) or (await self._shelf(value)).suggested()

    async def completed(self, value: str) -> str:
        """`value` with the first name, or what all paths that fit have in common; where that is no
        more, with the first of them. What is complete stays."""
        if value.lower() in map(str.lower, self._names):
            return value
        if name := self._name(value):
            return name
        shelf = await self._shelf(value)
        common = shelf.completed()
        return shelf.suggested() or value if common == value and not shelf.complete else common

    def _name(self, value: str) -> str | None:
        begun = value.lower()
        return next((name for name in self._names if name.lower().startswith(begun)), None)

    async def _shelf(self, value: str) -> Shelf:
        return Shelf(value, listed=await asyncio.to_thread(self._listed, value))

    def _listed(self, value: str) -> tuple[FileEntry, ...]:
        if self._paths == "none":
            return ()
        entries = names_in(folder_of(value, self._folder))
        if self._paths != "files":
            entries = tuple(entry for entry in entries if entry.kind == FOLDER)
        if self._paths != "checkpoints" or os.sep in value:
            return entries
        return tuple(entry for entry in entries if (entry.path / "config.json").is_file())


class CompletingInput(Input):
    """Tab completes the text; in a dialog, it leaves what is complete for the next field. What is
    not printable is shown as "?": names of files may be completed to."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", "Complete", show=False)]

    def __init__(self, completion: Completion, value: str = "", **options: str | bool) -> None:
        options.setdefault("select_on_focus", False)
        super().__init__(value, suggester=completion, **options)  # type: ignore[arg-type]
        self._completion = completion

    async def action_complete(self) -> None:
        typed = self.value
        text = await self._completion.completed(typed) if typed else ""
        if self.value == typed != text:
            self.value = text
            self.cursor_position = len(text)
        elif self.value == typed:
            await self.run_action("screen.field(1)")

    def render_line(self, y: int) -> Strip:
        shown = (
            Segment("".join(c if c.isprintable() else "?" for c in text), style, control)
            for text, style, control in super().render_line(y)
        )
        return Strip(shown).adjust_cell_length(self.size.width)
