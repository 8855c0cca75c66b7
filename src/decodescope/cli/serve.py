"""`serve`: files in the app, in a browser on this machine."""

import sys
from collections.abc import Iterable
from pathlib import Path

import rich_click as click

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.recordings.following import is_being_written
from decodescope.cli.ending import current_ending
from decodescope.cli.open import newest
from decodescope.cli.options import FILE


@click.command()
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1)
@click.option("--port", metavar="N", type=click.IntRange(1, 65535), default=8000, show_default=True)
def serve(files: tuple[Path, ...], port: int) -> None:
    """Show traces or recordings in the app in a browser on this machine.

    Every browser gets an app of its own; none starts a model. The recording of a run that has not
    ended is followed. Without a file, a bundled recording.
    """
    names = []
    for file in files:
        path = newest(file)
        if not path.is_file():
            raise InputError(f"{file}: each browser reads it; save it to a file and name that")
        names.append(f"{file.name} (as it is recorded)" if is_being_written(path) else file.name)
    try:
        import textual_serve  # noqa: F401
    except ImportError as error:
        raise MissingRequirement(
            "serve: needs textual-serve, which is not installed; "
            "install it from a checkout with: pip install '.[serve]'"
        ) from error
    from decodescope.cli.app_server import run_server

    run_server(open_command(files), port, names, current_ending())


def open_command(files: Iterable[Path]) -> list[str]:
    """The command that opens `files` in an app."""
    names = (str(file.absolute()) for file in files)
    return [sys.executable, "-P", "-m", "decodescope", "open", *names]
