"""What the command line says: data on stdout, progress and messages on stderr, one error line."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import rich_click as click


def json_bytes(structure: object) -> bytes:
    """The documented JSON of a report structure."""
    return msgspec.json.encode(structure)


def print_json(structure: object) -> None:
    """JSON on stdout, on one line."""
    click.echo(json_bytes(structure))


def print_rich(renderable: Any) -> None:
    """A table or text on stdout, as wide as the terminal."""
    from rich.console import Console

    Console().print(renderable)


def say(text: str) -> None:
    """A message on stderr."""
    click.echo(text, err=True)


@contextlib.contextmanager
def progress(piped: Callable[[str], None] | None = None) -> Iterator[Callable[[str], None]]:
    """A function that shows the current stage on stderr: a spinner, or `piped` (nothing) when that
    is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield piped or (lambda stage: None)
        return
    with console.status("starting") as status:
        yield status.update


@contextlib.contextmanager
def library_output_to_stderr() -> Iterator[None]:
    """What a library prints while a model loads must not mix with the data on stdout."""
    with contextlib.redirect_stdout(io.TextIOWrapper(sys.stderr.buffer, write_through=True)) as out:
        try:
            yield
        finally:
            out.detach()
