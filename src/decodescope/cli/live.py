"""`live`: decode in a worker process and watch it in the app."""

import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from rich.console import Console

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.output_paths import check_writable
from decodescope.cli.options import (
    checkpoint_files,
    file_option,
    model_options,
    sampling_options,
    variant_option,
    worker_config,
)
from decodescope.cli.output import say
from decodescope.cli.run import measure

if TYPE_CHECKING:
    from decodescope.tui.link.base import Link
    from decodescope.tui.model.feed import Source


@click.command()
@model_options
@variant_option
@sampling_options
@file_option("--record", help="Record what the app receives.")
def live(record: Path | None, **options: Any) -> None:
    """Decode live in a worker process and watch it in the terminal (the default)."""
    if not sys.stdout.isatty():
        if record is not None:
            raise InputError("--record: needs a terminal; without one, use run --trace FILE")
        measure(options)
        return
    from decodescope.variants.machine.environment import require_run_packages

    require_run_packages()
    check_writable(record, "--record", checkpoint_files(options["model"]))
    config = worker_config(options)
    from decodescope.tui.link.worker import WorkerLink
    from decodescope.tui.model.feed import LiveSource

    link: Link = WorkerLink(config)
    with ExitStack() as stack:
        if record is not None:
            from decodescope.analyzer.recordings.writer import RecordingWriter
            from decodescope.tui.link.recording import RecordingLink

            link = RecordingLink(link, stack.enter_context(closing(RecordingWriter(record))))
        start_app(LiveSource(link, cpu_chosen=config.device == "cpu"))


def start_app(source: "Source") -> None:
    """Run the app on this terminal until it ends; a failure ends the command with its code.

    Keys come from the terminal, also where the standard input is a pipe.

    Raises:
        InputError: there is no terminal to read keys from.
    """
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.style.terminal import TerminalTraits

    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    traits = TerminalTraits(
        unicode=encoding == "utf8",
        color=not os.environ.get("NO_COLOR"),
        few_colors=Console().color_system in ("standard", "windows"),
    )
    _read_keys_from_terminal()
    app = DecodescopeApp(source, traits)
    app.run()
    if app.crash is not None:
        raise app.crash
    if app.return_code:
        sys.exit(app.return_code)
    if app.fatal_failure is not None:
        say(f"decodescope: {app.fatal_failure.message}")
        sys.exit(app.fatal_failure.exit_code)


def _read_keys_from_terminal() -> None:
    if sys.stdin is None:
        raise InputError("the standard input is closed; the app needs a terminal to read keys from")
    if sys.stdin.isatty():
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise InputError(
            f"there is no terminal to read keys from ({error.strerror}); use run or analyze"
        ) from error
    os.dup2(terminal, sys.stdin.fileno())
    os.close(terminal)
