"""A `Feed`: one source while it is open, folded into a `View`.

A feed neither draws nor computes figures. It never shows one variant's figures under another's
name: when the variant changes, statistics are dropped and its latest window is restored.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from decodescope.analyzer.protocol.messages import (
    Bye,
    Failure,
    Hello,
    Log,
    Meters,
    Pause,
    Progress,
    Resume,
    State,
    Stats,
    TraceReady,
)
from decodescope.analyzer.readers.reading import are_ranks
from decodescope.analyzer.recordings.frames import RecordedMessage
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.text.formatting import position
from decodescope.tui.link.base import FileHealth, Jumped, Link, LinkEvent, LinkMessage, WorkerDied
from decodescope.tui.model import notices
from decodescope.tui.model.notices import Banner, Level, LogSource, RunLog
from decodescope.tui.model.sources import (
    AttachSource,
    LiveSource,
    ReplaySource,
    Source,
    TraceSource,
    variants_of,
    with_running,
)
from decodescope.tui.model.view import AppClock, Kind, SpeedSample, View, Window, remaining
from decodescope.tui.model.windows import Job, Windows

HISTORY_SAMPLES = 2400


@dataclass(slots=True, eq=False)
class Feed:
    """Folds events into a `View`; `now` arguments are seconds of the source's time."""

    source: Source
    link: Link | None
    clock: AppClock
    _state: View
    started: bool = False
    windows: Windows = field(default_factory=Windows)
    _held: bool = False
    # What was asked for last, Resume or Pause, if the worker has said nothing of its state since.
    _asked_to_run: bool | None = None
    _tried_merging: bool = False
    _samples: deque[SpeedSample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    _heard_at: float | None = None
    log: RunLog = field(default_factory=RunLog)

    @property
    def kind(self) -> Kind:
        return self._state.kind

    def view(self) -> View:
        playback = self.link.playback() if self.link is not None else None
        return replace(
            self._state,
            samples=tuple(self._samples),
            log=self.log.lines,
            heard_at=self._heard_at,
            playback=playback,
            analysing=self.windows.analysing,
            recording=self.source.recorder is not None and self.source.recorder.records,
            unseen=self.log.unseen,
            now=self.now(),
        )

    def now(self) -> float:
        """The source's time: recorded seconds in a replay, otherwise monotonic seconds."""
        monotonic_s = self.clock.monotonic()
        return self.link.now(monotonic_s) if self.link is not None else monotonic_s

    async def send(self, message: LinkMessage) -> bool:
        """Send `message` to the worker or the replay; False without either, after a death, and
        while it is held: then the last `Pause` or `Resume` counts when it is released."""
        if self.link is None or self._state.died is not None:
            return False
        if isinstance(message, Pause | Resume):
            self._asked_to_run = isinstance(message, Resume)
        if self.refused():
            return False
        await self.link.send(message)
        return True

    async def pause_or_resume(self) -> None:
        """Pause a worker that decodes, or will; let another go on, when it is released if it is
        held."""
        runs = self.goes_on and not self._held
        await self.send(Pause() if runs else Resume())

    @property
    def goes_on(self) -> bool:
        """Whether the worker decodes, or will when it has done what it was asked for last."""
        if self._asked_to_run is not None:
            return self._asked_to_run
        return self._state.state not in ("paused", "failed", "ended")

    async def hold(self) -> None:
        """Pause the worker until `release`; it gets no messages meanwhile."""
        runs = self.goes_on
        if runs:
            await self.send(Pause())
        self._held, self._asked_to_run = True, runs

    async def release(self) -> None:
        """Let the worker go on if it ran before, or was asked to run since."""
        self._held = False
        if self._asked_to_run:
            await self.send(Resume())

    def refused(self) -> bool:
        """Whether the worker is held; then a banner says so."""
        if self._held:
            self.set(banner=notices.WORKER_HELD)
        return self._held

    def note(
        self,
        level: Level,
        text: str,
        source: LogSource = "app",
        code: str = "",
        at: float | None = None,
    ) -> None:
        """Add a line to the log, of now or of second `at` of the source's time."""
        if self.kind == "replay":
            time = position((self.now() if at is None else at) * 1e9)
        else:
            time = self.clock.local().strftime("%H:%M:%S")
        self.log.add(level, text, time, source, code)

    def read_printed(self) -> bool:
        """Add what the worker's process printed to the log; False if it printed nothing."""
        lines = self.link.printed() if self.link is not None else []
        for line in lines:
            self.note("info", line, "printed")
        return bool(lines)

    def alarm(self, text: str) -> None:
        """Show an error of the app itself; the banner of a dead worker stays."""
        if self._state.died is None:
            self.set(banner=Banner("error", text))
        self.note("error", text)

    def ended_by_user(self) -> None:
        self.set(state="ended", detail="", banner=notices.ENDED_BY_USER)
        self.note("info", "the worker was ended by the user")

    def restarted(self) -> None:
        self.set(died=None, fatal=None, state="starting", detail="", stage_at=None, banner=None)
        self._heard_at = None

    def ending(self) -> None:
        if self.kind == "live":
            self.set(state="ending", detail="the worker", stage_at=None)

    def receive(self, event: LinkEvent, now: float) -> None:
        self._heard_at = now
        match event:
            case Hello():
                self._greet(event, now)
            case Progress(stage=stage, detail=detail):
                self.set(detail=f"{stage} {detail}".strip(), stage_at=now)
                self.note("info", f"{stage} {detail}".strip(), "worker", at=now)
            case State(state=state, variant=variant):
                self._enter(state, variant)
            case Stats():
                self._measure(event, now)
            case Meters():
                self.set(meters=event)
            case TraceReady(path=path, capture=capture, others=others):
                index = self._index_of(capture.variant)
                self.windows.expect(tuple(map(Path, (path, *others))), index, now)
            case Log(level=level, text=text):
                self.note(level, text, "worker", at=now)
            case Failure(message=text, fatal=fatal):
                replayed = self.link is not None and self.link.playback() is not None
                self.set(banner=notices.failure(event, replayed))
                self.note("error", text, "worker", at=now)
                if fatal:
                    self.set(fatal=event, state="failed", detail="")
            case Bye(reason=reason):
                if self._state.state != "failed":
                    self.set(state="ended", detail=reason)
                    self.note("info", f"ended: {reason}", "worker", at=now)
            case WorkerDied():
                self.set(
                    died=event,
                    state="worker died",
                    detail="",
                    meters=None,
                    banner=notices.died(event, self._state.fatal),
                )
                if self._state.fatal is None:
                    self.note("error", event.describe())
            case FileHealth(findings=findings):
                self.set(banner=notices.degraded(self._state.source_name, findings))
                self._note_findings(-1, findings)
            case Jumped(t_ns=t_ns, past=past):
                self._jump(t_ns / 1e9, past)

    def select_first(self, now: float) -> None:
        """Show the merged ranks if the files are ranks and can be merged, else the first file."""
        assert isinstance(self.source, TraceSource)
        paths = self.source.paths
        self._tried_merging = are_ranks(paths)
        self.select_file(len(paths) if self._tried_merging else 0, now)

    def select_file(self, index: int, now: float) -> None:
        """Show the file or window at `index` (after the last file: the merged ranks)."""
        assert isinstance(self.source, TraceSource | AttachSource)
        self._select(index)
        if (problem := self.windows.unreadable.get(index)) is not None:
            self.set(state="unreadable", detail="", banner=Banner("error", problem))
        elif self.windows.of(index) is not None:
            self.set(state="trace", detail="", banner=None)
        else:
            files = self.source.files(index)
            detail = f"{len(files)} files" if len(files) > 1 else ""
            self.set(state="reading", detail=detail, banner=None)
            self.windows.expect(files, index, now)

    def read_so_far(self, share: float) -> None:
        if self._state.state == "reading":
            self.set(detail=f"{share:.0%}".replace("%", " %"))

    def analysed(self, job: Job, window: Window) -> None:
        self.windows.answered(job)
        if not self.windows.keep(job, window):
            return
        if self.kind == "trace":
            self.set(state="trace", detail="")
        health = window.report.health
        new = self._note_findings(job.index, health.findings)
        if new and health.status == "degraded" and self.kind != "live":
            self.set(banner=notices.degraded(job.paths[0].name, health.findings))
        if job.index == self._state.current:
            self.set(window=window)

    def not_analysed(self, job: Job, error: str) -> None:
        """Report that `job` failed; `error` is "" for an old window whose file is gone."""
        self.windows.answered(job)
        if self.kind == "trace":
            self.windows.unreadable[job.index] = error
            if job.index == self._state.current:
                if self._tried_merging and len(job.paths) > 1:
                    self._tried_merging = False
                    self.note("warning", error)
                    self.select_file(0, job.at)
                    return
                self.set(state="unreadable", detail="")
        if error:
            self.alarm(error)

    def name_model(self, given: Given, now: float) -> None:
        """Judge by the model that is given. Merged ranks are read again, for the report of each."""
        assert not isinstance(self.source, LiveSource)
        self.source = replace(self.source, given=given)
        self.windows.name_model(given)
        window, current = self.windows.of(self._state.current), self._state.current
        self.set(window=window)
        if window is not None:
            self._note_findings(current, window.report.health.findings)
            if window.ranks is not None and not isinstance(self.source, ReplaySource):
                self.windows.expect(self.source.files(current), current, now)

    def set(self, **changes: object) -> None:
        state = replace(self._state, **changes)  # type: ignore[arg-type]
        self._state = replace(state, preview=remaining(state)) if state.preview else state

    def _note_findings(self, index: int, findings: Sequence[Finding]) -> bool:
        """Log what was not found before; False if nothing is new."""
        new = self.log.unreported(index, findings)
        several = index >= 0 and len(self._state.choices) > 1
        name = f"{self._state.choices[index].name}: " if several else ""
        for finding in new:
            self.note("warning", name + finding.message, "finding", finding.code)
        return bool(new)

    def _jump(self, now: float, past: Sequence[tuple[int, RecordedMessage]]) -> None:
        """Know what was reported up to `now`, and nothing else; analysed windows are kept."""
        # What was reported before the first jump is new, and only that.
        unseen = self.log.unseen if self.windows.era else None
        banner = self._state.banner
        kept = self.windows.jump()
        self.log.forget_worker()
        self._samples.clear()
        self._state = replace(View(self.kind, self._state.source_name), meters=self._state.meters)
        for t_ns, message in past:
            self.receive(message, t_ns / 1e9)
        if unseen is not None:
            self.log.unseen = unseen
        if self._state.fatal is None:
            # Other failures were seen when they happened.
            degraded = banner is not None and banner.severity == "warning"
            self.set(banner=banner if degraded else None)
        self.windows.restore(kept, now, self._state.current)
        self.set(window=self.windows.of(self._state.current))

    def _index_of(self, name: str) -> int:
        names = [choice.name for choice in self._state.choices]
        return names.index(name) if name in names else -1

    def _select(self, index: int) -> None:
        if index != self._state.current:
            self.set(current=index, stats=None, window=self.windows.of(index))

    def _greet(self, hello: Hello, now: float) -> None:
        self.windows.begin(now)
        first = self._state.hello is None
        playback = self.link.playback() if self.link is not None else None
        choices = variants_of(hello, playback)
        if self._state.fatal is not None:
            # In a recording: the worker was started again.
            self.set(fatal=None, banner=None)
        self.set(hello=hello, choices=choices, current=-1, stats=None, stats_at=None, window=None)
        live = isinstance(self.source, LiveSource) and not self.source.cpu_chosen
        if first and live and hello.device == "cpu":
            self.set(banner=notices.no_cuda(hello))

    def _enter(self, state: str, variant: str) -> None:
        if variant:
            self.set(choices=with_running(self._state.choices, variant))
            self._select(self._index_of(variant))
        if not self._held:
            self._asked_to_run = None
        self.set(state=state, detail="", stage_at=None)

    def _measure(self, stats: Stats, now: float) -> None:
        index = self._index_of(stats.variant)
        if index == self._state.current:
            self.set(stats=stats, stats_at=now)
            if self._state.state == "paused":
                # A single step, which began with an idle GPU.
                return
            if stats.tokens_per_s is not None:
                self._samples.append(SpeedSample(now, stats.tokens_per_s, index))
