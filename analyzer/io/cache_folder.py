"""The user's cache folder, which keeps what was measured on this machine between runs."""

import sys
from pathlib import Path
from typing import TypeVar

import msgspec
from platformdirs import user_cache_path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import read_regular_file, write_atomically

Measured = TypeVar("Measured")


def cache_folder() -> Path:
    """The folder of measurements, unless a caller passes another one."""
    return user_cache_path("decodescope")


def kept_measured(path: Path, kind: type[Measured]) -> Measured:
    """What `keep_measured` wrote to `path`.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is damaged, or of another version.
    """
    try:
        return msgspec.json.decode(read_regular_file(path), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def keep_measured(path: Path, measured: object, title: str) -> bool:
    """Write `measured` to `path` as JSON, and create its folder if it is missing.

    Returns False if that fails. stderr then says that `title` is not kept for later runs.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(measured))
    except (OSError, InputError) as error:
        sys.stderr.write(f"{title} not kept for later runs: {error}\n")
        return False
    return True
