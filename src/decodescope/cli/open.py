"""`open`: traces and recordings in the app."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.cli.app import AppOptions, app_options, remember_opened, show_app
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE
from decodescope.cli.output import progress

if TYPE_CHECKING:
    from decodescope.analyzer.readers.byte_source import ByteSource


@click.command("open")
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1)
@app_options
@given_options
def open_files(
    files: tuple[Path, ...],
    once: bool,
    page: str | None,
    size: tuple[int, int] | None,
    **given_texts: Any,
) -> None:
    """Open traces or recordings in the app; without a file, a bundled recording.

    The recording of a run that has not ended is followed. FILE may be a pipe, or - for the standard
    input; keys are then read from the terminal.
    """
    from decodescope.analyzer.recordings.bundled import bundled_recordings
    from decodescope.analyzer.recordings.recording import recorded_target
    from decodescope.tui.model.sources import TraceSource, source_for

    shown = tuple(newest(file) for file in files)
    options = GivenOptions(**given_texts)
    showing = AppOptions(once, page, size)
    place = showing.place()
    if place is None:
        raise InputError("open: needs a terminal; without one, add --once or use analyze FILE")
    with _pipes_in_files(shown or bundled_recordings()[:1]) as paths:
        source = TraceSource(paths) if len(paths) > 1 else source_for(paths[0])
        if options:
            if not isinstance(source, TraceSource) and not recorded_target(source.path):
                raise InputError(
                    f"{paths[0]} is a recording, which says what --capture, --model and the other "
                    "options for traces say; leave them out"
                )
            source = replace(source, given=options.read())
        if place != "drawing":
            remember_opened(files)
        show_app(source, place, showing)


def newest(path: Path) -> Path:
    """The recording that a run is writing under this name, or else the file itself.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    from decodescope.analyzer.io.files import growing_file

    if _is_stdin(path):
        return path
    path = growing_file(path) or path
    if path.is_dir() or not path.exists():
        reason = "is a folder, not a file" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {reason}; name a trace or a recording")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: not readable; check its permissions")
    return path


def _is_stdin(path: Path) -> bool:
    return str(path) in ("-", "/dev/stdin")


@contextmanager
def _pipes_in_files(paths: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """The paths, with a temporary file for each pipe: the app reads a trace more than once."""
    from decodescope.analyzer.readers.byte_source import open_source

    pipes = {path for path in paths if _is_stdin(path) or not path.is_file()}
    if not pipes:
        yield tuple(paths)
        return
    with WorkFolder() as folder:
        copies = {}
        with progress(piped=False) as stage:
            for number, path in enumerate(pipes):
                copies[path] = Path(folder, str(number), "stdin" if _is_stdin(path) else path.name)
                stage(f"reading {copies[path].name} to its end")
                with open_source(str(path)) as source:
                    _copy(source, copies[path])
        yield tuple(copies.get(path, path) for path in paths)


def _copy(source: "ByteSource", to: Path) -> None:
    try:
        to.parent.mkdir()
        with to.open("wb") as copy:
            while piece := source.read():
                copy.write(piece)
    except OSError as error:
        raise InputError(
            f"{source.path}: cannot be kept in {to.parent} ({error.strerror}); "
            "save it to a file and name that"
        ) from error
