"""The decodescope terminal app: one screen over a live worker, a recording or trace files."""

import asyncio
import contextlib
import signal
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.theme import Theme

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import (
    CaptureTrace,
    Failure,
    Hello,
    Pause,
    Resume,
    SwitchVariant,
    TraceReady,
)
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.tui import banners
from decodescope.tui.background import Background
from decodescope.tui.commands import COMMANDS, bindings, key_hints
from decodescope.tui.link.base import LinkEvent, WorkerDied
from decodescope.tui.link.sources import LiveSource, Source, source_for
from decodescope.tui.model.feed import Feed, open_feed
from decodescope.tui.model.messages import AnalysisFailed, Analyzed, FileNotWritten, FileWritten
from decodescope.tui.painter import Painter
from decodescope.tui.panels.lines import Banner
from decodescope.tui.panels.panel import Brush
from decodescope.tui.screens.main import MainScreen
from decodescope.tui.style.ascii import AsciiFilter
from decodescope.tui.style.glyphs import ASCII, UNICODE
from decodescope.tui.style.palette import Inks, plain_inks, themed_inks
from decodescope.tui.style.themes import DARK, LIGHT
from decodescope.tui.style.traits import Clock, SystemClock, TerminalTraits

_ASCII_FILTER = AsciiFilter()
_NO_COLOR = NoColor()


