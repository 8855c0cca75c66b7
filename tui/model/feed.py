"""Data sources, and a `Feed`: one source while it is open, folded into a `View`.

A feed neither draws nor computes figures. It never shows one variant's figures under another's
name: when the variant changes, statistics are dropped and its latest window is restored.
"""

import re
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from decodescope.analyzer.protocol import (
    AppMessage,
    Bye,
    Failure,
    Hello,
    Log,
    Meters,
    Progress,
    State,
    Stats,
    TraceReady,
)
from decodescope.analyzer.recordings.recording import is_recording
from decodescope.tui.link.base import Link, LinkEvent, WorkerDied
from decodescope.tui.model import banners
from decodescope.tui.model.banners import Banner
from decodescope.tui.model.view import Choice, Kind, Level, LogLine, Sample, View, Window

HISTORY_SAMPLES = 2400
LOG_LINES = 200
ALL_RANKS = "all ranks"
# As recordings are named while they grow, too.
_RECORDING_NAME = re.compile(r"\.dsrec(-\d+)?(\.partial)?$")


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A worker behind `link`. `cpu_chosen`: the user chose the CPU, so no banner about CUDA."""

    link: Link
    cpu_chosen: bool = False


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A recording, played by `link`; None plays it with its own timing."""

    path: Path
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Trace files to analyse; number keys switch between them."""

    paths: tuple[Path, ...]


Source = LiveSource | ReplaySource | TraceSource


def source_for(path: Path) -> ReplaySource | TraceSource:
    """The source for one file a user named: a recording is replayed, a trace analysed."""
    recorded = _RECORDING_NAME.search(path.name) is not None or is_recording(path)
    return ReplaySource(path) if recorded else TraceSource((path,))


@dataclass(frozen=True, slots=True)
class Job:
    """What to analyse for the choice at `index`, announced at monotonic second `at`: one file, or
    several as the ranks of one run."""

    paths: tuple[Path, ...]
    index: int
    at: float


@dataclass(slots=True, eq=False)
class Feed:
    """Folds events into a `View`; `now` arguments are monotonic seconds.

    `pending` is the latest job not yet started.
    """

    source: Source
    link: Link | None
    _state: View
    pending: Job | None = None
    started: bool = False
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    _log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    _windows: dict[int, Window] = field(default_factory=dict)
    _noted: set[tuple[int, str]] = field(default_factory=set)
    _unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """The kind of the source."""
        return self._state.kind

    def view(self) -> View:
        """The current state, complete and immutable."""
        return replace(self._state, samples=tuple(self._samples), log=tuple(self._log))

    async def send(self, message: AppMessage) -> bool:
        """Send `message` to the worker or the replay; False without either, or after a death."""
        if self.link is None or self._state.died is not None:
            return False
        await self.link.send(message)
        return True

    def note(self, level: Level, text: str) -> None:
        """Add a line to the log."""
        self._log.append(LogLine(level, text))

    def alarm(self, text: str) -> None:
        """Show an error of the app itself; the banner of a dead worker stays."""
        if self._state.died is None:
            self._set(banner=Banner("error", text))
        self.note("error", text)

    def cannot_start(self, text: str) -> None:
        """The link raised an error."""
        self._set(state="failed", detail="")
        self.alarm(text)

    def dismiss_banner(self) -> None:
        """Hide the banner."""
        self._set(banner=None)

    def pause_replay(self, paused: bool) -> None:
        """Remember that the replay was paused or resumed."""
        self._set(replay_paused=paused)

    def restarted(self) -> None:
        """Forget that the worker died; its data stays until the new worker reports."""
        self._set(died=None, fatal=None, state="starting", detail="", stage_at=None, banner=None,
                  heard_at=None, replay_paused=False)  # fmt: skip

    def ending(self) -> None:
        """Say that the worker is being ended."""
        if self.kind == "live":
            self._set(state="ending", detail="the worker", stage_at=None)

    def receive(self, event: LinkEvent, now: float) -> None:
        """Process one event of the link; everything a dead worker reported is kept."""
        self._set(heard_at=now)
        match event:
            case Hello():
                self._greet(event)
            case Progress(stage=stage, detail=detail, expected_ns=expected_ns):
                expected_s = None if expected_ns is None else expected_ns / 1e9
                self._set(detail=f"{stage} {detail}".strip(), stage_at=now,
                          stage_expected_s=expected_s)  # fmt: skip
                self.note("info", f"{stage} {detail}".strip())
            case State(state=state, variant=variant):
                self._enter(state, variant)
            case Stats():
                self._measure(event, now)
            case Meters():
                self._set(meters=event)
            case TraceReady(path=path, capture=capture):
                self.pending = Job((Path(path),), self._index_of(capture.variant), now)
            case Log(level=level, text=text):
                self.note(level, text)
            case Failure(message=text, fatal=fatal):
                self._set(banner=banners.failure(event))
                self.note("error", text)
                if fatal:
                    self._set(fatal=event, state="failed", detail="")
            case Bye(reason=reason):
                if self._state.state != "failed":
                    self._set(state="ended", detail=reason)
                    self.note("info", f"ended: {reason}")
            case WorkerDied():
                self._set(died=event, state="worker died", detail="", meters=None,
                          banner=banners.died(event, self._state.fatal))  # fmt: skip
                if self._state.fatal is None:
                    self.note("error", event.describe())

    def select_file(self, index: int, now: float) -> None:
        """Show the trace file at `index` (after the last: the merged ranks); read it if needed."""
        assert isinstance(self.source, TraceSource)
        self._select(index)
        if index in self._unreadable:
            banner = Banner("error", self._unreadable[index])
            self._set(state="unreadable", detail="", banner=banner)
        elif index in self._windows:
            self._set(state="trace", detail="", banner=None)
        else:
            self._set(state="reading", detail="", banner=None)
            paths = self.source.paths
            self.pending = Job(paths if index == len(paths) else (paths[index],), index, now)

    def analysed(self, job: Job, window: Window) -> None:
        """Keep the window of `job`, unless there is a later one."""
        if self.kind == "trace":
            self._set(state="trace", detail="")
        kept = self._windows.get(job.index)
        if kept is not None and kept.at > window.at:
            return
        self._windows[job.index] = window
        for finding in window.report.health.findings:
            # Once per choice: the numbers in a message differ from window to window.
            if (job.index, finding.code) not in self._noted:
                self._noted.add((job.index, finding.code))
                self.note("warning", finding.message)
        if job.index == self._state.current:
            self._set(window=window)

    def not_analysed(self, job: Job, error: str) -> None:
        """Report that `job` failed; `error` is "" for an old window whose file is gone."""
        if self.kind == "trace":
            self._unreadable[job.index] = error
            if job.index == self._state.current:
                self._set(state="unreadable", detail="")
        if error:
            self.alarm(error)

    def _set(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]

    def _index_of(self, name: str) -> int:
        names = [choice.name for choice in self._state.choices]
        return names.index(name) if name in names else -1

    def _select(self, index: int) -> None:
        if index != self._state.current:
            self._set(current=index, stats=None, window=self._windows.get(index))

    def _greet(self, hello: Hello) -> None:
        self._windows.clear()
        first = self._state.hello is None
        choices = tuple(Choice(v.name, v.summary, v.unavailable) for v in hello.variants)
        self._set(hello=hello, choices=choices, current=-1, stats=None, stats_at=None, window=None)
        live = isinstance(self.source, LiveSource) and not self.source.cpu_chosen
        if first and live and hello.device == "cpu":
            self._set(banner=banners.no_cuda(hello))

    def _enter(self, state: str, variant: str) -> None:
        if variant and self._index_of(variant) < 0:
            self._set(choices=(*self._state.choices, Choice(variant, "")))
        if variant:
            self._select(self._index_of(variant))
        self._set(state=state, detail="", stage_at=None)

    def _measure(self, stats: Stats, now: float) -> None:
        index = self._index_of(stats.variant)
        if index == self._state.current:
            self._set(stats=stats, stats_at=now)
            if self._state.state == "paused":
                # A single step, which began with an idle GPU.
                return
            self._samples.append(Sample(now, stats.tokens_per_s, index))


def open_feed(source: Source) -> Feed:
    """A feed that has not been started."""
    if isinstance(source, LiveSource):
        return Feed(source, source.link, View("live", ""))
    if isinstance(source, ReplaySource):
        from decodescope.tui.link.replay import ReplayLink

        link = source.link or ReplayLink(source.path)
        return Feed(source, link, View("replay", source.path.name))
    names = ", ".join(path.name for path in source.paths)
    choices = [Choice(path.name, str(path.parent)) for path in source.paths]
    if len(choices) > 1:
        choices.append(Choice(ALL_RANKS, "the files as ranks of one run, on one clock"))
    return Feed(source, None, View("trace", names, "reading", choices=tuple(choices)))
