"""The work of the app in threads: analyses, one at a time, and writing files."""

import gzip
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from textual.app import App
from textual.message import Message

from decodescope.analyzer.errors import DecodescopeError, known_error
from decodescope.analyzer.io.files import write_atomically, write_json, write_new_file
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.model.user_files import Memory
from decodescope.tui.model.view import AppClock, Window
from decodescope.tui.model.windows import Job

if TYPE_CHECKING:
    from decodescope.analyzer import Analysis
    from decodescope.analyzer.exporting import Target
    from decodescope.analyzer.reports.rank_analysis import RanksAnalysis
    from decodescope.analyzer.reports.user_facts import Given
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff


@dataclass
class AnalysisDone(Message):
    """An analysis has ended with a window, or without one for the reason in `error`: one line,
    empty for an old window whose file is gone."""

    feed: Feed
    job: Job
    window: Window | None
    error: str = ""


@dataclass
class FileDone(Message):
    """`what` ("trace", "screenshot") was written to `path`, or could not be written."""

    what: str
    path: Path | None
    error: str = ""


@dataclass
class NotRemembered(Message):
    """Something could not be remembered: `problem` is one line."""

    problem: str


@dataclass
class ReadSoFar(Message):
    """This share of a file was read, for `feed`, or for page 8 if that is None."""

    feed: Feed | None
    share: float


class Background:
    """Threads report to the app with messages; files go to `folder`, None is the current one."""

    def __init__(self, app: App[None], clock: AppClock, folder: Path | None) -> None:
        self._app = app
        self._clock = clock
        self._given = folder
        self._analysing = False

    def analyse(self, feed: Feed) -> None:
        """Start the feed's pending analysis unless one is running; call `analysed` at its end."""
        if not self._analysing and (job := feed.windows.take()) is not None:
            self._analysing = True
            self._app.run_worker(partial(self._analyse, feed, job), name="analysis", thread=True)

    def analysed(self) -> None:
        """The running analysis has ended."""
        self._analysing = False

    def save_trace(self, source: Path, variant: str) -> None:
        """Write the trace at `source` to a new gzipped file."""
        stem = f"decodescope-{variant}-{self.timestamp()}"
        self._write("trace", lambda folder: save_trace(source, folder, stem))

    def export(self, window: Window, target: "Target", path: Path, by: str) -> None:
        """Write the analysis of `window` to `path`; `by` is what each row of a CSV describes."""

        def write() -> Path:
            from decodescope.analyzer.exporting import export_analysis

            export_analysis(window.analysis, target, path, by, window.ranks)
            return path

        self._run("export", write)

    def export_comparison(self, result: "Comparison | Diff", as_json: bool, path: Path) -> None:
        """Write the comparison to `path`, as JSON or as Markdown."""

        def write() -> Path:
            from decodescope.analyzer.views.comparison_table import comparison_markdown

            if as_json:
                write_json(path, result)
            else:
                write_atomically(path, comparison_markdown(result).encode(errors="replace"))
            return path

        self._run("export", write)

    def export_svg(self, svg: str, path: Path) -> None:
        """Write a screenshot to `path`."""

        def write() -> Path:
            write_atomically(path, svg.encode())
            return path

        self._run("export", write)

    def save_svg(self, svg: str) -> None:
        """Write a screenshot to a new file."""
        data, stem = svg.encode(), f"decodescope-{self.timestamp()}"
        self._write(
            "screenshot",
            lambda folder: write_new_file(folder, stem, ".svg", lambda file: file.write(data)),
        )

    def remember(self, memory: Memory, **fields: object) -> None:
        """Keep `fields` for later runs."""

        def job() -> None:
            before = memory.problem
            memory.change(**fields)
            if memory.problem != before:
                self._app.post_message(NotRemembered(memory.problem))

        self._app.run_worker(job, name="memory", thread=True)

    @property
    def folder(self) -> Path:
        """Where files go."""
        return self._given or Path.cwd()

    def timestamp(self) -> str:
        """The time, for names of files."""
        return self._clock.local().strftime("%Y%m%d-%H%M%S")

    def _write(self, what: str, write: Callable[[Path], Path]) -> None:
        folder = self.folder
        self._run(what, lambda: write(folder))

    def _run(self, what: str, write: Callable[[], Path]) -> None:
        def job() -> None:
            try:
                done = FileDone(what, write())
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                done = FileDone(what, None, f"{where}{error.strerror or error}")
            except Exception as error:
                done = FileDone(what, None, str(known_error(error)))
            self._app.post_message(done)

        self._app.run_worker(job, name=what, thread=True)

    def _analyse(self, feed: Feed, job: Job) -> None:
        try:
            given = feed.source.given if isinstance(feed.source, TraceSource) else None
            window = analyse_files(job.paths, job.at, reporter(self._app, feed), given)
            done = AnalysisDone(feed, job, window)
        except (DecodescopeError, OSError) as error:
            gone = feed.kind != "trace" and not job.paths[0].exists()
            done = AnalysisDone(feed, job, None, "" if gone else str(error))
        except Exception as error:
            text = f"{job.paths[0]}: the analysis failed ({type(error).__name__}: {error})"
            done = AnalysisDone(feed, job, None, text)
        self._app.post_message(done)


def save_trace(source: Path, folder: Path, stem: str) -> Path:
    """Gzip the Kineto JSON at `source` (or copy it if already gzipped) into a new file in `folder`.

    Raises:
        OSError: the source is missing, or the folder cannot be written to.
    """
    with source.open("rb") as trace:
        gzipped = trace.read(2) == b"\x1f\x8b"
        trace.seek(0)

        def write(file: BinaryIO) -> None:
            if gzipped:
                shutil.copyfileobj(trace, file)
                return
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                shutil.copyfileobj(trace, packed)

        return write_new_file(folder, stem, ".json.gz", write)


def reporter(app: App[None], feed: Feed | None) -> Callable[[float], None]:
    """A function that posts `ReadSoFar` for every twentieth of a file."""
    reported_parts = 0

    def report(share: float) -> None:
        nonlocal reported_parts
        if int(share * 20) > reported_parts:
            reported_parts = int(share * 20)
            app.post_message(ReadSoFar(feed, share))

    return report


def analyse_files(
    paths: Sequence[Path],
    at: float,
    progress: Callable[[float], None] | None = None,
    given: "Given | None" = None,
) -> Window:
    """Load and analyse the trace at `paths`, announced at monotonic second `at`; several files are
    merged as the ranks of one run. `progress` is called with the share of a single file that was
    read; `given` is what the user gave beside the files.

    Raises:
        TraceError: a file is not a trace, or too damaged.
        InputError: several files that cannot be merged.
        OSError: a file cannot be read.
    """
    from decodescope.analyzer.tracks.build import find_tracks

    analysis, across = _analysis(paths, progress, given)
    return Window(
        path=paths[0],
        analysis=analysis,
        tracks=find_tracks(analysis),
        at=at,
        ranks=across.report if across is not None else None,
    )


def _analysis(
    paths: Sequence[Path],
    progress: Callable[[float], None] | None,
    given: "Given | None",
) -> "tuple[Analysis, RanksAnalysis | None]":
    """The analysis of one file; of several, that of the merged trace, and what it is made of."""
    from decodescope.analyzer import Given, analyze, load

    beside = given or Given()
    if len(paths) == 1:
        return analyze(load(paths[0], progress), beside), None
    from decodescope.analyzer import analyze_ranks

    across = analyze_ranks(paths, beside)
    return across.all_merged("all ranks"), across
