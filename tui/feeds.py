"""The feeds of the app: the one that is shown, and the live worker's. Their events are read, their
windows analysed, and what is shown is written to files."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from textual.app import App

from decodescope.analyzer.errors import DecodescopeError, known_error
from decodescope.analyzer.io.files import write_new_file
from decodescope.analyzer.protocol.attach_messages import WindowTaken
from decodescope.analyzer.protocol.messages import Hello, Settings, TraceReady
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.writer import packed_trace
from decodescope.analyzer.reports.user_facts import Given
from decodescope.tui.background import analyse_files, read_preview, recording_of
from decodescope.tui.library import Library, window_health
from decodescope.tui.link.base import LinkEvent
from decodescope.tui.model.attached_feed import AttachedFeed
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.shelf import FileEntry
from decodescope.tui.model.sources import LiveSource
from decodescope.tui.model.user_files import Memory
from decodescope.tui.model.view import COMPARISON_PAGE, AppClock, View
from decodescope.tui.model.windows import Job
from decodescope.tui.painter import Painter

LOG_INTERVAL_S = 1.0
_IN_FILE_NAMES = str.maketrans("/: ", "_--")


@dataclass(eq=False)
class Feeds:
    """`shown` is the feed on the screen, `live` that of the live worker, which is paused while a
    recording or a trace is shown, or of what the app is attached to; None without one. `asked` are
    the settings that the user asked the worker for last. Files go to `folder`."""

    app: App[None]
    shown: Feed
    clock: AppClock
    focus: Focus
    painter: Painter
    library: Library
    memory: Memory
    folder: Path
    live: Feed | None = field(init=False)
    asked: Settings | None = None
    _analysing: bool = False

    def __post_init__(self) -> None:
        stays = self.shown.kind == "live" or self.shown.view().is_attached
        self.live = self.shown if stays else None

    def begin(self) -> None:
        self.app.set_interval(LOG_INTERVAL_S, self._read_log)
        self.show(self.shown)
        # Neither the worker nor the first paint waits for it.
        preview = partial(self._preview, self.shown)
        # Without a description, Textual takes the text of all that the feed holds.
        self.app.call_after_refresh(
            self.app.run_worker, preview, name="preview", description="preview"
        )

    def view(self) -> View:
        return self.shown.view()

    def behind(self) -> FileEntry | None:
        """The worker, or what the app is attached to, while a file is shown instead."""
        if self.live is None or self.shown is self.live:
            return None
        if self.live.kind == "live":
            return FileEntry(Path("the live worker"), "live", "worker", "paused")
        return FileEntry(Path("the windows of this session"), "live", "attached", "")

    def show(self, feed: Feed) -> None:
        self.shown = feed
        self.focus.forget()
        if self.focus.page == COMPARISON_PAGE:
            self.library.look_beside(feed.source.paths)
        if feed.link is not None and not feed.started:
            feed.started = True
            self.app.run_worker(self._read(feed), name="link")
        self.painter.follow(feed)
        if feed.kind == "trace" and not feed.started:
            feed.started = True
            feed.select_first(feed.now())
        self.analyse()

    def select_file(self, index: int) -> None:
        self.shown.select_file(index, self.shown.now())
        self.analyse()
        self.painter.paint()

    def name_model(self, given: Given | None) -> None:
        """Judge what is shown by the model that is given, also when it is opened again."""
        if given is not None:
            self.shown.name_model(given, self.shown.now())
            self.focus.name_model(given)
            self.library.sources.insert(0, self.shown.source)
            self.analyse()
        self.painter.paint()

    def analyse(self) -> None:
        """Analyse the latest window in a thread, one at a time and not while the view is frozen."""
        feed = self.shown
        if self.painter.frozen or self._analysing or (job := feed.windows.take()) is None:
            return
        self._analysing = True
        self.app.run_worker(self._analyse(feed, job), name="analysis")

    def write(
        self, content: str, write: Callable[[], Path | None], path: Path | None = None
    ) -> None:
        """Call `write` in a thread, then say where the `content` ("trace", "screenshot") is: at
        `path`, else where `write` says; or why it was not written."""
        self.app.run_worker(self._write(content, write, path), name=content)

    def save_trace(self, source: Path, variant: str) -> None:
        # The name of a server's window has its address.
        stem = f"decodescope-{variant.translate(_IN_FILE_NAMES)}-{self.timestamp()}"

        def write() -> Path:
            trace_gz = packed_trace(source)
            return write_new_file(self.folder, stem, ".json.gz", lambda file: file.write(trace_gz))

        self.write("trace", write)

    def timestamp(self) -> str:
        return self.clock.local().strftime("%Y%m%d-%H%M%S")

    def remember(self, **fields: object) -> None:
        self._remember(partial(self.memory.change, **fields))

    def remember_opened(self, paths: Sequence[Path]) -> None:
        opened = [path for path in paths if path not in bundled_recordings()]
        self._remember(partial(self.memory.opened, opened))

    async def close(self) -> None:
        feeds = {self.shown, self.live or self.shown}
        await asyncio.gather(*(feed.link.close() for feed in feeds if feed.link is not None))

    async def _read(self, feed: Feed) -> None:
        assert feed.link is not None
        try:
            await feed.link.start()
            while (event := await feed.link.receive()) is not None:
                recorder = feed.source.recorder
                failure = await recorder.record(event) if recorder is not None else None
                self._receive(feed, event)
                if failure is not None:
                    self._receive(feed, failure)
        except (DecodescopeError, OSError) as error:
            feed.set(state="failed", detail="")
            feed.alarm(str(error))
            self.painter.changed(feed)

    def _receive(self, feed: Feed, event: LinkEvent) -> None:
        feed.receive(event, feed.now())
        if feed.kind == "live" and isinstance(event, Hello) and self.asked and event.settings:
            # Only what a worker accepted is worth remembering.
            self.remember(
                settings=msgspec.structs.replace(event.settings, prompt=None, prompt_ids=None)
            )
        if isinstance(event, TraceReady) and event.requested and feed.kind == "live":
            self.save_trace(Path(event.path), event.capture.variant)
        if isinstance(event, WindowTaken) and isinstance(feed, AttachedFeed):
            self._show_latest(feed, event)
        self.analyse()
        self.painter.changed(feed)

    def _show_latest(self, feed: AttachedFeed, taken: WindowTaken) -> None:
        """Show the window that came, unless the user looks at something else of this feed."""
        if feed.kind != "replay":
            self.library.attached(feed.source, tuple(map(Path, taken.paths)))
        chosen = feed is self.shown and self.focus.holds
        if feed.is_latest and not chosen:
            feed.show_latest(feed.now())
        else:
            self.app.notify(f"{feed.view().choices[-1].name} is here: v shows it.")

    async def _analyse(self, feed: Feed, job: Job) -> None:
        facts = feed.source.given
        progress = partial(self._read_so_far, feed)
        window, problem = None, ""
        try:
            window = await asyncio.to_thread(analyse_files, job.paths, job.at, progress, facts)
        except (DecodescopeError, OSError) as error:
            # Of an old window the file may be gone: that is no problem.
            gone = feed.kind != "trace" and not job.paths[0].exists()
            problem = "" if gone else str(error)
        except Exception as error:
            problem = f"{job.paths[0]}: the analysis failed ({type(error).__name__}: {error})"
        self._analysing = False
        if window is not None:
            if (given := feed.source.given) is not facts and given is not None:
                # The model was named meanwhile.
                window = window.with_model(given)
            feed.analysed(job, window)
        else:
            feed.not_analysed(job, problem)
        if feed.kind == "trace" and len(job.paths) == 1:
            health = f"unreadable: {problem}" if window is None else window_health(window)
            self.library.health(job.paths[0], health)
        self.painter.changed(feed)
        self.analyse()

    def _read_so_far(self, feed: Feed, share: float) -> None:
        """Called in the thread that reads."""
        self.app.call_later(feed.read_so_far, share)
        self.app.call_later(self.painter.changed, feed)

    async def _write(
        self, content: str, write: Callable[[], Path | None], path: Path | None
    ) -> None:
        error = ""
        try:
            path = await asyncio.to_thread(write) or path
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            error = f"{where}{problem.strerror or problem}"
        except Exception as problem:
            error = str(known_error(problem))
        feed = self.shown
        if error:
            feed.alarm(f"{content} not written: {error}")
        else:
            assert path is not None
            self.app.notify(str(path), title=f"{content.capitalize()} written")
            if content == "trace":
                self.library.captured.insert(0, path)
            feed.note("info", f"{content} written to {path}")
        self.painter.changed(feed)

    def _remember(self, change: Callable[[], None]) -> None:
        """Change the memory in a thread, and say so if nothing is remembered any more."""

        async def remember() -> None:
            before = self.memory.problem
            await asyncio.to_thread(change)
            if self.memory.problem != before:
                self.shown.note("warning", self.memory.problem)
                self.painter.changed(self.shown)

        self.app.run_worker(remember(), name="memory")

    def _read_log(self) -> None:
        if self.live is not None and self.live.read_printed():
            self.painter.changed(self.live)

    async def _preview(self, feed: Feed) -> None:
        if not isinstance(feed.source, LiveSource) or feed.source.asked is None:
            return
        path = await asyncio.to_thread(recording_of, feed.source.asked)
        preview = await read_preview(path, self.clock) if path is not None else None
        if preview is not None:
            feed.set(preview=preview)
            self.painter.changed(feed)
