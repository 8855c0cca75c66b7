"""Writes files so that no reader ever sees half of one, and JSON for people in one form."""

import gzip
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from decodescope.analyzer.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`; renamed to it on success, removed on any error.

    It keeps the suffixes of `path`, because writers choose a format by them.

    Raises:
        InputError: the file cannot be written: its folder is read-only, the disk is full.
    """
    temporary = path.with_name(f".part-{secrets.token_hex(4)}-{path.name}")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_stream(path: Path, gzip_level: int) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` on success, compressed if `path` ends in ".gz".

    Raises:
        InputError: the file cannot be written: its folder is read-only, the disk is full.
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
        InputError: the file cannot be written: its folder is read-only, the disk is full.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, structure: object) -> None:
    """Write `structure` to `path` as indented JSON with a final newline, whole or not at all.

    Raises:
        InputError: the file cannot be written: its folder is read-only, the disk is full.
    """
    write_atomically(path, msgspec.json.format(encode_json(structure)) + b"\n")


def encode_json(structure: object) -> bytes:
    """`structure` as JSON, which is UTF-8; file names need not be, so "?" replaces the rest."""
    try:
        return msgspec.json.encode(structure)
    except UnicodeEncodeError:
        return msgspec.json.encode(_in_utf8(msgspec.to_builtins(structure)))


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(one) for key, one in value.items()}
    return [_in_utf8(one) for one in value] if isinstance(value, list | tuple) else value


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
