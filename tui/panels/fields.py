"""Fields of text, in which tab completes names and paths, the same in every one."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widgets import Input

from decodescope.tui.model.shelf import FOLDER, FileEntry, Shelf, folder_of, names_in

Paths = Literal["none", "files", "folders", "checkpoints"]


class Completion(Suggester):
    """Completes one of `names`, else a path from `folder` on. The suggestion, shown behind the
    cursor, is the first that fits."""

    def __init__(self, paths: Paths, folder: Path = Path(), names: Sequence[str] = ()) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._paths, self._folder, self._names = paths, folder, names

    async def get_suggestion(self, value: str) -> str | None:
        return self._name(value) or (await self._shelf(value)).suggested()

    async def completed(self, value: str) -> str:
        """`value` with the first name, or what all paths that fit have in common; where that is no
        more, with the first of them. What is complete stays."""
        if value in self._names:
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
