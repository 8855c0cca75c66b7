"""Actions on files: find and open them, name their model, export what is shown."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.io.files import write_atomically, write_json, write_new_file
from decodescope.analyzer.protocol.messages import Pause, Resume
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.tui.actions.pages import PageController
from decodescope.tui.actions.run import RunController
from decodescope.tui.feeds import Feeds
from decodescope.tui.library import FilesRead, window_health
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.notices import RECORDED_ELSEWHERE
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.view import COMPARISON_PAGE, Window
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.messages import AskFile

if TYPE_CHECKING:
    from decodescope.tui.screens.export import Kind, Of


class FileController:
    """Files are read and written in the background; a bad one changes nothing that is shown."""

    def __init__(self, feeds: Feeds, pages: PageController, runs: RunController) -> None:
        self._feeds, self._runs = feeds, runs
        self._app, self._painter, self._library = feeds.app, feeds.painter, feeds.library
        self._pages = pages
        # Whether the live worker decoded before a file was shown instead.
        self._live_ran = True

    def action_save_svg(self) -> None:
        data, stem = self._picture(), f"decodescope-{self._feeds.timestamp()}"
        write = partial(write_new_file, self._feeds.folder, stem, ".svg")
        self._feeds.write("screenshot", lambda: write(lambda file: file.write(data)))

    def action_export(self) -> None:
        from decodescope.tui.screens.export import ExportScreen

        view = self._painter.shown()
        window = view.window.whole if view.window is not None else None
        name = (view.variant or view.kind).removesuffix(".gz").removesuffix(".json")
        stem = f"decodescope-{name}-{self._feeds.timestamp()}"
        windows = (window.path,) if window is not None else ()
        inputs = (*self._feeds.shown.source.paths, *windows)
        result = view.comparison.result if view.page == COMPARISON_PAGE else None
        of: set[Of] = {"screen"}
        of |= {"window"} if window is not None else set()
        of |= {"comparison"} if result is not None else set()
        screen = ExportScreen(stem, self._feeds.folder, inputs, of)
        self._app.push_screen(screen, partial(self._export, window, result))

    def _export(
        self,
        window: Window | None,
        result: Comparison | Diff | None,
        chosen: "tuple[Kind, Path | None] | None",
    ) -> None:
        if chosen is None:
            return
        kind, path = chosen
        if path is None:
            self._pages.action_copy()
            return
        picture = self._picture() if kind == "svg" else b""

        def write() -> None:
            if kind == "svg":
                write_atomically(path, picture)
            elif kind == "json":
                write_json(path, result)
            elif kind == "markdown":
                from decodescope.analyzer.views.comparison_table import comparison_markdown

                assert result is not None
                write_atomically(path, comparison_markdown(result).encode(errors="replace"))
            else:
                from decodescope.analyzer.exporting import export_analysis

                assert window is not None
                target = kind if kind == "chrome" or kind == "html" else "csv"
                export_analysis(window.analysis, target, path, kind, window.ranks)

        self._feeds.write("export", write, path)

    def _picture(self) -> bytes:
        return self._app.export_screenshot(title="decodescope").encode()

    def action_model(self) -> None:
        from decodescope.tui.screens.naming import ModelScreen

        window, feed = self._painter.shown().window, self._feeds.shown
        if feed.kind == "live":
            self._runs.action_settings()
        elif window is None:
            self._app.notify("Nothing is analysed yet whose model could be named.")
        else:
            screen = ModelScreen(window.whole.analysis, feed.source.given or Given())

            def named(given: Given | None) -> None:
                self._feeds.name_model(given)
                if given is not None and window.step is not None:
                    self._pages.choose_step(window.step)

            self._app.push_screen(screen, named)

    async def action_open(self) -> None:
        from decodescope.tui.panels.files import PathPanel

        self._pages.action_page("files")
        await self._painter.screen.mounted()
        self._painter.screen.query_one(PathPanel).field.focus()

    async def answer(self, asked: AskFile) -> None:
        library = self._library
        match asked.do:
            case "back_to_live":
                await self._back_to_live()
                return
            case "browse":
                library.browse(asked.text)
            case "point":
                library.point(asked.path)
            case "mark":
                library.mark(asked.path)
            case "open_typed":
                library.open_typed(asked.text, self._opened)
            case "open":
                library.open(asked.path, self._opened)
        self._painter.paint()

    async def _opened(self, read: FilesRead) -> None:
        if read.source is None:
            self._feeds.shown.note("error", read.error)
        else:
            self._feeds.remember_opened(read.paths)
            feed = open_feed(read.source, self._feeds.clock)
            await self.show_instead(feed, read.window, read.index)
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
        if self._feeds.live is not None and feed.kind == "replay":
            feed.set(banner=RECORDED_ELSEWHERE)
        if self._feeds.focus.page == "files":
            self._feeds.focus.page = PAGES[0].name
        self._feeds.show(feed)
