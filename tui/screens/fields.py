"""Fields of dialogs in which tab completes a name or a path."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.suggester import Suggester

from decodescope.tui.model.shelf import FileEntry, Shelf, folder_of, folders, listing
from decodescope.tui.panels.files import PlainInput
from decodescope.tui.screens.dialogs import Dialog

Look = Callable[[str], tuple[FileEntry, ...]]
_CONFIG = "config.json"


class Completion(Suggester):
    """Completes one of `names`, else a path among the entries that `look` finds for what is typed.
    The suggestion, shown behind the cursor, is the first that fits."""

    def __init__(self, look: Look, names: Sequence[str] = ()) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._look, self._names = look, names

    async def get_suggestion(self, value: str) -> str | None:
        return self._name(value) or (await self._shelf(value)).suggested()

    async def completed(self, value: str) -> str:
        """`value` with the first name, or all that the paths which fit have in common; where they
        have no more in common, the first path. What is complete stays."""
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
        def found() -> tuple[FileEntry, ...]:
            try:
                return self._look(value)
            except (OSError, ValueError):
                return ()

        return Shelf(value, listed=await asyncio.to_thread(found))


def files_in(folder: Path) -> Look:
    """Looks for files and folders, relative to `folder`."""
    return lambda typed: listing(folder_of(typed, folder))


def folders_in(folder: Path) -> Look:
    return lambda typed: folders(folder_of(typed, folder))


def checkpoints(typed: str) -> tuple[FileEntry, ...]:
    """The folders on the way to a checkpoint; of the current folder, those that are one."""
    found = folders(folder_of(typed, Path()))
    if os.sep in typed:
        return found
    return tuple(entry for entry in found if (entry.path / _CONFIG).is_file())


class CompletingInput(PlainInput):
    """Tab completes the text; what is complete is left for the next field."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", "Complete", show=False)]

    def __init__(self, completion: Completion, value: str = "", **options: object) -> None:
        options.setdefault("select_on_focus", False)
        super().__init__(value, suggester=completion, **options)  # type: ignore[arg-type]
        self._completion = completion

    async def action_complete(self) -> None:
        typed = self.value
        text = await self._completion.completed(typed) if typed and self.cursor_at_end else typed
        if self.value != typed:
            return
        if text != typed:
            self.value = text
            self.cursor_position = len(text)
        elif isinstance(self.screen, Dialog):
            self.screen.action_field(1)
