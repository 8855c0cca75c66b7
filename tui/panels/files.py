"""Page 8: the path that is typed, and the table of files that can be opened."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, Tone
from decodescope.analyzer.text.formatting import bytes_size
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import commands_of
from decodescope.tui.model.shelf import FOLDER, UNKNOWN, FileEntry, Shelf
from decodescope.tui.model.view import View
from decodescope.tui.panels.messages import AskFile
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.prompt import CompletingInput, Completion
from decodescope.tui.panels.sheet import Brush, Empty, Row, Sheet, wrapped
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Rows, TableRows


class PathInput(CompletingInput):
    """The path field: down and escape lead to the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,escape", "leave", "To the table", show=False),
    ]
    DEFAULT_CSS = """
    PathInput, PathInput:focus {
        border: none; height: 1; padding: 0; position: absolute; background: $surface;
    }
    """

    def action_leave(self) -> None:
        self.screen.query_one(FilesPanel).focus()


@dataclass(frozen=True, slots=True)
class PathData:
    """`about`: one line about what is going on, or about the file under the cursor."""

    about: str
    failed: bool


class PathPanel(Panel[PathData]):
    """The path field, and below it what is being read, what failed, or the file's full name."""

    NAME = "path"

    def __init__(self, brush: Brush, view: View) -> None:
        completion = Completion("files", view.shelf.folder)
        self.field = PathInput(completion, placeholder="a path: tab completes, enter opens")
        self._typed_in_view = ""
        self._asked: deque[str] = deque()
        super().__init__(brush, view)

    def compose(self) -> ComposeResult:
        yield self.field

    def pick(self, view: View) -> PathData | Empty:
        shelf = view.shelf
        return PathData(_about(shelf), bool(shelf.problem))

    def show(self, view: View) -> None:
        super().show(view)
        if view.shelf.typed != self._typed_in_view:
            self._typed_in_view = view.shelf.typed
            self._follow(view.shelf.typed)

    def _follow(self, typed: str) -> None:
        """Take `typed` into the field, unless the field asked for it: keys may have come since."""
        if typed in self._asked:
            while self._asked.popleft() != typed:
                pass
            return
        self._asked.clear()
        with self.field.prevent(Input.Changed):
            self.field.value = typed
        self.field.cursor_position = len(typed)

    def draw(self, data: PathData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        style = inks.bad if data.failed else inks.dim
        lines = wrapped(plain_line(data.about), max(width, 1)) if data.about else []
        return Sheet([Row(), *(Row().add(line, style) for line in lines)], "Open a file")

    def on_resize(self, event: events.Resize) -> None:
        self._place(event.size.width, event.size.height)

    def use(self, brush: Brush) -> None:
        super().use(brush)
        self._place(self.size.width, self.size.height)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._asked.append(event.value)
        self.post_message(AskFile("browse", text=event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.post_message(AskFile("open_typed", text=event.value))
        else:
            self.field.action_leave()

    def _place(self, width: int, height: int) -> None:
        self.field.display = width > 2 * self.inset and height > 1
        self.field.styles.offset = (self.inset, 1)
        self.field.styles.width = max(width - 2 * self.inset, 1)


class FilesPanel(TablePanel):
    """Every file that can be opened; several are marked with space and opened together."""

    NAME = "files"
    COMMANDS = commands_of("files", "rows", "open")

    def source(self, view: View) -> object:
        shelf = view.shelf
        return shelf.typed, shelf.folder, shelf.listed, shelf.known, shelf.marked, shelf.health

    def rows(self, view: View) -> Rows | Empty:
        shelf = view.shelf
        self._title = f"Files  {shelf.folder}"
        self._note = f"{len(shelf.marked)} marked" if shelf.marked else ""
        if shelf.listed is None:
            return Empty(self._title, "reading the folder\u2026")
        entries = shelf.visible()
        if not entries:
            hint = "no file begins so" if shelf.typed else "there is nothing to open here"
            return Empty(self._title, hint)
        return TableRows(
            Table(
                "files",
                _columns(shelf),
                entries,
                key=lambda entry: (entry.place, entry.path),
                search=lambda entry: f"{entry.name} {entry.place} {entry.kind} {entry.about}",
            )
        )

    def moved(self, key: Hashable) -> None:
        path = _path(key)
        if path is not None:
            self.post_message(AskFile("point", path))

    def opened(self, key: Hashable) -> None:
        path = _path(key)
        if key == ("live", path):
            self.post_message(AskFile("back_to_live"))
        elif path is not None:
            self.post_message(AskFile("open", path))

    def action_mark(self) -> None:
        entries = self._seen.shelf.visible()
        entry = next((e for e in entries if (e.place, e.path) == self._cursor_key), None)
        if entry is not None:
            if entry.kind != FOLDER and entry.place != "live":
                self.post_message(AskFile("mark", entry.path))
            self.action_move(1)

    def action_parent(self) -> None:
        self.post_message(AskFile("open", self._seen.shelf.folder.absolute().parent))


def _about(shelf: Shelf) -> str:
    if shelf.problem:
        return shelf.problem
    if shelf.reading:
        return f"reading {shelf.reading}\u2026"
    if shelf.pointed is None:
        return ""
    entries = (*shelf.known, *(shelf.listed or ()))
    about = next((entry.about for entry in entries if entry.path == shelf.pointed), "")
    parts = (str(shelf.pointed), about, shelf.health.get(shelf.pointed, ""))
    return "  ".join(part for part in parts if part)


def _path(key: Hashable) -> Path | None:
    return key[1] if isinstance(key, tuple) and isinstance(key[1], Path) else None


def _health(shelf: Shelf, entry: FileEntry) -> str:
    return shelf.health.get(entry.path, "").partition(":")[0]


def _modified(entry: FileEntry) -> str:
    if entry.modified_s is None:
        return ""
    try:
        return datetime.fromtimestamp(entry.modified_s).strftime("%Y-%m-%d %H:%M")
    except (OSError, OverflowError, ValueError):
        return ""


def _columns(shelf: Shelf) -> tuple[Column[FileEntry], ...]:
    def named(entry: FileEntry) -> str:
        return f"* {entry.name}" if entry.path in shelf.marked else entry.name

    def name_tone(entry: FileEntry) -> Tone:
        if entry.path in shelf.marked:
            return "strong"
        return "key" if entry.kind == FOLDER else _dull(entry)

    def health_tone(entry: FileEntry) -> Tone:
        tones: dict[str, Tone] = {"ok": "good", "": "dim"}
        return tones.get(_health(shelf, entry), "warn")

    return (
        kinds.NAME(
            "name", "file", lambda entry: entry.path.name, text=named, least=34, tone=name_tone
        ),
        *_PLACES,
        kinds.TEXT(
            "health", "health", lambda entry: _health(shelf, entry), priority=2, tone=health_tone
        ),
    )


def _dull(entry: FileEntry) -> Tone:
    return "faint" if entry.kind == UNKNOWN or entry.size_bytes == 0 else "plain"


_PLACES: tuple[Column[FileEntry], ...] = (
    kinds.TEXT(
        "place",
        "from",
        text=lambda entry: "" if entry.place == "folder" else entry.place,
        priority=4,
        tone="dim",
    ),
    kinds.TEXT("kind", "kind", priority=1, tone=_dull),
    kinds.TEXT(
        "variant",
        "variant",
        lambda entry: entry.about,
        text=lambda entry: entry.variant,
        priority=6,
        tone="dim",
    ),
    kinds.BYTES(
        "size_bytes",
        "size",
        text=lambda entry: "" if entry.size_bytes is None else bytes_size(entry.size_bytes),
        priority=3,
        always=True,
    ),
    kinds.PLACE("modified_s", "modified", text=_modified, priority=5, tone="dim", always=True),
)
