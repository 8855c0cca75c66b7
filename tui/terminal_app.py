"""An app on a terminal: it shows what the terminal can, answers keys in the order of their presses,
ends on signals, and outlives the terminal.
"""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.segment import Segment
from textual import events
from textual.app import App
from textual.color import Color
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.geometry import Size
from textual.widgets import Input
from textual.worker import WorkerFailed

from decodescope.analyzer.text.plain import plain_line, plain_text, to_ascii
from decodescope.tui.panels.panel import Panel

# A sender may repeat its signal at once, as `timeout` does.
ONE_SIGNAL_S = 0.1
# After so long, the signal of a size that came last has been answered.
SETTLED_S = 0.25
# For a widget that is removed before it takes a key.
_MOST_WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class TerminalTraits:
    """What the terminal shows: UTF-8, colours (NO_COLOR is not set), only sixteen of them. The app
    receives them instead of guessing, so tests can fix them."""

    unicode: bool = True
    color: bool = True
    few_colors: bool = False


class AsciiFilter(LineFilter):
    """Replaces the non-ASCII glyphs of every widget's lines."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class LosableFile:
    """The terminal, as Textual's driver writes to it; once it is gone, what is written is dropped.

    The driver's thread ends with the first error, and the app waits for it forever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


def losable(driver: type[Driver]) -> type[Driver]:
    """A driver that outlives its terminal."""

    class LosableDriver(driver):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if (file := getattr(self, "_file", None)) is not None:
                self._file = LosableFile(file)

    return LosableDriver


class TerminalApp(App[None]):
    """Subclasses implement `ending` and `close_links`."""

    def __init__(self, traits: TerminalTraits) -> None:
        self._traits = traits
        self._terminal_filters: list[LineFilter] = [] if traits.color else [NoColor()]
        if not traits.unicode:
            self._terminal_filters.append(AsciiFilter())
        super().__init__(ansi_color=None if traits.color else True)
        # Called with a signal that is to end the app, whatever still runs then.
        self.signalled: Callable[[int], None] = lambda number: None
        self._leaving = False
        self._ending_signals: list[signal.Signals] = []

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda app: self.repaint())

    def on_resize(self) -> None:
        if not (self.is_headless or self.is_web):
            self.set_timer(SETTLED_S, self._check_size)

    def _check_size(self) -> None:
        """Of two sizes in quick succession, Textual may be told of the first one alone."""
        size = Size(*shutil.get_terminal_size())
        if size != self.size:
            self.post_message(events.Resize(size, size))

    def repaint(self) -> None:
        """Draw every widget, also where Textual takes it to be on the screen: after a suspension,
        the shell has drawn over it."""
        for widget in self.screen.walk_children(with_self=True):
            widget.refresh()

    def ending(self) -> None:
        """Show that the app is about to end."""
        raise NotImplementedError

    async def close_links(self) -> None:
        """End every process of the app."""
        raise NotImplementedError

    @property
    def crash(self) -> BaseException | None:
        """The error that ended the app, None if none did."""
        error = self._exception
        return error.error if isinstance(error, WorkerFailed) else error

    def _fatal_error(self) -> None:
        """End without Textual's traceback: whoever runs the app reports `crash`."""
        self._close_messages_no_wait()

    def get_driver_class(self) -> type[Driver]:
        return losable(super().get_driver_class())

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._terminal_filters]

    def notify(self, message: str, *, title: str = "", **options: Any) -> None:
        """Show a message; names in it are plain text, so none is markup."""
        options.setdefault("markup", False)
        super().notify(plain_text(message), title=plain_line(title), **options)

    async def on_event(self, event: events.Event) -> None:
        """Answer a key before the next.

        Textual sends a key to the widget with the focus, and from there to one ancestor after the
        other until a binding takes it; letters that follow at once would overtake it.
        """
        if isinstance(event, events.Key) and not event.is_forwarded:
            focused = self.focused
            if isinstance(focused, Input | Panel):
                await self._answer(event, focused)
                return
        await super().on_event(event)

    async def _answer(self, event: events.Key, focused: Input | Panel[Any]) -> None:
        if focused.check_consume_key(event.key, event.character):
            await super().on_event(event)
            taken = asyncio.Event()
            if focused.call_later(taken.set):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(taken.wait(), _MOST_WAIT_S)
        elif not (
            await self._check_bindings(event.key, priority=True)
            or await self._check_bindings(event.key)
        ):
            await super().on_event(event)

    def on_load(self) -> None:
        """Let signals end the app like `q`, before it takes over the terminal.

        An ignored one stays ignored, except SIGHUP: without its terminal the app is of no use.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    asyncio.get_running_loop().add_signal_handler(number, self._end_by, number)
                    self._ending_signals.append(number)

    async def on_unmount(self) -> None:
        """End every process of the app, also after a crash."""
        await self.close_links()

    async def action_quit(self) -> None:
        if not self._leaving:
            self._leave(0)

    def _end_by(self, number: int) -> None:
        """Exit with 128 + signal; another one, a moment later, kills the process. SIGHUP does not:
        the kernel and the shell both send it when a terminal is closed."""
        self.signalled(number)
        if self._leaving:
            return
        self._leave(128 + number)
        loop = asyncio.get_running_loop()
        for ending_signal in self._ending_signals:
            if ending_signal != signal.SIGHUP:
                loop.call_later(ONE_SIGNAL_S, signal.signal, ending_signal, signal.SIG_DFL)

    def _leave(self, code: int) -> None:
        self._leaving = True
        self.ending()
        self.run_worker(self._close_and_exit(code), name="leaving")

    async def _close_and_exit(self, code: int) -> None:
        await self.close_links()
        self.exit(return_code=code)
