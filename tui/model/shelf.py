"""The files that can be opened: those of a folder, recent ones, captured ones, bundled ones."""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.files import growing_file
from decodescope.analyzer.names.fitted_names import common_length
from decodescope.analyzer.readers.reading import format_of
from decodescope.analyzer.recordings.bundled import recording_head
from decodescope.analyzer.recordings.following import is_being_written

Place = Literal["live", "open", "captured", "recent", "bundled", "folder"]

FOLDER, UNKNOWN, GROWING = "folder", "not a trace", "recording now"
MAX_LISTED = 5000
# Opening a file to see what it is takes a while on a network's disk.
_MAX_LOOKED_INTO = 1000
_MAX_BESIDE = 200


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder, and where it was found. `about` is what a recording is of. A bundled one
    is as old as its run, whenever it was installed."""

    path: Path
    place: Place
    kind: str = ""
    about: str = ""
    size_bytes: int | None = None
    modified_s: float | None = None

    @property
    def missing(self) -> bool:
        return self.kind == os.strerror(errno.ENOENT)

    @property
    def variant(self) -> str:
        """The variant of a recording, "" of other files."""
        return self.about.partition(" · ")[0]

    @property
    def run(self) -> str:
        """The model and the GPU of a recording, "" of other files."""
        return self.about.partition(" · ")[2]

    @property
    def name(self) -> str:
        name = self.path.name or str(self.path)
        return f"{name}/" if self.kind == FOLDER else name


@dataclass(frozen=True, slots=True)
class Shelf:
    """The contents of page 8. `typed` is the text of the path field, `folder` the folder in it,
    with its entries in `listed` (None until they are read). `known` are the other files.

    `health` is what is known of the files that were opened. `reading` names what is being read,
    `problem` says why the last wish failed, and `pointed` is under the cursor. `nearby` is what can
    be compared: the opened files, the others in the folder of the first, and the bundled ones.
    """

    typed: str = ""
    folder: Path = Path()
    listed: tuple[FileEntry, ...] | None = None
    known: tuple[FileEntry, ...] = ()
    marked: tuple[Path, ...] = ()
    health: Mapping[Path, str] = field(default_factory=lambda: MappingProxyType({}))
    reading: str = ""
    problem: str = ""
    pointed: Path | None = None
    nearby: tuple[FileEntry, ...] = ()

    def visible(self) -> tuple[FileEntry, ...]:
        """Everything, or while a path is typed, what of its folder begins as it ends."""
        listed = self._fitting()
        return listed if self.typed else (*self.known, *listed)

    def completed(self) -> str:
        """`typed` with all that the entries which begin as it ends have in common."""
        matches = self._fitting()
        if not self.typed or not matches:
            return self.typed
        prefix = os.path.split(self.typed)[1]
        names = [entry.path.name for entry in matches]
        common = names[0][: common_length(names)]
        if len(common) < len(prefix):
            return self.typed
        ending = os.sep if len(matches) == 1 and matches[0].kind == FOLDER else ""
        return self.typed.removesuffix(prefix) + common + ending

    def suggested(self) -> str | None:
        """`typed` with the first entry that begins as it ends, None without one."""
        first = next(iter(self._fitting()), None)
        if first is None or not self.typed:
            return None
        return self.typed.removesuffix(os.path.split(self.typed)[1]) + first.name

    @property
    def complete(self) -> bool:
        """Whether `typed` ends as a folder, or names an entry."""
        name = os.path.split(self.typed)[1]
        return not name or any(entry.path.name == name for entry in self._fitting())

    def _fitting(self) -> tuple[FileEntry, ...]:
        prefix = os.path.split(self.typed)[1]
        return tuple(entry for entry in self.listed or () if _begins(entry.path.name, prefix))


NO_FILES = Shelf()


def folder_of(typed: str, current: Path) -> Path:
    """The folder that holds what is being typed: `a/b` is in `a`, `a/b/` and `~` are folders."""
    head, name = os.path.split(typed)
    folder = Path(typed if name == "~" else head)
    with contextlib.suppress(RuntimeError):  # a user that does not exist
        folder = folder.expanduser()
    return current / folder


def listing(folder: Path) -> tuple[FileEntry, ...]:
    """The entries of `folder`: its folders by name, then its files, the latest first.

    Raises:
        OSError: the folder cannot be read.
    """
    folders, files = [], []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MAX_LISTED):
            path = Path(entry.path)
            if _is_folder(entry):
                folders.append(FileEntry(path, "folder", FOLDER))
            else:
                files.append(_plain(path, "folder"))
    folders.sort(key=lambda entry: entry.path.name)
    files.sort(key=lambda entry: (-(entry.modified_s or 0.0), entry.path.name))
    looked = [look(entry.path, "folder") for entry in files[:_MAX_LOOKED_INTO]]
    return (*folders, *looked, *files[_MAX_LOOKED_INTO:])


def names_in(folder: Path) -> tuple[FileEntry, ...]:
    """The entries of `folder` by name, not looked into; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            kinds = {entry.path: FOLDER * _is_folder(entry) for entry in entries}
    except (OSError, ValueError):
        return ()
    return tuple(FileEntry(Path(name), "folder", kinds[name]) for name in sorted(kinds))


