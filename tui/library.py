"""Reads what page 8 lists, and the files that are opened there, in threads."""

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App
from textual.message import Message

from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.files import growing_file
from decodescope.tui.background import NotRemembered, analyse_files, reporter
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.shelf import (
    FileEntry,
    Shelf,
    folder_of,
    listing,
    look,
    opened_health,
)
from decodescope.tui.model.sources import ReplaySource, Source, TraceSource, source_for
from decodescope.tui.model.user_files import Memory
from decodescope.tui.model.view import AppClock, Window

if TYPE_CHECKING:
    from decodescope.analyzer.reports.user_facts import Given


@dataclass
class Listed(Message):
    """`folder` and the known files were looked at; `problem` says why it has no entries."""

    folder: Path
    entries: tuple[FileEntry, ...]
    known: tuple[FileEntry, ...]
    problem: str = ""


@dataclass
class FilesRead(Message):
    """`paths` can be shown as `source`, with the `window` of its choice at `index` if they are
    traces; or they cannot, for the reason in `error`: one line."""

    paths: tuple[Path, ...]
    source: Source | None = None
    window: Window | None = None
    index: int = 0
    error: str = ""


class Library:
    """Keeps `Focus.shelf`; whoever calls it paints. What was given beside the files of `begun`, the
    source that the app began with, counts for these files whenever they are opened."""

    def __init__(
        self,
        app: App[None],
        focus: Focus,
        memory: Memory,
        clock: AppClock,
        folder: Path | None,
        begun: Source,
    ) -> None:
        self._app = app
        self._begun = begun
        self._focus = focus
        self._memory = memory
        self._clock = clock
        self._start = folder or Path.cwd()
        self._captured: list[Path] = []
        self._live = False
        self._wanted: tuple[Path, ...] = ()
        self._listing = self._complete_due = False

    @property
    def shelf(self) -> Shelf:
        """The contents of page 8."""
        return self._focus.shelf

    @property
    def busy(self) -> bool:
        """Whether the folder or a file is being read."""
        return self._listing or bool(self._wanted)

    def refresh(self, live: bool) -> None:
        """Look at everything again; `live`: a worker waits behind what is shown."""
        self._live = live
        self._list(folder_of(self.shelf.typed, self._start))

    def browse(self, typed: str) -> None:
        """The path field says `typed`: list its folder if that is another one."""
        folder = folder_of(typed, self._start)
        self._complete_due = False
        self._set(typed=typed, problem="")
        if folder != self.shelf.folder or self.shelf.listed is None:
            self._list(folder)

    def listed(self, message: Listed) -> None:
        """Show what was read, unless another folder is meant meanwhile."""
        if message.folder == self.shelf.folder:
            self._listing = False
            self._set(listed=message.entries, known=message.known, problem=message.problem)
            if self._complete_due:
                self.complete()

    def complete(self) -> None:
        """Complete what is typed, now or when its folder is listed."""
        if self._listing:
            self._complete_due = True
        else:
            self.browse(self.shelf.completed())

    def point(self, path: Path) -> None:
        """The cursor is on `path`."""
        self._set(pointed=path)

    def mark(self, path: Path) -> None:
        """Mark `path`, or no longer."""
        marked = self.shelf.marked
        left = tuple(marked_path for marked_path in marked if marked_path != path)
        self._set(marked=left if path in marked else (*marked, path))

    def captured(self, path: Path) -> None:
        """A trace was written."""
        self._captured.insert(0, path)

    def health(self, path: Path, health: str) -> None:
        """Keep the health of an opened file."""
        self._focus.shelf = self.shelf.with_health(path, health)

    def open(self, path: Path) -> None:
        """Read `path`, with all marked files if it is one of them; a folder is listed instead. Does
        nothing while they are being read."""
        paths = self.shelf.marked if path in self.shelf.marked else (path,)
        if path.is_dir():
            self.browse(f"{_short(path)}{os.sep}")
        elif paths != self._wanted:
            self._wanted = paths
            self._set(reading=", ".join(path.name for path in paths), problem="")
            self._app.run_worker(lambda: self._read(paths), name="open", thread=True)

    def read_so_far(self, share: float) -> None:
        """This share of the first file was read."""
        if self._wanted:
            names = ", ".join(path.name for path in self._wanted)
            self._set(reading=f"{names}, {100 * share:.0f} %")

    def open_typed(self, typed: str) -> None:
        """Read what the path field names, or the only entry that begins so; the name of a recording
        that is being written means that one."""
        path = folder_of(typed, self._start) / os.path.split(typed)[1]
        if os.path.split(typed)[1] == "~":
            path = path.parent
        visible = self.shelf.visible()
        path = growing_file(path) or path
        if not path.exists() and len(visible) == 1:
            path = visible[0].path
        if path.exists():
            self.open(path)
        else:
            self._set(problem=f"{path}: no such file; tab completes a name")

    def is_wanted(self, message: FilesRead) -> bool:
        """Take note of what was read; False if other files were asked for meanwhile."""
        if message.paths != self._wanted:
            return False
        self._wanted = ()
        self._set(reading="", problem=message.error, marked=())
        if message.error:
            self.health(message.paths[0], f"unreadable: {message.error}")
        else:
            self._set(typed="")
        return True

    def _set(self, **changes: object) -> None:
        self._focus.shelf = replace(self.shelf, **changes)  # type: ignore[arg-type]

    def _list(self, folder: Path) -> None:
        self._listing = True
        if folder != self.shelf.folder:
            self._set(folder=folder, listed=None)
        known = self._known()

        def job() -> None:
            problem = ""
            entries: tuple[FileEntry, ...] = ()
            looked = tuple(
                entry if entry.kind else look(entry.path, entry.place) for entry in known
            )
            looked = tuple(
                entry for entry in looked if entry.place != "recent" or not entry.missing
            )
            try:
                entries = listing(folder)
            except OSError as error:
                problem = f"{folder}: {error.strerror or error}"
            self._app.post_message(Listed(folder, entries, looked, problem))

        self._app.run_worker(job, name="listing", thread=True)

    def _known(self) -> list[FileEntry]:
        from decodescope.analyzer.recordings.bundled import bundled_recordings

        worker = (
            [FileEntry(Path("the live worker"), "live", "worker", "paused")] if self._live else []
        )
        captured = [FileEntry(path, "captured") for path in self._captured]
        recent = [FileEntry(Path(name), "recent") for name in self._memory.remembered.recent]
        return (
            worker
            + captured
            + recent
            + [FileEntry(path, "bundled") for path in bundled_recordings()]
        )

    def _read(self, paths: tuple[Path, ...]) -> None:
        from decodescope.analyzer.recordings.bundled import bundled_recordings

        try:
            done = self._readable(paths)
        except (DecodescopeError, OSError) as error:
            done = FilesRead(paths, error=str(error))
        except Exception as error:
            text = f"{paths[0]}: the analysis failed ({type(error).__name__}: {error})"
            done = FilesRead(paths, error=text)
        problem = self._memory.problem
        if not done.error:
            self._memory.opened([path for path in paths if path not in bundled_recordings()])
        if self._memory.problem != problem:
            self._app.post_message(NotRemembered(self._memory.problem))
        self._app.post_message(done)

    def _readable(self, paths: tuple[Path, ...]) -> FilesRead:
        existing = tuple(path if path.exists() else growing_file(path) or path for path in paths)
        source = source_for(existing[0]) if len(existing) == 1 else TraceSource(existing)
        if not isinstance(source, ReplaySource):
            at, given = self._clock.monotonic(), self._given(existing)
            source = TraceSource(existing, given)
            if len(paths) > 1:
                with contextlib.suppress(InputError):
                    window = analyse_files(existing, at, given=given)
                    return FilesRead(paths, source, window, len(paths))
            window = analyse_files(existing[:1], at, reporter(self._app, None), given)
            return FilesRead(paths, source, window)
        from decodescope.analyzer.recordings.recording import read_recording

        read_recording(source.path)
        return FilesRead(paths, source)

    def _given(self, paths: tuple[Path, ...]) -> "Given | None":
        begun = self._begun
        return begun.given_for(paths) if isinstance(begun, TraceSource) else None


def window_health(window: Window) -> str:
    """The health of an analysed file."""
    health = window.report.health
    return opened_health(health.status, [finding.message for finding in health.findings])


def _short(path: Path) -> str:
    """`path` as people type it."""
    home, text = os.path.expanduser("~"), str(path)
    return f"~{text[len(home) :]}" if text.startswith(home + os.sep) else text
