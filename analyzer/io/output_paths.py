"""Where an output path leads, and whether it may be written: asked before any work is done."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from decodescope.analyzer.errors import InputError

_STDIN, _STDOUT = Path("-"), Path("/dev/fd/1")
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")
_MAX_LINKS = 40


def output_path(text: str) -> Path:
    """The path of an output as the user gave it; "-" is standard output."""
    return _STDOUT if text == "-" else Path(text)


def is_stdout(path: Path | None) -> bool:
    return path is not None and destination(path) == 1


def check_writable(path: Path | None, option: str, inputs: Iterable[Path | None] = ()) -> None:
    """Reject an output path before any work is done for it; None means no file.

    `inputs` are the files that the command reads, "-" standard input; None means none. Two paths
    are the same file if device and inode are.

    Raises:
        InputError: `path` is a folder, cannot be written, is one of the inputs, or is named like an
            option, whose own value is then missing; names `option`.
    """
    if path is None:
        return
    if str(path).startswith("--"):
        raise InputError(f"{option} {path}: is named like an option; name another file")
    target = destination(path)
    try:
        existing = os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        _check_folder_of(target, f"{option} {path}")
        existing = None
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror})") from error
    for source in inputs:
        if source is not None and _is_same(source, target, existing):
            raise InputError(f"{option} {path}: is the input {source}; name another file")
    if existing is None:
        return
    if stat.S_ISDIR(existing.st_mode):
        raise InputError(f"{option} {path}: is a folder; name a file")
    if isinstance(target, Path) and not os.access(target, os.W_OK):
        raise InputError(f"{option} {path}: is not writable; name another file")
    if stat.S_ISREG(existing.st_mode):
        _check_folder_of(target, f"{option} {path}")


def check_writable_in(
    folder: Path, names: Iterable[str], option: str, inputs: Iterable[Path | None] = ()
) -> None:
    """Reject files in an output folder, which may be missing, before any work is done.

    Raises:
        InputError: the folder cannot be created, or as `check_writable` for one of its files.
    """
    if folder == Path("-"):
        raise InputError(f"{option} -: takes a folder, not standard output; name one")
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not os.path.isdir(existing):
        raise InputError(f"{option} {folder}: {existing} is not a folder; name another one")
    if not os.access(existing, os.W_OK):
        raise InputError(
            f"{option} {folder}: the folder {existing} is not writable; name another one"
        )
    if existing == folder:
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


def destination(path: Path) -> Path | int:
    """The open descriptor that `path` names, or else the path at the end of its symbolic links."""
    target = path
    for _ in range(_MAX_LINKS):
        if named := _DESCRIPTOR.fullmatch(os.fspath(target)):
            return int(named[1])
        if not os.path.islink(target):
            return target
        target = target.parent / os.readlink(target)
    raise InputError(f"{path}: its symbolic links lead in a circle; name a file")


def is_special(target: Path) -> bool:
    """Whether `target` exists and is neither a regular file nor a folder."""
    return os.path.exists(target) and not (os.path.isfile(target) or os.path.isdir(target))


def status(target: Path | str | int) -> os.stat_result | None:
    """The status of an existing path or open descriptor, else None."""
    try:
        return os.stat(target)
    except OSError:
        return None


def _is_same(source: Path, target: Path | int, existing: os.stat_result | None) -> bool:
    """Whether the input `source` is the regular file `target`, which may be yet to be written."""
    read = status(0 if source == _STDIN else source)
    if read is None or existing is None:
        return os.path.realpath(source) == os.path.realpath(str(target))
    return stat.S_ISREG(existing.st_mode) and os.path.samestat(read, existing)


def _check_folder_of(target: Path | int, title: str) -> None:
    if isinstance(target, int):
        return
    if not os.path.isdir(target.parent):
        raise InputError(f"{title}: the folder {target.parent} does not exist; make it first")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{title}: the folder {target.parent} is not writable")
