"""Temporary folders and files that outlive no process: of a process that was killed, the next one
removes them."""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

_PREFIX, _SUFFIX = "decodescope-", ".tmp"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]+{re.escape(_SUFFIX)}")


class WorkFolder:
    """A new temporary folder at `path`, locked while this process lives, until `remove`. Those that
    killed processes of this user left are removed first. It is in the folder `above`, by default
    the one for temporary files.

    Raises:
        OSError: it cannot be created.
    """

    def __init__(self, above: Path | None = None) -> None:
        above = above or Path(tempfile.gettempdir())
        remove_abandoned(above, _NAME, partial(shutil.rmtree, ignore_errors=True))
        self.path, self._lock = _locked_folder(above)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder and what is in it, as far as possible; call it once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked_folder(above: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=above))
        # Until it is locked, another process may take it for abandoned.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_dir():
                return path, lock
            os.close(lock)


def remove_abandoned(above: Path, names: re.Pattern[str], remove: Callable[[Path], object]) -> None:
    """Call `remove` with everything in `above` that is so named, and locked by no process."""
    try:
        candidates = list(filter(names.fullmatch, os.listdir(above)))
    except OSError:  # it may be written to, but not listed
        return
    for name in candidates:
        with contextlib.suppress(OSError):  # gone, of another user, locked, or without locks
            lock = os.open(above / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(above / name)
            finally:
                os.close(lock)