def beside(opened: Sequence[Path], bundled: Sequence[Path]) -> tuple[FileEntry, ...]:
    """The opened files, the traces and recordings beside the first, and the bundled recordings."""
    found = {path.resolve(): look(path, "open") for path in opened}
    shipped = {path.resolve(): path for path in bundled}
    with contextlib.suppress(OSError):
        listed = listing(opened[0].parent) if opened else ()
        readable = (entry for entry in listed if entry.kind not in (FOLDER, UNKNOWN))
        for entry in islice(readable, _MAX_BESIDE):
            if entry.path.resolve() not in shipped:
                found.setdefault(entry.path.resolve(), entry)
    for real, path in shipped.items():
        found.setdefault(real, look(path, "bundled"))
    return tuple(found.values())


def look(path: Path, place: Place) -> FileEntry:
    """The entry of a file, with what its first bytes say; a missing one says so, unless a run is
    writing it now under another name."""
    entry = _plain(path, place)
    if entry.kind:
        grown = None if path.exists() else growing_file(path)
        return entry if grown is None else replace(look(grown, place), path=path)
    try:
        kind = format_of(path) or UNKNOWN
        if kind == "recording":
            return _recording(entry)
    except OSError as error:
        return replace(entry, kind=error.strerror or "unreadable")
    except DecodescopeError:
        return replace(entry, kind=UNKNOWN)
    return replace(entry, kind=kind)


def _begins(name: str, prefix: str) -> bool:
    if name.startswith(".") and not prefix.startswith("."):
        return False
    sensitive = any(char.isupper() for char in prefix)
    return name.startswith(prefix) if sensitive else name.lower().startswith(prefix)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _plain(path: Path, place: Place) -> FileEntry:
    """The folder's entry of a file; its kind only if it is no regular file."""
    try:
        status = path.stat()
    except OSError as error:
        return FileEntry(path, place, error.strerror or "unreadable")
    if stat.S_ISDIR(status.st_mode):
        return FileEntry(path, place, FOLDER)
    kind = "" if stat.S_ISREG(status.st_mode) else UNKNOWN
    return FileEntry(path, place, kind, "", status.st_size, status.st_mtime)


def _recording(entry: FileEntry) -> FileEntry:
    kind = GROWING if is_being_written(entry.path) else "recording"
    head = recording_head(entry.path)
    about = (head.variant, head.hello.model, head.hello.device_name) if head is not None else ()
    modified_s = entry.modified_s
    if entry.place == "bundled":
        modified_s = None
        date = head.hello.environment.get("date") if head is not None else ""
        with contextlib.suppress(ValueError):
            modified_s = datetime.fromisoformat(str(date)).timestamp()
    return replace(entry, kind=kind, about=" · ".join(filter(None, about)), modified_s=modified_s)
