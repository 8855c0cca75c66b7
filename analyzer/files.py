"""Writes files so that no reader ever sees half of one, and JSON for people in one form."""

import gzip
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from decodescope.analyzer.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`; renamed to it on success, removed on any error.

    It keeps the suffixes of `path`, because writers choose a format by them.

    Raises:
        InputError: the folder cannot be written to.
    """
    temporary = path.with_name(f".part-{secrets.token_hex(4)}-{path.name}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_stream(path: Path, gzip_level: int) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` on success, compressed if `path` ends in ".gz".

    Raises:
        InputError: the folder cannot be written to.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile("", "wb", gzip_level, file, mtime=0) as archive:
            yield cast(BinaryIO, archive)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all.

    Raises:
        InputError: the folder cannot be written to.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, structure: object) -> None:
    """Write `structure` to `path` as indented JSON with a final newline, whole or not at all.

    Raises:
        InputError: the folder cannot be written to.
    """
    write_atomically(path, msgspec.json.format(msgspec.json.encode(structure)) + b"\n")


def check_writable(path: Path | None, option: str) -> None:
    """Reject an output path before any work is done for it; None means no file.

    Raises:
        InputError: `path` is a folder, or its folder is missing or not writable; names `option`.
    """
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: the folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option} {path}: the folder {path.parent} is not writable")
