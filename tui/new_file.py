"""Writes the files a user requests: under a temporary name first, never over an existing file."""

import contextlib
import gzip
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_ATTEMPTS = 1000


def write_new_file(
    folder: Path, stem: str, suffix: str, write: Callable[[BinaryIO], object]
) -> Path:
    """Write `folder/stem+suffix` (or `stem-2`, `stem-3`, … if that exists) and return its path.

    Raises:
        OSError: the folder cannot be written to; nothing is left behind.
    """
    stem = re.sub(r"[^\w.+@=-]+", "-", stem)
    handle, temporary = tempfile.mkstemp(prefix=f".{stem}-", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(temporary, 0o644)
        for attempt in range(1, _ATTEMPTS):
            target = folder / (f"{stem}{suffix}" if attempt == 1 else f"{stem}-{attempt}{suffix}")
            if _renamed(temporary, target):
                return target
        raise FileExistsError(f"{folder / (stem + suffix)} and {_ATTEMPTS} others exist")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _renamed(temporary: str, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:
        if target.exists():
            return False
        os.replace(temporary, target)
    return True


def save_trace(source: Path, folder: Path, stem: str) -> Path:
    """Gzip the Kineto JSON at `source` (or copy it if already gzipped) into a new file in `folder`.

    Raises:
        OSError: the source is missing, or the folder cannot be written to.
    """
    with source.open("rb") as trace:
        gzipped = trace.read(2) == b"\x1f\x8b"
        trace.seek(0)

        def write(file: BinaryIO) -> None:
            if gzipped:
                shutil.copyfileobj(trace, file)
                return
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                shutil.copyfileobj(trace, packed)

        return write_new_file(folder, stem, ".json.gz", write)
