"""The decodescope terminal app: pages over a live worker, a recording or trace files."""

import asyncio
import contextlib
import math
import signal
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import Theme
from textual.worker import WorkerFailed

from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.plain import plain_line, plain_text
from decodescope.analyzer.protocol import (
    CaptureTrace,
    ChangeSettings,
    Failure,
    Hello,
    Pause,
    Resume,
    Settings,
    StepOnce,
    SwitchVariant,
    TraceReady,
)
from decodescope.analyzer.recordings.recording import Mark
from decodescope.tui.background import AnalysisDone, Background, FileDone, NotRemembered, ReadSoFar
from decodescope.tui.commands import COMMANDS, REPLAY_COMMANDS, bindings, rekeyed
from decodescope.tui.comparisons import Comparisons
from decodescope.tui.library import FilesRead, Library, Listed, window_health
from decodescope.tui.link.base import LinkEvent, Seek, Speed
from decodescope.tui.link.comparison import ComparisonLink
from decodescope.tui.model.feed import Feed, Source, open_feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.keymap import read_keymap
from decodescope.tui.model.memory import Memory, Places
from decodescope.tui.model.replaying import last_of, neighbour, next_speed
from decodescope.tui.model.view import (
    COMPARISON_PAGE,
    LOG_PAGE,
    Clock,
    Moment,
    View,
    Window,
)
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.painter import Painter
from decodescope.tui.panels.details import DetailsPanel
from decodescope.tui.panels.files import PathPanel
from decodescope.tui.panels.messages import (
    AskComparison,
    Browse,
    Choose,
    Complete,
    GoTo,
    MarkFile,
    Narrow,
    OpenPaths,
    OpenTyped,
    Point,
    Sift,
    Turn,
)
from decodescope.tui.panels.panel import Brush, Panel
from decodescope.tui.screens.main import MainScreen
from decodescope.tui.style.glyphs import ASCII, UNICODE
from decodescope.tui.style.palette import DARK, LIGHT, Inks, themed_inks
from decodescope.tui.style.terminal import AsciiFilter, TerminalTraits, losable

if TYPE_CHECKING:
    from decodescope.analyzer.exporting import Target
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff
    from decodescope.tui.screens.export import Export, Of

RESTART_WITHIN_S = 3.0
LOG_INTERVAL_S = 1.0
# A sender may repeat its signal at once, as `timeout` does.
ONE_SIGNAL_S = 0.1


