"""The decodescope terminal app: pages over a live worker, a recording or trace files."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual import events
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import Theme
from textual.worker import WorkerFailed

from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.protocol.messages import (
    Failure,
    Hello,
    Settings,
    TraceReady,
)
from decodescope.analyzer.text.plain import plain_line, plain_text
from decodescope.tui.actions.files import FileActions
from decodescope.tui.background import AnalysisDone, Background, NotRemembered
from decodescope.tui.commands import COMMANDS, REPLAY_COMMANDS, bindings
from decodescope.tui.comparisons import Comparisons
from decodescope.tui.library import Library, window_health
from decodescope.tui.link.base import LinkEvent
from decodescope.tui.model.feed import Feed, open_feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.sources import Asked, LiveSource, Source
from decodescope.tui.model.user_files import Memory, Places, read_keymap
from decodescope.tui.model.view import Clock, Moment, View
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.painter import Painter
from decodescope.tui.panels.details import DetailsPanel
from decodescope.tui.panels.messages import (
    AskComparison,
)
from decodescope.tui.panels.sheet import Brush
from decodescope.tui.previews import read_preview, recording_of
from decodescope.tui.screens.main import MainScreen
from decodescope.tui.style.palette import ASCII, DARK, LIGHT, UNICODE, Inks, themed_inks
from decodescope.tui.style.terminal import AsciiFilter, TerminalTraits, losable

if TYPE_CHECKING:
    from decodescope.tui.link.comparison import ComparisonLink

LOG_INTERVAL_S = 1.0
# A sender may repeat its signal at once, as `timeout` does.
ONE_SIGNAL_S = 0.1


class DecodescopeApp(FileActions):
    """Reads the source's messages, has windows analysed in a thread, and acts on keys.

    A live worker stays open, paused, while a recording or a trace is shown.
    """

    TITLE = "decodescope"
    # On a small screen a notification takes its text's rows, and no more.
    CSS = "Toast { padding: 0 1; margin-top: 0; max-width: 80%; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings((*COMMANDS, *REPLAY_COMMANDS), "app"),
        *(Binding(page.key, f"page('{page.name}')", page.label, show=False) for page in PAGES),
    ]

    def __init__(
        self,
        source: Source,
        traits: TerminalTraits | None = None,
        clock: Clock | None = None,
        folder: Path | None = None,
        page: str | None = None,
        places: Places | None = None,
        comparison: "ComparisonLink | None" = None,
    ) -> None:
        """`folder` is where traces and screenshots are written, None for the current one. `page` is
        the name of the page to begin with, None for the first. `places` are the user's files
        of what is remembered and of keys; None remembers nothing. `comparison` measures variants
        in turn."""
        self._traits = traits or TerminalTraits()
        self._terminal_filters: list[LineFilter] = [] if self._traits.color else [NoColor()]
        if not self._traits.unicode:
            self._terminal_filters.append(AsciiFilter())
        super().__init__(ansi_color=None if self._traits.color else True)
        self._clock = clock or Clock()
        self._background = Background(self, self._clock, folder)
        self._feed = open_feed(source, self._clock)
        self._focus = Focus(page or PAGES[0].name)
        self._comparisons = Comparisons(self, self._clock, self._comparison_changed, comparison)
        self._live: Feed | None = self._feed if self._feed.kind == "live" else None
        self._leaving = False
        self._asked: Settings | None = None
        self._ending_signals: list[signal.Signals] = []
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self._places = places
        self._keys: dict[str, str] = {}
        self._memory = Memory(places.state if places is not None else None)
        self._library = Library(self, self._focus, self._memory, self._clock, folder, source)
        remembered = self._memory.remembered.theme or ""
        kept = remembered if remembered in self.available_themes else DARK.name
        self.theme = kept if self._traits.color else "ansi-dark"

    @property
    def fatal_failure(self) -> Failure | None:
        """Why the live worker gave up, None if it did not or was restarted since."""
        return self._live.view().fatal if self._live is not None else None

    @property
    def crash(self) -> BaseException | None:
        """The error that ended the app, None if none did."""
        error = self._exception
        return error.error if isinstance(error, WorkerFailed) else error

    def view(self) -> View:
        """What the source reported so far."""
        return self._feed.view()

    @property
    def busy(self) -> bool:
        """Whether what the page shows is still being read."""
        return self._focus.page == "files" and self._library.busy

    def paint(self) -> None:
        """Paint now, without waiting for the next moment to paint."""
        self._painter.paint()

    def _fatal_error(self) -> None:
        """End without Textual's traceback: whoever runs the app reports `crash`."""
        self._close_messages_no_wait()

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver, in a form that outlives the terminal."""
        return losable(super().get_driver_class())

    def get_default_screen(self) -> Screen[None]:
        """The main screen."""
        view = self._focus.applied(self._feed.view())
        self._main = MainScreen(self._brush(), view, Moment(self._feed.now()), PAGES)
        return self._main

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, and ours for terminals without colour or without Unicode."""
        return [*super().get_line_filters(), *self._terminal_filters]

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a message; names in it are plain text, so none is markup."""
        super().notify(plain_text(message), title=plain_line(title), severity=severity,
                       timeout=timeout, markup=markup)  # fmt: skip

    async def on_event(self, event: events.Event) -> None:
        """Whatever answers a key is painted soon."""
        painter = getattr(self, "_painter", None)
        if painter is not None and isinstance(event, events.Key | events.MouseDown):
            painter.acted()
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

    def on_mount(self) -> None:
        """Start reading the source."""
        self._painter = Painter(self._main, self._clock, self._feed, self._focus, self._comparisons)
        self.theme_changed_signal.subscribe(self, self._recolour)
        self._read_keymap()
        self.set_interval(LOG_INTERVAL_S, self._read_log)
        self._show(self._feed)
        self.action_page(self._focus.page)
        # Neither the worker nor the first paint waits for it.
        self.call_after_refresh(self._begin_preview, self._feed)

    async def on_unmount(self) -> None:
        """End the worker, the replay and the comparison, also after a crash."""
        await self._close_links()

    async def _close_links(self) -> None:
        for feed in {self._feed, self._live or self._feed}:
            if feed.link is not None:
                await feed.link.close()
        await self._comparisons.close()

    def _end_by(self, number: int) -> None:
        """Exit with 128 + signal; another one, a moment later, kills the process. SIGHUP does not:
        the kernel and the shell both send it when a terminal is closed."""
        if self._leaving:
            return
        self._leave(128 + number)
        loop = asyncio.get_running_loop()
        for one in self._ending_signals:
            if one != signal.SIGHUP:
                loop.call_later(ONE_SIGNAL_S, signal.signal, one, signal.SIG_DFL)

    async def action_quit(self) -> None:
        """End the worker, and leave."""
        if not self._leaving:
            self._leave(0)

    def _leave(self, code: int) -> None:
        """Say that the worker is being ended, and exit with `code` when it is."""
        self._leaving = True
        self._feed.ending()
        if (painter := getattr(self, "_painter", None)) is not None:
            painter.paint()
        self.run_worker(self._close_and_exit(code), name="leaving")

    async def _close_and_exit(self, code: int) -> None:
        await self._close_links()
        self.exit(return_code=code)

    def _show(self, feed: Feed) -> None:
        self._feed = feed
        self._focus.forget()
        if feed.link is not None and not feed.started:
            feed.started = True
            self.run_worker(self._read(feed), name="link")
        self._painter.follow(feed)
        if feed.kind == "trace" and not feed.started:
            feed.started = True
            feed.select_first(self._feed.now())
        self._start_analysis()

    async def _read(self, feed: Feed) -> None:
        assert feed.link is not None
        try:
            await feed.link.start()
            while (event := await feed.link.receive()) is not None:
                self._receive(feed, event)
        except (DecodescopeError, OSError) as error:
            feed.cannot_start(str(error))
            self._painter.changed(feed)

    def _begin_preview(self, feed: Feed) -> None:
        if isinstance(feed.source, LiveSource) and feed.source.asked is not None:
            self.run_worker(self._preview(feed, feed.source.asked), name="preview")

    async def _preview(self, feed: Feed, asked: Asked) -> None:
        path = await asyncio.to_thread(recording_of, asked)
        preview = await read_preview(path, self._clock) if path is not None else None
        if preview is not None:
            feed.preview(preview)
            self._painter.changed(feed)

    def _read_log(self) -> None:
        if self._live is not None and self._live.read_printed():
            self._painter.changed(self._live)

    def _receive(self, feed: Feed, event: LinkEvent) -> None:
        feed.receive(event, feed.now())
        if feed.kind == "live" and isinstance(event, Hello) and self._asked and event.settings:
            # Only what a worker accepted is worth remembering.
            kept = msgspec.structs.replace(event.settings, prompt=None, prompt_ids=None)
            self._background.remember(self._memory, settings=kept)
        if isinstance(event, TraceReady) and event.requested and feed.kind == "live":
            self._background.save_trace(Path(event.path), event.capture.variant)
        self._start_analysis()
        self._painter.changed(feed)

    def _start_analysis(self) -> None:
        if not self._painter.frozen:
            self._background.analyse(self._feed)

    def on_analysis_done(self, message: AnalysisDone) -> None:
        """Show the window or the error, and start the analysis that became due, if any."""
        self._background.analysed()
        if message.window is not None:
            message.feed.analysed(message.job, message.window)
        else:
            message.feed.not_analysed(message.job, message.error)
        if message.feed.kind == "trace" and len(message.job.paths) == 1:
            found = f"unreadable: {message.error}"
            health = found if message.window is None else window_health(message.window)
            self._library.health(message.job.paths[0], health)
        self._painter.changed(message.feed)
        self._start_analysis()

    def _select_file(self, index: int) -> None:
        self._feed.select_file(index, self._feed.now())
        self._start_analysis()
        self._painter.paint()

    async def on_ask_comparison(self, message: AskComparison) -> None:
        """The comparison page asks for something."""
        view, feed = self._painter.shown()[0], self._feed
        if message.do != "file":
            await self._comparisons.obey(message, view, feed)
            return
        from decodescope.tui.screens.other_file import OtherFileScreen

        def chosen(path: Path | None) -> None:
            if path is not None:
                self._comparisons.read_file(path, view, feed)

        self.push_screen(OtherFileScreen(), chosen)

    def _comparison_changed(self) -> None:
        self._painter.changed(self._feed)

    def _inks(self) -> Inks:
        if not self._traits.color:
            return Inks()
        few = self._traits.few_colors
        return themed_inks(self.theme_variables, self.current_theme.dark, few)

    def _brush(self) -> Brush:
        return Brush(self._inks(), UNICODE if self._traits.unicode else ASCII)

    def _recolour(self, theme: Theme) -> None:
        self._main.use(self._brush())
        if self._traits.color:
            self._background.remember(self._memory, theme=theme.name)

    def _read_keymap(self) -> None:
        problem = self._memory.problem
        try:
            if self._places is not None:
                self._keys = read_keymap(self._places.keymap, all_actions)
                self.set_keymap(self._keys)
                self._main.use_keys(self._keys)
        except InputError as error:
            self._feed.note("warning", str(error))
        if problem:
            self._feed.note("warning", problem)

    def on_not_remembered(self, message: NotRemembered) -> None:
        """Log why; the app goes on without."""
        self._feed.note("warning", message.problem)
        self._painter.changed(self._feed)


def all_actions() -> dict[str, str]:
    """Every action that a keymap can name, with its own keys."""
    panels = [kind for page in PAGES for kind in page.panels()]
    kinds: list[type[DOMNode]] = [DecodescopeApp, DetailsPanel, *panels]
    actions: dict[str, str] = {}
    for binding in (binding for kind in kinds for binding in kind.BINDINGS):
        if isinstance(binding, Binding) and binding.id is not None:
            actions.setdefault(binding.id, binding.key)
    return actions
