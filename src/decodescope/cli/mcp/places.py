"""Where the server may read and write: below its folders, also through links, and nowhere else."""

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import status
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.cli.mcp.answers import cut_text

RECORDINGS = "decodescope://recordings/"
_MOST_ENTRIES = 10_000
_SHOWN_BYTES = 160


class AllowedPlaces:
    """The folders that were named at the start, and the bundled recordings by their addresses.

    A relative path is looked up in each folder, in their order.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(Path(os.path.realpath(folder)) for folder in folders)

    def trace(self, text: str) -> Path:
        """The regular file that a path names, without a link in it, or a bundled recording.

        Raises:
            InputError: there is none, or it is outside.
        """
        if text.startswith(RECORDINGS):
            return _recording(text.removeprefix(RECORDINGS))
        path = self._existing(text)
        if not os.path.isfile(path):
            raise InputError(f"{cut_text(text, _SHOWN_BYTES)}: not a regular file; name a trace")
        return path

    def is_folder(self, text: str) -> bool:
        return os.path.isdir(self._existing(text))

    def folder(self, text: str) -> Path:
        """As `trace`, for a folder."""
        path = self._existing(text)
        if not os.path.isdir(path):
            raise InputError(f"{cut_text(text, _SHOWN_BYTES)}: not a folder")
        return path

    def inside(self, text: str) -> Path:
        """A path that may be missing; what exists of it is below the folders.

        Raises:
            InputError: it is outside.
        """
        found = self._candidates(text)
        return next(filter(os.path.exists, found), found[0])

    def model(self, name: str | None) -> str | None:
        """The name of a model, or the path below the folders that it is.

        Raises:
            InputError: it is a path elsewhere.
        """
        if name is None or not (name.endswith(".json") or self._exists(name)):
            return name
        return str(self._existing(name))

    def entries(self, text: str | None) -> list[dict[str, str | int]]:
        """The folders and regular files in a folder, or in all of them: paths with their bytes, by
        name. What is hidden, or leads outside, is left out."""
        folders = self._folders if text is None else (self.folder(text),)
        return [entry for folder in folders for entry in self._entries(folder)]

    def shown(self, path: Path) -> str:
        """The path as the tools take it: relative to the only folder, else absolute."""
        if len(self._folders) == 1 and path.is_relative_to(self._folders[0]):
            return str(path.relative_to(self._folders[0]))
        return str(path)

    def _entries(self, folder: Path) -> Iterator[dict[str, str | int]]:
        try:
            with os.scandir(folder) as entries:
                found = sorted(islice(entries, _MOST_ENTRIES), key=lambda entry: entry.name)
        except OSError as error:
            shown = cut_text(self.shown(folder), _SHOWN_BYTES)
            raise InputError(f"{shown}: cannot be read ({error.strerror})") from error
        for entry in found:
            path, read = Path(os.path.realpath(entry.path)), status(entry.path)
            if entry.name.startswith(".") or read is None or not self._holds(path):
                continue
            shown = cut_text(self.shown(folder / entry.name), _SHOWN_BYTES)
            if stat.S_ISDIR(read.st_mode):
                yield {"folder": shown}
            elif stat.S_ISREG(read.st_mode):
                yield {"path": shown, "bytes": read.st_size}

    def _existing(self, text: str) -> Path:
        for path in self._candidates(text):
            if os.path.exists(path):
                return path
        raise InputError(
            f"{cut_text(text, _SHOWN_BYTES)}: no such file below the folders; open lists them"
        )

    def _candidates(self, text: str) -> list[Path]:
        """Where a path leads in each folder, if it leads nowhere else."""
        shown = cut_text(text, _SHOWN_BYTES)
        if ".." in Path(text).parts:
            raise InputError(f"{shown}: has '..'; name a path below the folders")
        try:
            found = [Path(os.path.realpath(folder / text)) for folder in self._folders]
        except ValueError as error:  # a zero byte, or no UTF-8
            raise InputError(f"{shown}: is no path") from error
        if inside := [path for path in found if self._holds(path)]:
            return inside
        raise InputError(f"{shown}: outside the folders that the server was started with")

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._folders)

    def _exists(self, text: str) -> bool:
        try:
            path = os.path.expanduser(text)
            return any(os.path.lexists(folder / path) for folder in (Path(), *self._folders))
        except ValueError:
            return False


def _recording(name: str) -> Path:
    found = {path.stem: path for path in bundled_recordings()}
    if name not in found:
        raise InputError(
            f"no bundled recording {cut_text(name, _SHOWN_BYTES)}: there are {', '.join(found)}"
        )
    return found[name]
