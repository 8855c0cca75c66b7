"""Actions on files: find and open them, export what is shown."""

from functools import partial
from typing import TYPE_CHECKING

from textual.app import App

from decodescope.analyzer.protocol.messages import Pause, Resume
from decodescope.tui.actions.pages import PageController
from decodescope.tui.background import Background, FileDone, ReadSoFar
from decodescope.tui.feeds import Feeds
from decodescope.tui.library import FilesRead, Library, Listed, window_health
from decodescope.tui.model.feed import Feed, open_feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.view import COMPARISON_PAGE, AppClock, Window
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.painter import Painter
from decodescope.tui.panels.messages import (
    BackToLive,
    Browse,
    Complete,
    FileRequest,
    MarkFile,
    OpenPaths,
    OpenTyped,
    Point,
)

if TYPE_CHECKING:
    from decodescope.analyzer.exporting import Target
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff
    from decodescope.tui.screens.export import Export, Of


class FileController:
    """Files are read and written in the background; a bad one changes nothing that is shown."""

    def __init__(
        self,
        app: App[None],
        feeds: Feeds,
        focus: Focus,
        painter: Painter,
        library: Library,
        background: Background,
        pages: PageController,
        clock: AppClock,
    ) -> None:
        self._app = app
        self._feeds = feeds
        self._focus = focus
        self._painter = painter
        self._library = library
        self._background = background
        self._pages = pages
        self._clock = clock
        # Whether the live worker decoded before a file was shown instead.
        self._live_ran = True

    def save_svg(self) -> None:
        """Write the screen as SVG."""
        self._background.save_svg(self._app.export_screenshot(title="decodescope"))

    def export(self) -> None:
        """Choose what to write, and where to."""
        from decodescope.tui.screens.export import ExportScreen

        view = self._painter.shown()[0]
        window, folder = view.window, self._background.folder
        name = (view.variant or view.kind).removesuffix(".gz").removesuffix(".json")
        stem = f"decodescope-{name}-{self._background.timestamp()}"
        windows = (window.path,) if window is not None else ()
        inputs = (*self._feeds.shown.source.paths, *windows)
        result = view.comparison.result if view.page == COMPARISON_PAGE else None
        of: set[Of] = {"screen"}
        of |= {"window"} if window is not None else set()
        of |= {"comparison"} if result is not None else set()
        screen = ExportScreen(stem, folder, inputs, of)
        self._app.push_screen(screen, partial(self._export, window, result))

    def _export(
        self, window: Window | None, result: "Comparison | Diff | None", chosen: "Export | None"
    ) -> None:
        if chosen is None:
            return
        if chosen.path is None:
            self._pages.copy()
        elif chosen.kind == "svg":
            svg = self._app.export_screenshot(title="decodescope")
            self._background.export_svg(svg, chosen.path)
        elif chosen.kind in ("json", "markdown") and result is not None:
            self._background.export_comparison(result, chosen.kind == "json", chosen.path)
        elif window is not None:
            target: Target = "csv"
            if chosen.kind == "chrome" or chosen.kind == "html":
                target = chosen.kind
            self._background.export(window, target, chosen.path, chosen.kind)

    async def open(self) -> None:
        """Show the files, and type a path."""
        from decodescope.tui.panels.files import PathPanel

        self._pages.show("files")
        await self._painter.screen.mounted()
        self._painter.screen.query_one(PathPanel).field.focus()

    async def answer(self, request: FileRequest) -> None:
        """Find or open files as a panel asks, or show the worker again."""
        match request:
            case BackToLive():
                await self._back_to_live()
                return
            case Browse(text):
                self._library.browse(text)
            case Complete():
                self._library.complete()
            case Point(path):
                self._library.point(path)
            case MarkFile(path):
                self._library.mark(path)
            case OpenTyped(text):
                self._library.open_typed(text)
            case OpenPaths(path):
                self._library.open(path)
        self._painter.paint()

    def written(self, message: FileDone) -> None:
        """Report where the file is, or why it was not written."""
        what, path, feed = message.what, message.path, self._feeds.shown
        if path is not None:
            self._app.notify(str(path), title=f"{what.capitalize()} written")
            if what == "trace":
                self._library.captured(path)
            feed.note("info", f"{what} written to {path}")
        else:
            feed.alarm(f"{what} not written: {message.error}")
        self._painter.changed(feed)

    def read_so_far(self, message: ReadSoFar) -> None:
        """Show how much of a file was read."""
        if message.feed is None:
            self._library.read_so_far(message.share)
        else:
            message.feed.read_so_far(message.share)
        self._painter.paint()

    def listed(self, message: Listed) -> None:
        """Show the entries of a folder."""
        self._library.listed(message)
        self._painter.paint()

    async def read(self, message: FilesRead) -> None:
        """Show what was opened; what cannot be read leaves everything as it is, and says why."""
        if self._library.is_wanted(message):
            if message.source is None:
                self._feeds.shown.note("error", message.error)
            else:
                feed = open_feed(message.source, self._clock)
                await self.show_instead(feed, message.window, message.index)
        self._painter.paint()

    async def _back_to_live(self) -> None:
        live = self._feeds.live
        if live is not None and self._feeds.shown is not live:
            await self.show_instead(live)
            if self._live_ran:
                await live.send(Resume())

    async def show_instead(self, feed: Feed, window: Window | None = None, index: int = 0) -> None:
        """Show `feed` in place of what is shown; `window` is of its choice at `index`."""
        shown = self._feeds.shown
        if shown is self._feeds.live:
            self._live_ran = shown.goes_on
            await shown.send(Pause())
        elif shown.link is not None:
            await shown.link.close()
        if window is not None:
            feed.select_file(index, window.at)
            feed.started = True
            if (job := feed.windows.take()) is not None:
                feed.analysed(job, window)
            if index < len(feed.source.paths):
                self._library.health(window.path, window_health(window))
        if self._focus.page == "files":
            self._focus.page = PAGES[0].name
        self._feeds.show(feed)
