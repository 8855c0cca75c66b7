"""Actions on files: find and open them, export what is shown."""

from functools import partial
from typing import TYPE_CHECKING

from decodescope.analyzer.protocol.messages import Pause, Resume
from decodescope.tui.actions.look import LookActions
from decodescope.tui.background import FileDone, ReadSoFar
from decodescope.tui.library import FilesRead, Listed, window_health
from decodescope.tui.model.feed import Feed, open_feed
from decodescope.tui.model.view import COMPARISON_PAGE, Window
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.files import PathPanel
from decodescope.tui.panels.messages import (
    Browse,
    Complete,
    MarkFile,
    OpenPaths,
    OpenTyped,
    Point,
)

if TYPE_CHECKING:
    from decodescope.analyzer.exporting import Target
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff
    from decodescope.tui.screens.export import Export, Of


class FileActions(LookActions):
    """Files are read and written in the background; a bad one changes nothing that is shown."""

    # Whether the live worker decoded before a file was shown instead.
    _ran = True

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
        inputs = (*self._feed.source.paths, *((window.path,) if window is not None else ()))
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
            self._background.export(window, target, chosen.path, chosen.kind)

    async def action_open(self) -> None:
        """Show the files, and type a path."""
        self.action_page("files")
        await self._main.mounted()
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
            if self._ran:
                await self._live.send(Resume())

    async def _show_instead(self, feed: Feed, window: Window | None = None, index: int = 0) -> None:
        """Show `feed` in place of what is shown; `window` is of its choice at `index`."""
        if self._feed is self._live:
            self._ran = self._feed.goes_on
            await self._feed.send(Pause())
        elif self._feed.link is not None:
            await self._feed.link.close()
        if window is not None:
            feed.select_file(index, window.at)
            feed.started = True
            if (job := feed.windows.take()) is not None:
                feed.analysed(job, window)
            if index < len(feed.source.paths):
                self._library.health(window.path, window_health(window))
        if self._focus.page == "files":
            self._focus.page = PAGES[0].name
        self._show(feed)
