"""`open`: traces and recordings in the app."""

import os
import sys
from pathlib import Path

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.live import start_app
from decodescope.cli.options import FILE


@click.command("open")
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1)
def open_files(files: tuple[Path, ...]) -> None:
    """Open traces or recordings in the app; without a file, a bundled recording."""
    from decodescope.analyzer.recordings.bundled import bundled_recordings
    from decodescope.tui.model.feed import TraceSource, source_for

    for file in files:
        _check_readable(file)
    if not sys.stdout.isatty():
        raise InputError("open: needs a terminal; without one, use analyze FILE")
    if len(files) > 1:
        start_app(TraceSource(files))
    else:
        start_app(source_for(files[0] if files else bundled_recordings()[0]))


def _check_readable(path: Path) -> None:
    if not path.is_file():
        reason = "is a folder, not a file" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {reason}; name a trace or a recording")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: not readable; check its permissions")
