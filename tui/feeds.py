"""The feeds of the app: the one that is shown, and the live worker's. Their events are read, and
their windows analysed."""

import asyncio
from pathlib import Path

import msgspec
from textual.app import App

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.messages import Hello, Settings, TraceReady
from decodescope.tui.background import AnalysisDone, Background
from decodescope.tui.library import Library, window_health
from decodescope.tui.link.base import LinkEvent
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.sources import Asked, LiveSource
from decodescope.tui.model.user_files import Memory
from decodescope.tui.model.view import AppClock, View
from decodescope.tui.painter import Painter

LOG_INTERVAL_S = 1.0


class Feeds:
    """`shown` is the feed on the screen, `live` that of the live worker, None without one: it stays
    open, paused, while a recording or a trace is shown. `asked` are the settings that the user
    asked the worker for last."""

    def __init__(
        self,
        app: App[None],
        first: Feed,
        clock: AppClock,
        focus: Focus,
        painter: Painter,
        background: Background,
        library: Library,
        memory: Memory,
    ) -> None:
        self.shown = first
        self.live = first if first.kind == "live" else None
        self.asked: Settings | None = None
        self._app = app
        self._clock = clock
        self._focus = focus
        self._painter = painter
        self._background = background
        self._library = library
        self._memory = memory

    def begin(self) -> None:
        """Start reading the first feed."""
        self._app.set_interval(LOG_INTERVAL_S, self._read_log)
        self.show(self.shown)
        # Neither the worker nor the first paint waits for it.
        self._app.call_after_refresh(self._begin_preview, self.shown)

    def view(self) -> View:
        """The view of the source that is shown."""
        return self.shown.view()

    def show(self, feed: Feed) -> None:
        """Show `feed` in place of what is shown."""
        self.shown = feed
        self._focus.forget()
        if feed.link is not None and not feed.started:
            feed.started = True
            self._app.run_worker(self._read(feed), name="link")
        self._painter.follow(feed)
        if feed.kind == "trace" and not feed.started:
            feed.started = True
            feed.select_first(feed.now())
        self.analyse()

    def select_file(self, index: int) -> None:
        """Show the trace file at `index`."""
        self.shown.select_file(index, self.shown.now())
        self.analyse()
        self._painter.paint()

    def analyse(self) -> None:
        """Analyse the latest window, unless the view is frozen."""
        if not self._painter.frozen:
            self._background.analyse(self.shown)

    def analysis_done(self, message: AnalysisDone) -> None:
        """Show the window or the error, and start the analysis that became due, if any."""
        feed, job, window = message.feed, message.job, message.window
        self._background.analysed()
        if window is not None:
            feed.analysed(job, window)
        else:
            feed.not_analysed(job, message.error)
        if feed.kind == "trace" and len(job.paths) == 1:
            unreadable = f"unreadable: {message.error}"
            health = unreadable if window is None else window_health(window)
            self._library.health(job.paths[0], health)
        self._painter.changed(feed)
        self.analyse()

    def warn(self, text: str) -> None:
        """Add a warning to the log of what is shown."""
        self.shown.note("warning", text)
        self._painter.changed(self.shown)

    async def close(self) -> None:
        """End the worker and the replay."""
        for feed in {self.shown, self.live or self.shown}:
            if feed.link is not None:
                await feed.link.close()

    async def _read(self, feed: Feed) -> None:
        assert feed.link is not None
        try:
            await feed.link.start()
            while (event := await feed.link.receive()) is not None:
                self._receive(feed, event)
        except (DecodescopeError, OSError) as error:
            feed.cannot_start(str(error))
            self._painter.changed(feed)

    def _receive(self, feed: Feed, event: LinkEvent) -> None:
        feed.receive(event, feed.now())
        if feed.kind == "live" and isinstance(event, Hello) and self.asked and event.settings:
            # Only what a worker accepted is worth remembering.
            kept = msgspec.structs.replace(event.settings, prompt=None, prompt_ids=None)
            self._background.remember(self._memory, settings=kept)
        if isinstance(event, TraceReady) and event.requested and feed.kind == "live":
            self._background.save_trace(Path(event.path), event.capture.variant)
        self.analyse()
        self._painter.changed(feed)

    def _read_log(self) -> None:
        if self.live is not None and self.live.read_printed():
            self._painter.changed(self.live)

    def _begin_preview(self, feed: Feed) -> None:
        if isinstance(feed.source, LiveSource) and feed.source.asked is not None:
            self._app.run_worker(self._preview(feed, feed.source.asked), name="preview")

    async def _preview(self, feed: Feed, asked: Asked) -> None:
        from decodescope.tui.previews import read_preview, recording_of

        path = await asyncio.to_thread(recording_of, asked)
        preview = await read_preview(path, self._clock) if path is not None else None
        if preview is not None:
            feed.preview(preview)
            self._painter.changed(feed)