class DecodescopeApp(App[None]):
    """Reads the source's messages, has windows analysed in a thread, and acts on keys.

    A live worker stays open, paused, while a recording or a trace is looked at.
    """

    TITLE = "decodescope"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())

    def __init__(
        self,
        source: Source,
        traits: TerminalTraits | None = None,
        clock: Clock | None = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is where traces and screenshots are written: None for the current one."""
        self._traits = traits or TerminalTraits()
        super().__init__(ansi_color=None if self._traits.color else True)
        self._clock = clock or SystemClock()
        self._background = Background(self, self._clock, folder)
        self._feed = open_feed(source)
        self._live: Feed | None = self._feed if self._feed.kind == "live" else None
        self._restart_asked = False
        self._main: MainScreen | None = None
        self._painter: Painter | None = None
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name if self._traits.color else "ansi-dark"

    @property
    def fatal_failure(self) -> Failure | None:
        """Why the live worker gave up, if it did and was not restarted since."""
        return self._live.view().fatal if self._live is not None else None

    def get_default_screen(self) -> Screen[None]:
        """The main screen."""
        self._main = MainScreen(self._brush(), key_hints(self._feed.kind, 0))
        return self._main

    def get_line_filters(self) -> list[LineFilter]:
        """Textual's filters, and ours for terminals without colour or without Unicode."""
        filters = list(super().get_line_filters())
        if not self._traits.color:
            filters.append(_NO_COLOR)
        if not self._traits.unicode:
            filters.append(_ASCII_FILTER)
        return filters

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action, for the command palette."""
        for index, choice in enumerate(self._feed.view().choices):
            if choice.unavailable is None:
                title = f"Switch to {choice.name}"
                yield SystemCommand(title, choice.summary, partial(self.action_choose, index + 1))
        for command in COMMANDS:
            if command.action not in ("command_palette", "dismiss_banner"):
                yield SystemCommand(command.title, f"{command.help} ({command.shown_key})",
                                    partial(self.run_action, command.action))  # fmt: skip
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    def on_mount(self) -> None:
        """Start reading the source; a terminated app leaves the terminal as it found it."""
        assert self._main is not None
        self._painter = Painter(self._main, self._clock)
        self.theme_changed_signal.subscribe(self, self._recolour)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self._show(self._feed)

    async def on_unmount(self) -> None:
        """End the worker and the replay."""
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        for feed in {self._feed, self._live or self._feed}:
            if feed.link is not None:
                await feed.link.close()

    def _show(self, feed: Feed) -> None:
        assert self._painter is not None
        self._feed = feed
        if feed.link is not None and not feed.started:
            feed.started = True
            self.run_worker(self._read(feed), name="link", exit_on_error=False)
        self._painter.follow(feed)
        if feed.kind == "trace":
            self._select_file(feed, 0)
        self._start_analysis()

    async def _read(self, feed: Feed) -> None:
        assert feed.link is not None
        try:
            await feed.link.start()
            while (event := await feed.link.receive()) is not None:
                self._take(feed, event)
        except (DecodescopeError, OSError) as error:
            feed.session.set_state("failed")
            self._alarm(feed, banners.error(str(error)))

    def _take(self, feed: Feed, event: LinkEvent) -> None:
        now = self._clock.monotonic()
        if isinstance(event, WorkerDied):
            feed.session.died(event)
            feed.banner = banners.died(event, feed.view().fatal)
        else:
            feed.session.receive(event, now)
        match event:
            case TraceReady():
                feed.pending = feed.job_for(event, now)
                if event.requested and feed.kind == "live":
                    self._background.save_trace(Path(event.path), event.capture.variant)
                self._start_analysis()
            case Failure():
                feed.banner = banners.failure(event)
            case Hello(device="cpu") if isinstance(feed.source, LiveSource):
                if not feed.source.cpu_chosen:
                    feed.banner = banners.no_cuda(event, bool(bundled_recordings()))
        self._changed(feed)

    def _alarm(self, feed: Feed, banner: Banner) -> None:
        if feed.view().died is None:
            feed.banner = banner
        feed.session.note("error", banner.headline)
        self._changed(feed)

    def _changed(self, feed: Feed) -> None:
        if self._painter is not None:
            self._painter.changed(feed)

    def _start_analysis(self) -> None:
        if self._painter is not None and not self._painter.frozen:
            self._background.analyse(self._feed)

    def on_analyzed(self, message: Analyzed) -> None:
        """Show the window, and go on with the latest that came meanwhile."""
        self._background.analysed()
        message.feed.session.add_window(message.job.index, message.window)
        if message.feed.kind == "trace":
            message.feed.session.set_state("trace")
        self._changed(message.feed)
        self._start_analysis()

    def on_analysis_failed(self, message: AnalysisFailed) -> None:
        """Say so, and go on with the latest that came meanwhile."""
        self._background.analysed()
        feed = message.feed
        if feed.kind == "trace":
            feed.unreadable[message.job.index] = message.text
            if message.job.index == feed.view().current:
                feed.session.set_state("unreadable")
        if message.text:
            self._alarm(feed, banners.error(message.text))
        self._start_analysis()

    def _select_file(self, feed: Feed, index: int) -> None:
        feed.session.select(index)
        if index in feed.unreadable:
            feed.session.set_state("unreadable")
            feed.banner = banners.error(feed.unreadable[index])
        elif feed.session.window_of(index) is not None:
            feed.session.set_state("trace")
            feed.banner = None
        else:
            feed.session.set_state("reading")
            feed.banner = None
            feed.pending = feed.file_job(index, self._clock.monotonic())
            self._start_analysis()
        self._repaint()

    def _repaint(self) -> None:
        if self._painter is not None:
            self._painter.paint()

    def on_file_written(self, message: FileWritten) -> None:
        """Say where it is."""
        self.notify(str(message.path), title=f"{message.what.capitalize()} written")
        self._feed.session.note("info", f"{message.what} written to {message.path}")
        self._changed(self._feed)

    def on_file_not_written(self, message: FileNotWritten) -> None:
        """Say why."""
        self._alarm(self._feed, banners.error(f"{message.what} not written: {message.text}"))

    async def action_choose(self, number: int) -> None:
        """Switch to the variant, or the trace file, with this number."""
        view, feed = self._feed.view(), self._feed
        index = number - 1
        if not 0 <= index < len(view.choices):
            return
        choice = view.choices[index]
        if feed.kind == "trace":
            self._select_file(feed, index)
        elif feed.kind == "replay":
            self.notify("A recording cannot switch variants. Press o to open another one.")
        elif choice.unavailable is not None:
            self.notify(f"{choice.name}: {choice.unavailable}", severity="warning")
        elif feed.link is not None and index != view.current:
            await feed.link.send(SwitchVariant(choice.name))

    async def action_next_choice(self) -> None:
        """Switch to the next variant that can run, or the next trace file."""
        choices, current = self._feed.view().choices, self._feed.view().current
        for step in range(1, len(choices)):
            index = (current + step) % len(choices)
            if choices[index].unavailable is None:
                await self.action_choose(index + 1)
                return

    def action_freeze(self) -> None:
        """Let the view stand still, or go on."""
        assert self._painter is not None
        if self._painter.frozen:
            self._painter.thaw()
            self._start_analysis()
        else:
            self._painter.freeze()

    async def action_pause(self) -> None:
        """Pause or resume the worker, or the replay."""
        feed, view = self._feed, self._feed.view()
        if feed.link is None or view.died is not None:
            return
        if feed.kind == "replay":
            feed.replay_paused = not feed.replay_paused
            await feed.link.send(Pause() if feed.replay_paused else Resume())
            self._repaint()
        else:
            await feed.link.send(Resume() if view.state == "paused" else Pause())

    async def action_capture(self) -> None:
        """Have a window captured and written to a file; of a recording, the window shown."""
        feed, view = self._feed, self._feed.view()
        if feed.kind == "live" and feed.link is not None and view.died is None:
            await feed.link.send(CaptureTrace())
            self.notify("The next window will be written to the current folder.")
        elif feed.kind == "replay" and view.window is not None:
            self._background.save_trace(view.window.path, view.variant or "replay")
        else:
            self.notify("There is no run to capture a trace from.", severity="warning")

    async def action_restart(self) -> None:
        """Start the worker again, or the replay from its start; a live one only on a second R."""
        feed = self._feed
        if feed.link is None:
            return
        alive = feed.kind == "live" and feed.view().live_figures
        if alive and not self._restart_asked:
            self._restart_asked = True
            self.set_timer(3.0, self._forget_restart)
            self.notify("The worker is running. Press R again to restart it.", severity="warning")
            return
        feed.banner, feed.replay_paused = None, False
        feed.session.restarted()
        self._repaint()
        await feed.link.restart()

    def _forget_restart(self) -> None:
        self._restart_asked = False

    def action_dismiss_banner(self) -> None:
        """Hide the banner."""
        self._feed.banner = None
        self._repaint()

    def action_copy(self) -> None:
        """Copy the figures as text (OSC 52, so it works over SSH)."""
        from decodescope.tui.model.figures_text import figures_text

        assert self._painter is not None
        self.copy_to_clipboard(figures_text(*self._painter.shown()))
        self.notify("The figures are on the clipboard.")

    def action_save_svg(self) -> None:
        """Write the screen as SVG."""
        self._background.save_svg(self.export_screenshot(title="decodescope"))

    def action_help(self) -> None:
        """Show all keys and what the figures mean."""
        from decodescope.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self._inks()))

    def action_open(self) -> None:
        """Choose a recording or a trace to look at."""
        from decodescope.tui.screens.open import OpenScreen

        behind = self._live is not None and self._feed is not self._live
        self.push_screen(OpenScreen(bundled_recordings(), behind), self._opened)

    async def _opened(self, chosen: Path | str | None) -> None:
        if chosen is None:
            return
        left = self._feed
        if left is self._live:
            await self._hold(Pause())
        elif left.link is not None:
            await left.link.close()
        if isinstance(chosen, Path):
            self._show(open_feed(source_for(chosen)))
        elif self._live is not None:
            self._show(self._live)
            await self._hold(Resume())

    async def _hold(self, message: Pause | Resume) -> None:
        live = self._live
        if live is not None and live.link is not None and live.view().died is None:
            await live.link.send(message)

    def _inks(self) -> Inks:
        if not self._traits.color:
            return plain_inks()
        return themed_inks(self.theme_variables, self.current_theme.dark)

    def _brush(self) -> Brush:
        glyphs = UNICODE if self._traits.unicode else ASCII
        return Brush(self._inks(), glyphs, self._traits.unicode)

    def _recolour(self, theme: Theme) -> None:
        if self._main is not None:
            self._main.use(self._brush())
