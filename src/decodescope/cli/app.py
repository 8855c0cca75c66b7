"""Shows the app: on this terminal, in a browser through `serve`, or as one drawing."""

import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import rich_click as click
from click.core import ParameterSource

from decodescope.analyzer.errors import InputError
from decodescope.cli.ending import current_ending
from decodescope.cli.options import together
from decodescope.cli.output import has_few_colors, print_lines, say

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import Settings
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.model.sources import Source

Place = Literal["terminal", "browser", "drawing"]

_SIZE = re.compile(r"([0-9]{1,4})x([0-9]{1,4})")
_DEFAULT_SIZE = (120, 40)
MAX_CELLS = 1000
# How often an app looks for its server.
_LOOK_S = 0.5


def _size(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text)
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(1 <= cells <= MAX_CELLS for cells in size):
        raise InputError(f"--size {text}: must be columns x rows, each up to 1000, such as 120x40")
    return size


app_options = together(
    click.option("--once", is_flag=True, help="Draw one screen on standard output and leave."),
    click.option("--page", metavar="NAME", help="The page to begin with, such as kernels."),
    click.option(
        "--size",
        metavar="WxH",
        type=_size,
        help="With --once: columns and rows. [default: those of the terminal, or 120x40]",
    ),
)


@dataclass(frozen=True, slots=True)
class AppOptions:
    """The values of `app_options`."""

    once: bool
    page: str | None
    size: tuple[int, int] | None

    def place(self) -> Place | None:
        """Where the app is shown; None if standard output is no terminal and nothing else was
        asked for.

        Raises:
            InputError: the options contradict each other, or there is no such page.
        """
        if self.page is not None:
            from decodescope.tui.pages.all_pages import PAGES

            names = [page.name for page in PAGES]
            if self.page not in names:
                raise InputError(f"--page {self.page}: no such page; choose {', '.join(names)}")
        if self.size is not None and not self.once:
            raise InputError("--size: only with --once; otherwise the terminal has a size")
        if self.once:
            return "drawing"
        from textual.constants import DRIVER

        if DRIVER is not None:  # `serve` started this process: Textual draws into a browser
            return "browser"
        if not sys.stdout.isatty():
            return None
        if os.environ.get("TERM") == "dumb":
            say("TERM=dumb: this terminal cannot show the app, so here is one screen (--once)")
            return "drawing"
        return "terminal"


def show_app(source: "Source", place: Place, options: AppOptions) -> None:
    """Run the app until it ends; a failure ends the command with its code.

    Keys come from the terminal, also where the standard input is a pipe.

    Raises:
        InputError: there is no terminal to read keys from, or the file cannot be drawn.
    """
    from decodescope.tui.pages.all_pages import import_panels

    app = _app(source, place, options)
    app.signalled = current_ending().end_soon
    if place == "drawing":
        _draw(app, options.size or _terminal_size())
    else:
        if place == "terminal":
            _read_keys_from_terminal()
        else:
            _end_with_server()
        # No key waits for an import. The modules stay for as long as the app does: garbage
        # collections that visit them take over 100 ms, and no key is answered meanwhile.
        import_panels()
        gc.freeze()
        app.run()
        if app.crash is not None:
            raise app.crash
    if app.return_code:
        sys.exit(app.return_code)
    if app.fatal_failure is not None:
        say(f"decodescope: {app.fatal_failure.message}")
        sys.exit(app.fatal_failure.exit_code)


def _end_with_server() -> None:
    """End this process when its parent, the server, has ended, however that ended."""
    server = os.getppid()

    def watch() -> None:
        while os.getppid() == server:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="server", daemon=True).start()


def _app(source: "Source", place: Place, options: AppOptions) -> "DecodescopeApp":
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.model.user_files import user_places
    from decodescope.tui.terminal_app import TerminalTraits

    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    color = not os.environ.get("NO_COLOR") and (place != "drawing" or _colored_terminal())
    traits = TerminalTraits(
        unicode=place == "browser" or encoding == "utf8",
        color=color,
        few_colors=place != "browser" and has_few_colors(),
    )
    return DecodescopeApp(
        source,
        traits,
        folder=_working_folder(),
        page=options.page,
        places=user_places(),
        mount_ahead=place != "drawing",
    )


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InputError("the working folder was deleted; change to another one") from None


def remember_opened(files: Iterable[Path]) -> None:
    """Put files in front of the recent ones; a pipe or a descriptor cannot be opened again, and a
    recording that is being written will have its name by then."""
    from decodescope.analyzer.io.files import growing_file
    from decodescope.tui.model.user_files import Memory, user_places

    passing = ("-", "/dev/", "/proc/")
    again = [
        file
        for file in files
        if not str(file).startswith(passing) and (file.is_file() or growing_file(file))
    ]
    if again:
        Memory(user_places().state).opened(again)


def last_settings() -> "Settings | None":
    """The last settings of a live run, unless an option of this command says what is decoded."""
    from decodescope.tui.model.user_files import Memory, user_places

    context = click.get_current_context()
    assert context is not None
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    if given - {"record", "once", "page", "size"}:
        return None
    settings = Memory(user_places().state).remembered.settings
    if settings is not None:
        say(
            f"live: with the settings of the last run (model {settings.model or 'by default'}, "
            f"batch {settings.batch}); options such as --model choose others"
        )
    return settings


def _draw(app: "DecodescopeApp", size: tuple[int, int]) -> None:
    from decodescope.tui.once import draw_once

    lines = draw_once(app, *size)
    if not _colored_terminal():
        for line in lines:
            click.echo(line.text.rstrip())
        return
    print_lines(lines, size[0])


def _colored_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _terminal_size() -> tuple[int, int]:
    """The size of the terminal, one row less for the prompt that follows."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return _DEFAULT_SIZE
    return (columns, rows - 1) if columns > 0 and rows > 1 else _DEFAULT_SIZE


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
