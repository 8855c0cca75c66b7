"""Exports reports of Nsight Systems (`.nsys-rep`) to SQLite with the user's own `nsys`.

Exports are kept in the user's cache folder, named by the content of their report, so that the next
command on it starts at once.
"""

import os
import shutil
import subprocess
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from platformdirs import user_cache_path

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.converters import converted
from decodescope.analyzer.io.work_folders import WorkFolder

# An export takes about a minute for each GB.
_MOST_S = 1200.0
# An export is up to ten times as large as its report.
_KEPT = 4
_OPTIONS = ("export", "--type", "sqlite", "--force-overwrite", "true")
_BY_HAND = "nsys export --type sqlite"


def export_folder() -> Path:
    """The folder of the exports that are kept."""
    return user_cache_path("decodescope") / "nsys-exports"


def exported(report: Path) -> Path:
    """The export of a report, made unless it is in the cache; the last four used are kept there.

    Raises:
        TraceError: there is no `nsys` on the path, it fails or takes over 20 minutes, or the cache
            folder cannot be written.
    """
    folder = export_folder()
    try:
        with report.open("rb") as file:
            target = folder / f"{file_digest(file, 'blake2b').hexdigest()[:32]}.sqlite"
        if not target.exists():
            export(report, target)
        os.utime(target)
        _forget_old(folder)
    except OSError as error:
        raise TraceError(
            f"{report}: its export cannot be kept ({error.filename}: {error.strerror or error}); "
            f"export it yourself: {_BY_HAND} {report}"
        ) from None
    return target


def export(report: Path, target: Path) -> None:
    """Export `report` to `target`, which appears under its name only when it is complete.

    Raises:
        OSError: the folder of `target` cannot be written.
        TraceError: there is no `nsys` on the path, or it fails or takes over 20 minutes.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise TraceError(
            f"{report}: a report that only Nsight Systems reads, and nsys is not on the path; "
            f"export it where it is, and open that: {_BY_HAND} {report}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with WorkFolder(target.parent) as folder:
        made = folder / "export.sqlite"
        command = [nsys, *_OPTIONS, "--output", str(made), str(report.absolute())]
        converted(command, str(report), folder, _MOST_S, subprocess.DEVNULL)
        if not made.exists():
            raise TraceError(f"{report}: nsys export made no file; update Nsight Systems")
        made.replace(target)


def _forget_old(folder: Path) -> None:
    # Another process may remove them too.
    with suppress(OSError):
        exports = sorted(folder.glob("*.sqlite"), key=lambda one: one.stat().st_mtime)
        for old in exports[:-_KEPT]:
            old.unlink(missing_ok=True)
