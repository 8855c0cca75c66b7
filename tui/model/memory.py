"""What the app remembers from one run to the next, in one JSON file."""

import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct
from platformdirs import user_config_path, user_state_path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import write_json
from decodescope.analyzer.protocol.messages import Settings

RECENT_FILES = 20
_MISSING = (errno.ENOENT, errno.ENOTDIR)


@dataclass(frozen=True, slots=True)
class Places:
    """The two files of a user: `state` is written by the app, `keymap` only by the user."""

    state: Path
    keymap: Path


def user_places() -> Places:
    """Where this system keeps a user's files of these kinds."""
    return Places(
        user_state_path("decodescope") / "state.json",
        user_config_path("decodescope") / "keymap.toml",
    )


class Remembered(Struct, frozen=True, omit_defaults=True):
    """`recent` are absolute paths, the latest first; `settings` are those that a live run
    was changed to last, without the prompt."""

    theme: str | None = None
    recent: tuple[str, ...] = ()
    settings: Settings | None = None


class Memory:
    """Reads `path` once, and writes it at each change; None remembers nothing.

    A file that cannot be read is never overwritten. `problem` says in one line why nothing is
    remembered, "" if all is well. Methods may be called from any thread.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.problem = ""
        self.remembered = Remembered()
        if path is not None:
            self._read(path)

    def change(self, **fields: object) -> None:
        """Remember `fields` of `Remembered` from now on; what other apps wrote meanwhile stays."""
        with self._lock:
            if self._path is not None and not self.problem:
                self._read(self._path)
            self._keep(msgspec.structs.replace(self.remembered, **fields))

    def opened(self, paths: Sequence[Path]) -> None:
        """Put `paths` in front of the recent files; JSON has no name for one that is not UTF-8."""
        names = [name for path in paths if _in_utf8(name := os.path.abspath(path))]
        with self._lock:
            if self._path is not None and not self.problem:
                self._read(self._path)
            recent = tuple(dict.fromkeys([*names, *self.remembered.recent]))[:RECENT_FILES]
            self._keep(msgspec.structs.replace(self.remembered, recent=recent))

    def _read(self, path: Path) -> None:
        try:
            self.remembered = msgspec.json.decode(path.read_bytes(), type=Remembered)
        except OSError as error:
            if error.errno not in _MISSING:
                self._refuse(path, error.strerror or str(error))
        except msgspec.DecodeError as error:
            self._refuse(path, str(error))

    def _refuse(self, path: Path, reason: str) -> None:
        self.problem = f"{path}: cannot be read ({reason}); nothing is remembered until it is "
        self.problem += "repaired or deleted"

    def _keep(self, remembered: Remembered) -> None:
        changed, self.remembered = remembered != self.remembered, remembered
        if self._path is None or self.problem or not changed:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, remembered)
        except (OSError, InputError) as error:
            self.problem = f"nothing is remembered: {error}"


def _in_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
