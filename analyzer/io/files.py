"""Writes files: whole or not at all, through links, and never over an input.

An output is the file that its path leads to. Symbolic links stay, and what they lead to is
replaced. What is no regular file (a device, a FIFO, an open descriptor such as /dev/stdout or
/dev/fd/3) is written to as it is.
"""

import contextlib
import errno
import fcntl
import gzip
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import destination, is_special, status
from decodescope.analyzer.io.work_folders import remove_abandoned
from decodescope.analyzer.text.plain import plain_json

_PARTIAL = ".partial"
_PART = re.compile(r"\.decodescope-[0-9a-f]{8}\.part")
# Files of settings are far smaller.
_MOST_BYTES = 1 << 20
_NO_NAME = re.compile(r"[^\w.+@=-]+")


def read_regular_file(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    """The bytes of a regular file. A pipe or a device, which may never end, is not read.

    Raises:
        OSError: the file cannot be read, is no regular file, or is longer than `most_bytes`.
    """

    def opener(name: str, flags: int) -> int:
        # A FIFO without a writer would block.
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=opener) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"longer than {most_bytes >> 20} MiB", os.fspath(path))
    return data


@contextmanager
def replacing_stream(path: Path, gzip_level: int = 6) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` on success, compressed if `path` ends in ".gz".

    An existing file keeps its permissions. On an error it stays as it was, and nothing is left
    behind.

    Raises:
        InputError: the file cannot be written.
    """
    with _opened(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile("", "wb", gzip_level, file, mtime=0) as archive:
            yield cast(BinaryIO, archive)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all, as it is.

    Raises:
        InputError: the file cannot be written.
    """
    with _opened(path) as file:
        file.write(data)


def write_json(path: Path, structure: object) -> None:
    """Write `structure` to `path` as indented JSON with a final newline, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    write_atomically(path, msgspec.json.format(encode_json(structure)) + b"\n")


def encode_json(structure: object) -> bytes:
    """`structure` as JSON on one line, with escapes for what is not printable. JSON is UTF-8; file
    names need not be, so "?" replaces the rest."""
    try:
        data = msgspec.json.encode(structure)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_in_utf8(msgspec.to_builtins(structure)))
    return plain_json(data)


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(item) for key, item in value.items()}
    return [_in_utf8(item) for item in value] if isinstance(value, list | tuple) else value


def write_new_file(
    folder: Path, stem: str, suffix: str, write: Callable[[BinaryIO], object]
) -> Path:
    """Write `folder/stem+suffix` (or `stem-2`, `stem-3`, … if that exists) and return its path.

    Raises:
        OSError: the folder cannot be written to; nothing is left behind.
    """
    with _part_in(folder) as file:
        write(file)
        file.close()
        for path in _free_names(folder, _NO_NAME.sub("-", stem), suffix):
            if _named(Path(file.name), path):
                return path
    raise AssertionError("names never end")


class GrowingFile:
    """A file that others can read while it grows: `<path>.partial` until `close` names it `path`.

    A file left under that name by a run that was killed stays; the next one is `<path>-2.partial`,
    and so on. While it grows it is locked, so that `is_growing` can tell it from one that was left.
    What is no regular file is written to directly, and `partial` is None.

    Raises:
        OSError: the file cannot be created or written to.
        InputError: `path` is a terminal.
    """

    def __init__(self, path: Path) -> None:
        self._target = destination(path)
        self.partial: Path | None = None
        if isinstance(self._target, int) or is_special(self._target):
            self._file = _open_through(self._target)
            if self._file.isatty():
                self._file.close()
                raise InputError(f"{path}: is a terminal; name a file")
            return
        for partial in _free_names(self._target.parent, self._target.name, _PARTIAL):
            with contextlib.suppress(FileExistsError):
                self._file = partial.open("xb")
                self.partial = partial
                break
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def append(self, data: bytes) -> None:
        """Write `data` at the end, where readers see it at once."""
        self._file.write(data)
        self._file.flush()

    def abandon(self) -> None:
        """Stop writing; what was written stays under the partial name."""
        with contextlib.suppress(OSError):
            self._file.close()

    def discard(self) -> None:
        """Stop writing, and remove what was written."""
        try:
            if self.partial is not None:
                self.partial.unlink(missing_ok=True)
        finally:
            self.abandon()

    def close(self) -> None:
        """Finish the file and give it its name, which it has before it stops being locked."""
        locked = os.dup(self._file.fileno())
        try:
            self._file.close()
            if self.partial is not None:
                assert isinstance(self._target, Path)
                _put(self.partial, self._target)
        finally:
            os.close(locked)


def is_growing(file: BinaryIO) -> bool:
    """Whether a `GrowingFile` still writes this open file; a killed process writes none."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def names_of(partial: Path) -> tuple[Path, ...]:
    """The names that a file which grows as `partial` may get; none if it is not named so."""
    name = partial.name.removesuffix(_PARTIAL)
    if name in ("", partial.name):
        return ()
    without_number = re.sub(r"(?<=.)-[0-9]{1,9}$", "", name)
    return tuple(partial.with_name(name) for name in {name, without_number})


def growing_file(path: Path) -> Path | None:
    """The file that will be named `path` when its `GrowingFile` is closed, None if none grows; of
    several the one with the highest number."""
    try:
        target = destination(path)
    except InputError:
        return None
    if isinstance(target, int):
        return None
    partial = re.compile(rf"{re.escape(target.name)}(?:-([0-9]{{1,9}}))?{re.escape(_PARTIAL)}")
    try:
        matches = [
            match for name in os.listdir(target.parent) if (match := partial.fullmatch(name))
        ]
    except OSError:
        return None
    for match in sorted(matches, key=lambda match: int(match[1] or 1), reverse=True):
        grown = target.parent / match[0]
        with contextlib.suppress(OSError):
            if grown.is_file():
                with grown.open("rb") as file:
                    if is_growing(file):
                        return grown
    return None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    target = destination(path)
    try:
        if target == 1 and _is_own_stdout():
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.flush()
            return
        if isinstance(target, int) or is_special(target):
            with _open_through(target) as file:
                yield file
            return
        with _part_of(target) as file:
            yield file
            file.close()
            _put(Path(file.name), target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


def _part_of(target: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    replaced = status(target)
    if replaced is None:
        return _part_in(target.parent)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return _part_in(target.parent, stat.S_IMODE(replaced.st_mode))


@contextmanager
def _part_in(folder: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file in `folder` that is removed at the end unless it got another name; those that
    killed processes left there are removed first."""
    remove_abandoned(folder, _PART, os.unlink)
    file = _locked_part(folder, mode)
    # It has its other name before anyone else can lock it.
    lock = os.dup(file.fileno())
    try:
        with file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        os.close(lock)


def _locked_part(folder: Path, mode: int) -> BinaryIO:
    while True:
        path = folder / f".decodescope-{secrets.token_hex(4)}.part"
        file = open(path, "xb", opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        # Until it was locked, another process may have taken it for abandoned.
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _is_own_stdout() -> bool:
    """Whether Python prints to the descriptor 1, by a stream that knows what its errors mean."""
    try:
        return sys.stdout.fileno() == 1
    except OSError:
        return False


def _open_through(target: Path | int) -> BinaryIO:
    """`target` opened as it is; of a descriptor a copy, after what was printed to it."""
    if isinstance(target, Path):
        return target.open("wb")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fdopen(os.dup(target), "wb")


def _put(temporary: Path, target: Path) -> None:
    replaced = status(target)
    if replaced is not None:
        with contextlib.suppress(OSError):  # only root may, and not on every file system
            os.chown(temporary, replaced.st_uid, replaced.st_gid)
        with contextlib.suppress(OSError):
            os.chmod(temporary, stat.S_IMODE(replaced.st_mode))
    temporary.replace(target)


def _named(temporary: Path, new: Path) -> bool:
    """Give a file a name that none has; False if one has it."""
    try:
        os.link(temporary, new)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if new.exists():
            return False
        temporary.replace(new)
    return True


def _free_names(folder: Path, stem: str, suffix: str) -> Iterator[Path]:
    yield folder / f"{stem}{suffix}"
    for number in count(2):
        yield folder / f"{stem}-{number}{suffix}"
