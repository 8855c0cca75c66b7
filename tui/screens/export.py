"""Asks what to export, and where to."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static
from textual.widgets.option_list import Option

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.tui.model.shelf import folder_of
from decodescope.tui.panels.prompt import CompletingInput, Completion
from decodescope.tui.screens.dialogs import Choices, Dialog, framed

Kind = Literal["json", "markdown", "chrome", "html", "kernel", "range", "gap", "svg", "text"]
Of = Literal["comparison", "window", "screen"]

_NO_NAME = re.compile(r"[^\w.+@=-]+")


@dataclass(frozen=True, slots=True)
class Exportable:
    """What can be exported, in words, and the ending of its file, "" for the clipboard."""

    kind: Kind
    words: str
    ending: str
    of: Of = "window"


EXPORTABLES = (
    Exportable(
        "json", "comparison as JSON, which page 7 opens again", "-comparison.json", "comparison"
    ),
    Exportable("markdown", "comparison as Markdown", "-comparison.md", "comparison"),
    Exportable("chrome", "Chrome trace, for ui.perfetto.dev", ".json.gz"),
    Exportable("html", "HTML report, one page", ".html"),
    Exportable("kernel", "CSV of kernels", "-kernels.csv"),
    Exportable("range", "CSV of ranges", "-ranges.csv"),
    Exportable("gap", "CSV of gaps", "-gaps.csv"),
    Exportable("svg", "picture of the screen (SVG)", ".svg", "screen"),
    Exportable("text", "text of the page, to the clipboard", "", "screen"),
)


class TargetInput(CompletingInput):
    """The path to write to: tab completes a folder."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("up", "leave", "To the list", show=False)]

    def action_leave(self) -> None:
        self.screen.query_one(Choices).focus()


class ExportScreen(Dialog[tuple[Kind, Path | None]]):
    """Returns what to write and its path (None: the clipboard), or None if cancelled."""

    def __init__(self, stem: str, folder: Path, inputs: tuple[Path, ...], of: set[Of]) -> None:
        """Files are named after `stem` in `folder`; `inputs` are never overwritten. What is not
        made from one of `of` is not offered."""
        super().__init__()
        self._folder = folder
        self._stem = _NO_NAME.sub("-", stem)
        self._inputs = inputs
        self._offered = [exportable for exportable in EXPORTABLES if exportable.of in of]
        self._proposed = ""
        self._asked: Path | None = None

    def compose(self) -> ComposeResult:
        with framed(Vertical(), "Export", "enter writes \u00b7 tab edits, completes \u00b7 esc"):
            yield Choices(*(Option(exportable.words) for exportable in self._offered))
            yield TargetInput(Completion("folders", self._folder))
            yield Static(classes="problem", markup=False)

    def on_mount(self) -> None:
        choices = self.query_one(Choices)
        choices.highlighted = 0
        choices.focus()

    @on(Choices.OptionHighlighted)
    def _moved(self, event: Choices.OptionHighlighted) -> None:
        """Propose a name, or keep the folder and the name that the user gave it."""
        field, chosen = self.query_one(TargetInput), self._offered[event.option_index]
        field.display = bool(chosen.ending)
        edited = field.value not in ("", self._proposed)
        folder = os.path.split(field.value)[0] if edited else str(self._folder)
        self._proposed = os.path.join(folder, f"{self._stem}{chosen.ending}")
        field.value = self._proposed
        field.cursor_position = len(field.value)
        self._say("")

    @on(Choices.OptionSelected)
    @on(TargetInput.Submitted)
    def _chosen(self) -> None:
        index = self.query_one(Choices).highlighted
        if index is None:
            return
        chosen, typed = self._offered[index], self.query_one(TargetInput).value
        if not chosen.ending:
            self.close((chosen.kind, None))
            return
        path = folder_of(typed, self._folder) / os.path.split(typed)[1]
        try:
            check_writable(path, "export to", self._inputs)
        except (InputError, OSError, ValueError) as error:
            self._say(str(error))
            return
        if os.path.lexists(path) and path != self._asked:
            self._asked = path
            self._say(f"{path} exists; enter once more overwrites it")
        else:
            self.close((chosen.kind, path))

    @on(TargetInput.Changed)
    def _edited(self) -> None:
        self._asked = None
        self._say("")