class DecodescopeApp(App[None]):
    """Reads the source's messages, has windows analysed in a thread, and acts on keys.

    A live worker stays open, paused, while a recording or a trace is shown.
    """

    TITLE = "decodescope"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings((*COMMANDS, *REPLAY_COMMANDS), "app"),
        *(Binding(page.key, f"page('{page.name}')", page.label, show=False) for page in PAGES),
    ]
    _main: MainScreen
    _painter: Painter

    def __init__(
        self,
        source: Source,
        traits: TerminalTraits | None = None,
        clock: Clock | None = None,
        folder: Path | None = None,
        page: str | None = None,
        places: Places | None = None,
        comparison: ComparisonLink | None = None,
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
        self._comparisons = Comparisons(
            self, self._clock, comparison or ComparisonLink(), self._comparison_changed
        )
        self._live: Feed | None = self._feed if self._feed.kind == "live" else None
        self._restart_until = -math.inf
        self._leaving = False
        self._asked: Settings | None = None
        self._ending_signals: list[signal.Signals] = []
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self._places = places
        self._keys: dict[str, str] = {}
        self._memory = Memory(places.state if places is not None else None)
        self._library = Library(self, self._focus, self._memory, self._clock, folder)
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

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action, for the command palette."""
        for index, choice in enumerate(self._feed.view().choices):
            if choice.unavailable is None:
                title = _no_markup(f"Switch to {choice.name}")
                summary = _no_markup(choice.summary)
                yield SystemCommand(title, summary, partial(self.action_choose, index))
        for page in PAGES:
            yield SystemCommand(f"Page: {page.label}", f"Show this page ({page.key})",
                                partial(self.action_page, page.name))  # fmt: skip
        focused = self._main.focused
        if isinstance(focused, Panel):
            for command in focused.commands:
                yield SystemCommand(command.title, f"{command.help} ({command.shown_key})",
                                    partial(self.run_action, command.action, focused))  # fmt: skip
        replay = REPLAY_COMMANDS if self._feed.kind == "replay" else ()
        for command in rekeyed((*COMMANDS, *replay), "app", self._keys):
            if command.action not in ("command_palette", "clear"):
                yield SystemCommand(command.title, f"{command.help} ({command.shown_key})",
                                    partial(self.run_action, command.action))  # fmt: skip
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

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
            self._select_file(0)
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

    def on_file_done(self, message: FileDone) -> None:
        """Report where the file is, or why it was not written."""
        what, path = message.what, message.path
        if path is not None:
            self.notify(str(path), title=f"{what.capitalize()} written")
            if what == "trace":
                self._library.captured(path)
            self._feed.note("info", f"{what} written to {path}")
        else:
            self._feed.alarm(f"{what} not written: {message.error}")
        self._painter.changed(self._feed)

    def action_page(self, name: str) -> None:
        """Show the page with this name."""
        if LOG_PAGE in (name, self._focus.page):
            self._feed.seen()
        self._focus.page = name
        if name == "files":
            self._library.refresh(self._live is not None and self._feed is not self._live)
        self._painter.paint()

    def on_turn(self, message: Turn) -> None:
        """A panel leads to another page."""
        self.action_page(message.page)

    def on_choose(self, message: Choose) -> None:
        """A panel selected something in the window it shows."""
        self._focus.choose(message.pick, self._painter.shown()[0])
        self._painter.paint()

    def on_narrow(self, message: Narrow) -> None:
        """A panel shows only what is inside a range, or everything again."""
        self._focus.narrow(message.path)
        self._painter.paint()

    async def on_ask_comparison(self, message: AskComparison) -> None:
        """The comparison page asks for something."""
        view = self._painter.shown()[0]
        if message.do != "file":
            await self._comparisons.obey(message, view, self._feed)
            return
        from decodescope.tui.screens.other_file import OtherFileScreen

        def chosen(path: Path | None) -> None:
            if path is not None:
                self._comparisons.read_file(path, view)

        self.push_screen(OtherFileScreen(), chosen)

    def _comparison_changed(self) -> None:
        self._painter.changed(self._feed)

    def on_sift(self, message: Sift) -> None:
        """A panel lists only some gaps."""
        self._focus.sift(message.gaps)
        self._painter.paint()

    def action_clear(self) -> None:
        """Hide the banner; without one, drop the selection; then show everything again."""
        if self._feed.view().banner is not None:
            self._feed.dismiss_banner()
        else:
            self._focus.clear(self._painter.shown()[0])
        self._painter.paint()

    def action_command_palette(self) -> None:
        """Search all actions."""
        from decodescope.tui.screens.lists import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_variants(self) -> None:
        """List the variants or the opened files, and switch to the chosen one."""
        from decodescope.tui.screens.variants import VariantsScreen

        view = self._feed.view()
        title = "Opened files" if view.kind == "trace" else "Variants"
        if len(view.possible) < 2:
            self.notify("There is nothing to switch to.", severity="warning")
        else:
            self.push_screen(VariantsScreen(title, view.choices, view.current), self._switched)

    async def _switched(self, index: int | None) -> None:
        if index is not None:
            await self.action_choose(index)

    async def action_choose(self, index: int) -> None:
        """Switch to the variant, or the trace file, at this place of the list."""
        view, feed = self._feed.view(), self._feed
        if not 0 <= index < len(view.choices):
            return
        choice = view.choices[index]
        if feed.kind == "trace":
            self._select_file(index)
        elif choice.unavailable is not None:
            self.notify(f"{choice.name}: {choice.unavailable}", severity="warning")
        elif view.playback is not None:
            await self._seek(last_of(view.playback, choice.name))
        elif feed.kind == "live" and index != view.current:
            await feed.send(SwitchVariant(choice.name))

    def action_freeze(self) -> None:
        """Freeze the view, or continue."""
        if self._painter.frozen:
            self._painter.thaw()
            self._start_analysis()
        else:
            self._painter.freeze()

    async def action_pause(self) -> None:
        """Pause or resume the worker, or the replay."""
        feed = self._feed
        playback = feed.view().playback
        if playback is None:
            await feed.send(Resume() if feed.view().state == "paused" else Pause())
        elif playback.state == "ended":
            await self.action_restart()
        else:
            await feed.send(Pause() if playback.state == "playing" else Resume())
            self._painter.paint()

    async def action_seek_mark(self, kind: Literal["window", "switch"], forward: bool) -> None:
        """Go to the next or previous window, or change of variant, of a replay."""
        if (playback := self._feed.view().playback) is not None:
            await self._seek(neighbour(playback, kind, forward))

    async def action_speed(self, steps: int) -> None:
        """Play faster or slower."""
        if (playback := self._feed.view().playback) is not None:
            await self._feed.send(Speed(next_speed(playback.speed, steps)))
            self._painter.paint()

    def action_seek_time(self) -> None:
        """Go to a time of a replay."""
        from decodescope.tui.screens.seek import SeekScreen

        if (playback := self._feed.view().playback) is not None:
            self.push_screen(SeekScreen(playback), self._seek_to)

    async def on_go_to(self, message: GoTo) -> None:
        """A panel leads to another moment of a replay."""
        await self._seek_to(message.t_ns)

    async def _seek_to(self, t_ns: int | None) -> None:
        if t_ns is not None:
            await self._feed.send(Seek(t_ns))
            self._painter.changed(self._feed)

    async def _seek(self, mark: Mark | None) -> None:
        await self._seek_to(mark.t_ns if mark is not None else None)

    def action_settings(self) -> None:
        """Change what the live worker decodes."""
        from decodescope.tui.screens.settings import SettingsScreen

        link = self._feed.link
        if link is None or link.settings is None:
            self.notify("Only a live worker has settings.", severity="warning")
            return
        # What was asked for and does not run was refused; it can be corrected.
        refused = self._asked if self._asked != link.settings else None
        hello = self._feed.view().hello
        self.push_screen(SettingsScreen(link.settings, refused, hello), self._change)

    async def _change(self, settings: Settings | None) -> None:
        feed, link = self._feed, self._feed.link
        if settings is None or link is None or feed.refused():
            self._painter.paint()
            return
        self._asked = settings
        await link.send(ChangeSettings(settings))
        if feed.view().died is not None:
            feed.restarted()
            self._painter.paint()
            await link.restart()

    async def action_step(self) -> None:
        """Run one decode step of a paused worker."""
        feed = self._feed
        if feed.kind != "live" or feed.view().state != "paused":
            self.notify("One step at a time: pause the worker first (p).", severity="warning")
        else:
            await feed.send(StepOnce())

    async def action_capture(self) -> None:
        """Capture a window and write it to a file; of a recording, write the window shown."""
        feed, view = self._feed, self._feed.view()
        if feed.kind == "live" and await feed.send(CaptureTrace()):
            self.notify("The next window will be written to the current folder.")
        elif feed.kind == "replay" and view.window is not None:
            self._background.save_trace(view.window.path, view.variant or "replay")
        else:
            self.notify("There is no run to capture a trace from.", severity="warning")

    async def action_restart(self) -> None:
        """Restart the worker or the replay; a running worker only if R is pressed twice."""
        feed = self._feed
        if feed.link is None or feed.refused():
            self._painter.paint()
            return
        now = self._clock.monotonic()
        view = feed.view()
        alive = feed.kind == "live" and view.live_figures and view.silent_s(now) is None
        if alive and now > self._restart_until:
            self._restart_until = now + RESTART_WITHIN_S
            self.notify("The worker is running. Press R again to restart it.", severity="warning")
            return
        feed.restarted()
        self._painter.paint()
        await feed.link.restart()

    def action_copy(self) -> None:
        """Copy the page as text (OSC 52, so it works over SSH)."""
        self.copy_to_clipboard(self._main.as_text())
        self.notify("The page is on the clipboard as text.")

    def action_save_svg(self) -> None:
        """Write the screen as SVG."""
        self._background.save_svg(self.export_screenshot(title="decodescope"))

    def action_export(self) -> None:
        """Choose what to write, and where to."""
        from decodescope.tui.screens.export import ExportScreen

        view = self._painter.shown()[0]
        window, folder = view.window, self._background.folder
        shown = (view.variant or view.kind).removesuffix(".gz").removesuffix(".json")
        stem = f"decodescope-{shown}-{self._background.timestamp()}"
        inputs = (*self._feed.paths(), *((window.path,) if window is not None else ()))
        result = view.comparison.result if view.page == COMPARISON_PAGE else None
        of: set[Of] = {"screen"}
        of |= {"window"} if window is not None else set()
        of |= {"comparison"} if result is not None else set()
        screen = ExportScreen(stem, folder, inputs, of)
        self.push_screen(screen, partial(self._export, window, result))

    def _export(
        self, window: Window | None, result: "Comparison | Diff | None", chosen: "Export | None"
    ) -> None:
        if chosen is None:
            return
        if chosen.path is None:
            self.action_copy()
        elif chosen.kind == "svg":
            svg = self.export_screenshot(title="decodescope")
            self._background.export_svg(svg, chosen.path)
        elif chosen.kind in ("json", "markdown") and result is not None:
            self._background.export_comparison(result, chosen.kind == "json", chosen.path)
        elif window is not None:
            target: Target = "csv"
            if chosen.kind == "chrome" or chosen.kind == "html":
                target = chosen.kind
            self._background.export(window.analysis, target, chosen.path, chosen.kind)

    def action_help(self) -> None:
        """Show all keys and what the figures mean."""
        from decodescope.tui.screens.help import HelpScreen

        focused = self._main.focused
        here = focused.commands if isinstance(focused, Panel) else ()
        self.push_screen(HelpScreen(self._inks(), here, rekeyed(COMMANDS, "app", self._keys)))

    def action_open(self) -> None:
        """Show the files, and type a path."""
        self.action_page("files")
        self._main.query_one(PathPanel).field.focus()

    def on_browse(self, message: Browse) -> None:
        """A path is typed."""
        self._library.browse(message.text)
        self._painter.paint()

    def on_read_so_far(self, message: ReadSoFar) -> None:
        """A part of a file was read."""
        if message.feed is None:
            self._library.read_so_far(message.share)
        else:
            message.feed.read_so_far(message.share)
        self._painter.paint()

    def on_complete(self, message: Complete) -> None:
        """The path that is typed is to be completed."""
        self._library.complete()
        self._painter.paint()

    def on_listed(self, message: Listed) -> None:
        """A folder was read."""
        self._library.listed(message)
        self._painter.paint()

    def on_point(self, message: Point) -> None:
        """The cursor is on another file."""
        self._library.point(message.path)
        self._painter.paint()

    def on_mark_file(self, message: MarkFile) -> None:
        """A file is to be opened together with others, or no longer."""
        self._library.mark(message.path)
        self._painter.paint()

    def on_open_typed(self, message: OpenTyped) -> None:
        """Read the file that is typed."""
        self._library.open_typed(message.text)
        self._painter.paint()

    def on_open_paths(self, message: OpenPaths) -> None:
        """Read the files that were chosen."""
        self._library.open(message.path)
        self._painter.paint()

    async def on_files_read(self, message: FilesRead) -> None:
        """Show what was opened; what cannot be read leaves everything as it is, and says why."""
        if self._library.is_wanted(message):
            if message.source is None:
                self._feed.note("error", message.error)
            else:
                feed = open_feed(message.source, self._clock)
                await self._show_instead(feed, message.window, message.index)
        self._painter.paint()

    async def on_back_to_live(self) -> None:
        """Show the worker again."""
        if self._live is not None and self._feed is not self._live:
            await self._show_instead(self._live)
            await self._live.send(Resume())

    async def _show_instead(self, feed: Feed, window: Window | None = None, index: int = 0) -> None:
        """Show `feed` in place of what is shown; `window` is of its choice at `index`."""
        if self._feed is self._live:
            await self._feed.send(Pause())
        elif self._feed.link is not None:
            await self._feed.link.close()
        if window is not None:
            feed.select_file(index, window.at)
            feed.started = True
            if (job := feed.pending) is not None:
                feed.pending = None
                feed.analysed(job, window)
            if index < len(feed.paths()):
                self._library.health(window.path, window_health(window))
        if self._focus.page == "files":
            self._focus.page = PAGES[0].name
        self._show(feed)

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
                self._keys = read_keymap(self._places.keymap, all_actions())
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
    panels = [kind for page in PAGES for kind in page.panels]
    kinds: list[type[DOMNode]] = [DecodescopeApp, DetailsPanel, *panels]
    found = [one for kind in kinds for one in kind.BINDINGS if isinstance(one, Binding)]
    actions: dict[str, str] = {}
    for one in found:
        if one.id is not None:
            actions.setdefault(one.id, one.key)
    return actions


def _no_markup(text: str) -> str:
    """`text` for the command palette, which reads every text as markup."""
    return plain_line(text).replace("[", r"\[")
