"""What the app knows: events go in, one immutable `View` for all panels comes out.

Nothing here draws and nothing computes a figure. A figure of one variant is never shown under
another's name: statistics and windows are dropped or put aside when the variant changes.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.protocol import (
    Bye,
    Failure,
    Hello,
    Log,
    Progress,
    State,
    Stats,
    TraceReady,
    WorkerMessage,
)
from decodescope.analyzer.schema.report import CaptureInfo, Report
from decodescope.tui.link.base import WorkerDied

if TYPE_CHECKING:
    from decodescope.analyzer.timing.step_timeline import StepTimeline

HISTORY_SAMPLES = 2400
LOG_LINES = 200

Kind = Literal["live", "replay", "trace"]
Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Window:
    """One analysed window; `at` is the monotonic second at which its trace was announced, and
    `families` are the kinds of work that the report's first kernels do."""

    path: Path
    report: Report
    timeline: "StepTimeline | None"
    families: tuple[str, ...]
    at: float

    @property
    def capture(self) -> CaptureInfo | None:
        """What decodescope noted when it captured the window; None for a foreign trace."""
        return self.report.capture


@dataclass(frozen=True, slots=True)
class Choice:
    """Something a number key selects: a variant, or an opened trace file."""

    name: str
    summary: str
    unavailable: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of the tok/s history; `choice` is the position of its variant, -1 if unknown."""

    at: float
    tokens_per_s: float
    choice: int


@dataclass(frozen=True, slots=True)
class LogLine:
    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """Everything the panels show. `stats` and `window` belong to `choices[current]`."""

    kind: Kind
    source_name: str
    state: str = "starting"
    detail: str = ""
    hello: Hello | None = None
    choices: tuple[Choice, ...] = ()
    current: int = -1
    stats: Stats | None = None
    stats_at: float | None = None
    window: Window | None = None
    samples: tuple[Sample, ...] = ()
    log: tuple[LogLine, ...] = ()
    died: WorkerDied | None = None
    fatal: Failure | None = None

    @property
    def variant(self) -> str | None:
        """The name of the current choice."""
        return self.choices[self.current].name if self.current >= 0 else None

    @property
    def live_figures(self) -> bool:
        """Whether the figures describe a run that is going on now."""
        return self.died is None and self.state in ("running", "capturing")


@dataclass(slots=True)
class Session:
    """Folds events into a `View`; `now` arguments are monotonic seconds."""

    kind: Kind
    source_name: str
    _state: View = field(init=False)
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    _log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    _windows: dict[int, Window] = field(default_factory=dict)
    _noted: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._state = View(self.kind, self.source_name)

    def view(self) -> View:
        """The present state, complete and immutable."""
        return replace(self._state, samples=tuple(self._samples), log=tuple(self._log))

    def note(self, level: Level, text: str) -> None:
        """Add a line to the log."""
        self._log.append(LogLine(level, text))

    def select(self, index: int) -> None:
        """Make the choice at `index` the current one, with what is known of it."""
        if index == self._state.current:
            return
        self._state = replace(
            self._state, current=index, stats=None, window=self._windows.get(index)
        )

    def offer(self, choices: tuple[Choice, ...]) -> None:
        """Set what the number keys select."""
        self._state = replace(self._state, choices=choices)

    def set_state(self, state: str, detail: str = "") -> None:
        """Set the state shown on the badge."""
        self._state = replace(self._state, state=state, detail=detail)

    def add_window(self, index: int, window: Window) -> None:
        """Keep `window` as the latest of the choice at `index`."""
        kept = self._windows.get(index)
        if kept is not None and kept.at > window.at:
            return
        self._windows[index] = window
        for finding in window.report.health.findings:
            # Once for each choice: the figures in a message differ from window to window.
            if (index, finding.code) not in self._noted:
                self._noted.add((index, finding.code))
                self.note("warning", finding.message)
        if index == self._state.current:
            self._state = replace(self._state, window=window)

    def window_of(self, index: int) -> Window | None:
        """The latest window of the choice at `index`."""
        return self._windows.get(index)

    def index_of(self, name: str | None) -> int:
        """The position of the choice called `name`, -1 where there is none."""
        for index, choice in enumerate(self._state.choices):
            if choice.name == name:
                return index
        return -1

    def restarted(self) -> None:
        """Forget that the worker died; its data stays until the new one speaks."""
        self._state = replace(self._state, died=None, fatal=None, state="starting", detail="")

    def died(self, event: WorkerDied) -> None:
        """The worker is gone; everything it said is kept, above all why it gave up."""
        self._state = replace(self._state, died=event, state="worker died", detail="")
        if self._state.fatal is None:
            self.note("error", describe_death(event))

    def receive(self, message: WorkerMessage, now: float) -> None:
        """Take in one message of the worker."""
        match message:
            case Hello():
                self._greet(message)
            case Progress(stage=stage, detail=detail):
                self._state = replace(self._state, detail=f"{stage} {detail}".strip())
                self.note("info", f"{stage} {detail}".strip())
            case State(state=state, variant=variant):
                self._enter(state, variant)
            case Stats():
                self._measure(message, now)
            case Log(level=level, text=text):
                self.note(level, text)
            case Failure(message=text, fatal=fatal):
                self.note("error", text)
                if fatal:
                    self._state = replace(self._state, fatal=message, state="failed", detail="")
            case Bye(reason=reason):
                if self._state.state != "failed":
                    self.set_state("ended", reason)
                    self.note("info", f"ended: {reason}")
            case TraceReady():
                pass

    def _greet(self, hello: Hello) -> None:
        self._windows.clear()
        self._state = replace(
            self._state,
            hello=hello,
            choices=tuple(Choice(v.name, v.summary, v.unavailable) for v in hello.variants),
            current=-1,
            stats=None,
            stats_at=None,
            window=None,
        )

    def _enter(self, state: str, variant: str) -> None:
        index = self.index_of(variant)
        if index < 0 and variant:
            self.offer((*self._state.choices, Choice(variant, "")))
            index = self.index_of(variant)
        if index >= 0:
            self.select(index)
        self._state = replace(self._state, state=state, detail="")

    def _measure(self, stats: Stats, now: float) -> None:
        index = self.index_of(stats.variant)
        if index != self._state.current:
            return
        self._state = replace(self._state, stats=stats, stats_at=now)
        self._samples.append(Sample(now, stats.tokens_per_s, index))


def describe_death(event: WorkerDied) -> str:
    """How a worker ended, in words."""
    if event.signal is not None:
        return f"The worker was killed by {event.signal}"
    return f"The worker ended with exit code {event.exit_code}"
