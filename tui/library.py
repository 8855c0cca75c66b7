"""Reads what page 8 lists, and the files that are opened there, in threads."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from textual.app import App
from textual.message import Message

from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.files import growing_file
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.tui.background import analyse_files
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.shelf import FileEntry, Shelf, beside, folder_of, listing, look
from decodescope.tui.model.sources import (
    AttachSource,
    ReplaySource,
    Source,
    TraceSource,
    given_for,
    source_for,
)
from decodescope.tui.model.user_files import Memory
from decodescope.tui.model.view import AppClock, Window
from decodescope.tui.painter import Painter


@dataclass(frozen=True, slots=True)
class FilesRead:
    """`paths` can be shown as `source`, with the `window` of its choice at `index` if they are
    traces; or they cannot, for the reason in `error`: one line."""

    paths: tuple[Path, ...]
    source: Source | None = None
    window: Window | None = None
    index: int = 0
    error: str = ""


Answer = Callable[[FilesRead], Awaitable[None]]


@dataclass(eq=False)
class Library:
    """Keeps `Focus.shelf`. `folder` is where relative paths begin. What was given beside the files
    of one of the `sources`, the latest first, counts for these files whenever they are opened: the
    app began with the last, and the user named the model of the others."""

    app: App[None]
    focus: Focus
    memory: Memory
    clock: AppClock
    painter: Painter
    folder: Path
    sources: list[Source]
    captured: list[Path] = field(default_factory=list)
    _behind: FileEntry | None = None
    _wanted: tuple[Path, ...] = ()
    _listing: bool = False
    _looking: bool = False
    _postponed: list[Message] = field(default_factory=list)

    @property
    def shelf(self) -> Shelf:
        return self.focus.shelf

    @property
    def busy(self) -> bool:
        return self._listing or bool(self._wanted)

    def refresh(self, behind: FileEntry | None) -> None:
        """Look at everything again; `behind` waits behind what is shown."""
        self._behind = behind
        self._list(folder_of(self.shelf.typed, self.folder))

    def attached(self, source: Source, paths: Sequence[Path]) -> None:
        self.captured[:0] = paths
        others = (one for one in self.sources if not isinstance(one, AttachSource))
        self.sources = [source, *others]

    def look_beside(self, opened: Sequence[Path]) -> None:
        self._looking = True
        self.app.run_worker(self._look_beside(opened), name="beside")

    async def _look_beside(self, opened: Sequence[Path]) -> None:
        self._set(nearby=await asyncio.to_thread(beside, opened, bundled_recordings()))
        self._looking = False
        self.painter.paint()
        while self._postponed:
            self.app.post_message(self._postponed.pop(0))

    def postpones(self, message: Message) -> bool:
        """Whether the files beside what is open are still looked for: the app gets the message
        again when they are known."""
        if self._looking:
            self._postponed.append(message)
        return self._looking

    def browse(self, typed: str) -> None:
        """The path field says `typed`: list its folder if that is another one."""
        folder = folder_of(typed, self.folder)
        self._set(typed=typed, problem="")
        if folder != self.shelf.folder or self.shelf.listed is None:
            self._list(folder)

    def point(self, path: Path) -> None:
        self._set(pointed=path)

    def mark(self, path: Path) -> None:
        marked = self.shelf.marked
        left = tuple(marked_path for marked_path in marked if marked_path != path)
        self._set(marked=left if path in marked else (*marked, path))

    def health(self, path: Path, health: str) -> None:
        self._set(health=MappingProxyType({**self.shelf.health, path: health}))

    def open(self, path: Path, answer: Answer) -> None:
        """Read `path`, with all marked files if it is one of them, and call `answer` with them; a
        folder is listed instead. Does nothing while they are being read."""
        paths = self.shelf.marked if path in self.shelf.marked else (path,)
        if path.is_dir():
            self.browse(f"{_short(path)}{os.sep}")
        elif paths != self._wanted:
            self._wanted = paths
            self._set(reading=", ".join(path.name for path in paths), problem="")
            self.app.run_worker(self._open(paths, answer), name="open")

    def open_typed(self, typed: str, answer: Answer) -> None:
        """Open what the path field names, or the only entry that begins so; the name of a recording
        that is being written means that one."""
        path = folder_of(typed, self.folder) / os.path.split(typed)[1]
        if os.path.split(typed)[1] == "~":
            path = path.parent
        visible = self.shelf.visible()
        path = growing_file(path) or path
        if not path.exists() and len(visible) == 1:
            path = visible[0].path
        if path.exists():
            self.open(path, answer)
        else:
            self._set(problem=f"{path}: no such file; tab completes a name")

    def _set(self, **changes: object) -> None:
        self.focus.shelf = replace(self.shelf, **changes)  # type: ignore[arg-type]

    def _list(self, folder: Path) -> None:
        self._listing = True
        if folder != self.shelf.folder:
            self._set(folder=folder, listed=None)
        self.app.run_worker(self._list_now(folder, self._known()), name="listing")

    async def _list_now(self, folder: Path, known: Sequence[FileEntry]) -> None:
        entries: tuple[FileEntry, ...] = ()
        problem = ""
        looked = await asyncio.to_thread(_looked_at, known)
        try:
            entries = await asyncio.to_thread(listing, folder)
        except OSError as error:
            problem = f"{folder}: {error.strerror or error}"
        if folder == self.shelf.folder:
            self._listing = False
            self._set(listed=entries, known=looked, problem=problem)
        self.painter.paint()

    def _known(self) -> list[FileEntry]:
        return [
            *([self._behind] if self._behind is not None else []),
            *(FileEntry(path, "captured") for path in self.captured),
            *(FileEntry(Path(name), "recent") for name in self.memory.remembered.recent),
            *(FileEntry(path, "bundled") for path in bundled_recordings()),
        ]

    async def _open(self, paths: tuple[Path, ...], answer: Answer) -> None:
        read = await asyncio.to_thread(self._read, paths)
        if paths != self._wanted:
            # Other files were asked for meanwhile.
            return
        self._wanted = ()
        self._set(reading="", problem=read.error, marked=())
        if read.error:
            self.health(paths[0], f"unreadable: {read.error}")
        else:
            self._set(typed="")
        self.app.call_later(answer, read)

    def _read(self, paths: tuple[Path, ...]) -> FilesRead:
        try:
            return self._readable(paths)
        except (DecodescopeError, OSError) as error:
            return FilesRead(paths, error=str(error))
        except Exception as error:
            text = f"{paths[0]}: the analysis failed ({type(error).__name__}: {error})"
            return FilesRead(paths, error=text)

    def _readable(self, paths: tuple[Path, ...]) -> FilesRead:
        existing = tuple(path if path.exists() else growing_file(path) or path for path in paths)
        source = source_for(existing[0]) if len(existing) == 1 else TraceSource(existing)
        if not isinstance(source, ReplaySource):
            at = self.clock.monotonic()
            known = (given_for(one, existing) for one in self.sources)
            facts = next(filter(None, known), None)
            source = TraceSource(existing, facts)
            if len(paths) > 1:
                with contextlib.suppress(InputError):
                    window = analyse_files(existing, at, given=facts)
                    return FilesRead(paths, source, window, len(paths))
            window = analyse_files(existing[:1], at, self._read_so_far, facts)
            return FilesRead(paths, source, window)
        read_recording(source.path)
        return FilesRead(paths, source)

    def _read_so_far(self, share: float) -> None:
        """Called in the thread that reads."""

        def show(names: str) -> None:
            if self._wanted:
                self._set(reading=f"{names}, {100 * share:.0f} %")
                self.painter.soon()

        self.app.call_later(show, ", ".join(path.name for path in self._wanted))


def _looked_at(known: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    looked = (entry if entry.kind else look(entry.path, entry.place) for entry in known)
    return tuple(entry for entry in looked if entry.place != "recent" or not entry.missing)


def window_health(window: Window) -> str:
    """The health of an analysed file: "ok", or its status with the findings."""
    health = window.report.health
    findings = [finding.message for finding in health.findings] if health.status != "ok" else []
    return f"{health.status}: {'; '.join(findings)}" if findings else health.status


def _short(path: Path) -> str:
    """`path` as people type it."""
    home, text = os.path.expanduser("~"), str(path)
    return f"~{text[len(home) :]}" if text.startswith(home + os.sep) else text
