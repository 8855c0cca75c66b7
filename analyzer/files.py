"""Writes files: whole or not at all, through links, and never over an input.

An output is the file that its path leads to. Symbolic links stay, and what they lead to is
replaced. What is no regular file (a device, a FIFO, an open descriptor such as /dev/stdout or
/dev/fd/3) is written to as it is.
"""

import contextlib
import errno
import gzip
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.plain import plain_json

_STDIN, _STDOUT = Path("-"), Path("/dev/fd/1")
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_MAX_LINKS = 40
_NO_NAME = re.compile(r"[^\w.+@=-]+")


def output_path(text: str) -> Path:
    """The path of an output as the user gave it; "-" is standard output."""
    return _STDOUT if text == "-" else Path(text)


def is_stdout(path: Path | None) -> bool:
    """Whether what is written to `path` goes to standard output."""
    return path is not None and _destination(path) == 1


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
        return {_in_utf8(key): _in_utf8(one) for key, one in value.items()}
    return [_in_utf8(one) for one in value] if isinstance(value, list | tuple) else value


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
    and so on. What is no regular file is written to directly.

    Raises:
        OSError: the file cannot be created or written to.
        InputError: `path` is a terminal.
    """

    def __init__(self, path: Path) -> None:
        self._target = _destination(path)
        self._partial: Path | None = None
        if isinstance(self._target, int) or _is_special(self._target):
            self._file = _open_through(self._target)
            if self._file.isatty():
                self._file.close()
                raise InputError(f"{path}: is a terminal; name a file")
            return
        for partial in _free_names(self._target.parent, self._target.name, ".partial"):
            with contextlib.suppress(FileExistsError):
                self._file = partial.open("xb")
                self._partial = partial
                return

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
        self.abandon()
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Finish the file and give it its name."""
        self._file.close()
        if self._partial is not None:
            assert isinstance(self._target, Path)
            _put(self._partial, self._target)


def check_writable(path: Path | None, option: str, inputs: Iterable[Path | None] = ()) -> None:
    """Reject an output path before any work is done for it; None means no file.

    `inputs` are the files that the command reads, "-" standard input; None means none. Two paths
    are the same file if device and inode are.

    Raises:
        InputError: `path` is a folder, cannot be written, or is one of the inputs; names `option`.
    """
    if path is None:
        return
    target = _destination(path)
    try:
        found = os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        _check_folder_of(target, f"{option} {path}")
        found = None
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror})") from error
    for one in inputs:
        if one is not None and _is_same(one, target, found):
            raise InputError(f"{option} {path}: is the input {one}; name another file")
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{option} {path}: is a folder; name a file")
    if isinstance(target, Path) and not os.access(target, os.W_OK):
        raise InputError(f"{option} {path}: is not writable; name another file")
    if stat.S_ISREG(found.st_mode):
        _check_folder_of(target, f"{option} {path}")


def check_writable_in(
    folder: Path, names: Iterable[str], option: str, inputs: Iterable[Path | None] = ()
) -> None:
    """Reject files in an output folder, which may be missing, before any work is done.

    Raises:
        InputError: the folder cannot be created, or as `check_writable` for one of its files.
    """
    found = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not os.path.isdir(found):
        raise InputError(f"{option} {folder}: {found} is not a folder; name another one")
    if not os.access(found, os.W_OK):
        raise InputError(f"{option} {folder}: the folder {found} is not writable; name another one")
    if found == folder:
        for name in names:
            check_writable(folder / name, option, inputs)


def make_folder(folder: Path, option: str) -> None:
    """Create an output folder unless it exists.

    Raises:
        InputError: it cannot be created; names `option`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{option} {folder}: cannot be created ({error.strerror}); name a folder"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    target = _destination(path)
    try:
        if target == 1 and _is_own_stdout():
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.flush()
            return
        if isinstance(target, int) or _is_special(target):
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
    """A temporary file next to `target`, readable by no more people than `target` is."""
    replaced = _status(target)
    if replaced is None:
        return _part_in(target.parent)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return _part_in(target.parent, stat.S_IMODE(replaced.st_mode))


@contextmanager
def _part_in(folder: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file in `folder` that is removed at the end unless it got another name."""
    temporary = folder / f".part-{secrets.token_hex(4)}"
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


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
    """Replace `target` by `temporary`, which gets its owner and permissions."""
    replaced = _status(target)
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


def _destination(path: Path) -> Path | int:
    """The open descriptor that `path` names, or else the path at the end of its symbolic links."""
    target = path
    for _ in range(_MAX_LINKS):
        if named := _DESCRIPTOR.fullmatch(os.fspath(target)):
            return int(named[1])
        if not os.path.islink(target):
            return target
        target = target.parent / os.readlink(target)
    raise InputError(f"{path}: its symbolic links lead in a circle; name a file")


def _status(target: Path | int) -> os.stat_result | None:
    try:
        return os.stat(target)
    except OSError:
        return None


def _is_same(one: Path, target: Path | int, found: os.stat_result | None) -> bool:
    """Whether the input `one` is the regular file `target`, which may be yet to be written."""
    read = _status(0 if one == _STDIN else one)
    if read is None or found is None:
        return os.path.realpath(one) == os.path.realpath(str(target))
    return stat.S_ISREG(found.st_mode) and os.path.samestat(read, found)


def _is_special(target: Path) -> bool:
    found = _status(target)
    return found is not None and not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))


def _check_folder_of(target: Path | int, what: str) -> None:
    if isinstance(target, int):
        return
    if not os.path.isdir(target.parent):
        raise InputError(f"{what}: the folder {target.parent} does not exist; make it first")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{what}: the folder {target.parent} is not writable")
