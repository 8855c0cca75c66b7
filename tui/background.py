"""What the app has done in threads: analyses, one at a time, and files to write."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual.app import App

from decodescope.analyzer.errors import DecodescopeError
from decodescope.tui.model.feed import Feed, Job
from decodescope.tui.model.messages import AnalysisFailed, Analyzed, FileNotWritten, FileWritten
from decodescope.tui.style.traits import Clock


class Background:
    """Threads report to the app with messages; `folder` None is the current one."""

    def __init__(self, app: App[None], clock: Clock, folder: Path | None) -> None:
        self._app = app
        self._clock = clock
        self._folder = folder
        self._analysing = False

    def analyse(self, feed: Feed) -> None:
        """Start the feed's pending analysis, unless one is running: `analysed` says it ended."""
        job = feed.pending
        if job is not None and not self._analysing:
            feed.pending = None
            self._analysing = True
            self._app.run_worker(partial(self._analyse, feed, job), name="analysis", thread=True)

    def analysed(self) -> None:
        """The running analysis has ended."""
        self._analysing = False

    def save_trace(self, source: Path, variant: str) -> None:
        """Write the trace at `source` as a gzipped file with a name of its own."""
        from decodescope.tui.link.new_file import save_trace

        stem = f"decodescope-{variant}-{self._timestamp()}"
        self._write("trace", lambda folder: save_trace(source, folder, stem))

    def save_svg(self, svg: str) -> None:
        """Write a screenshot."""
        from decodescope.tui.link.new_file import write_new_file

        data, stem = svg.encode(), f"decodescope-{self._timestamp()}"
        self._write(
            "screenshot",
            lambda folder: write_new_file(folder, stem, ".svg", lambda file: file.write(data)),
        )

    def _timestamp(self) -> str:
        return self._clock.local().strftime("%Y%m%d-%H%M%S")

    def _write(self, what: str, write: Callable[[Path], Path]) -> None:
        folder = self._folder or Path.cwd()

        def job() -> None:
            try:
                path = write(folder)
            except OSError as error:
                text = f"{error.filename or folder}: {error.strerror or error}"
                self._app.post_message(FileNotWritten(what, text))
            else:
                self._app.post_message(FileWritten(what, path))

        self._app.run_worker(job, name=what, thread=True)

    def _analyse(self, feed: Feed, job: Job) -> None:
        from decodescope.tui.model import analysis

        try:
            window = analysis.analyse_files(job.paths, job.at)
        except (DecodescopeError, OSError) as error:
            gone = feed.kind != "trace" and not job.paths[0].exists()
            self._app.post_message(AnalysisFailed(feed, job, "" if gone else str(error)))
        except Exception as error:
            text = f"{job.paths[0]}: the analysis failed ({type(error).__name__}: {error})"
            self._app.post_message(AnalysisFailed(feed, job, text))
        else:
            self._app.post_message(Analyzed(feed, job, window))
