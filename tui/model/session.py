"""What the app knows: events go in, one immutable `View` for all panels comes out.

A session neither draws nor computes figures. It never shows one variant's figures under another's
name: when the variant changes, statistics are dropped and its latest window is restored.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from decodescope.analyzer.protocol import Bye, Failure, Hello, Log, Progress, State, Stats
from decodescope.tui.link.base import LinkEvent, WorkerDied
from decodescope.tui.model.view import Choice, Kind, Level, LogLine, Sample, View, Window

HISTORY_SAMPLES = 2400
LOG_LINES = 200


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
        """The current state, complete and immutable."""
        return replace(self._state, samples=tuple(self._samples), log=tuple(self._log))

    def note(self, level: Level, text: str) -> None:
        """Add a line to the log."""
        self._log.append(LogLine(level, text))

    def select(self, index: int) -> None:
        """Make the choice at `index` the current one, with its latest window."""
        if index != self._state.current:
            window = self._windows.get(index)
            self._state = replace(self._state, current=index, stats=None, window=window)

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
            # Once per choice: the numbers in a message differ from window to window.
            if (index, finding.code) not in self._noted:
                self._noted.add((index, finding.code))
                self.note("warning", finding.message)
        if index == self._state.current:
            self._state = replace(self._state, window=window)

    def window_of(self, index: int) -> Window | None:
        """The latest window of the choice at `index`."""
        return self._windows.get(index)

    def index_of(self, name: str | None) -> int:
        """The index of the choice called `name`, -1 if there is none."""
        for index, choice in enumerate(self._state.choices):
            if choice.name == name:
                return index
        return -1

    def restarted(self) -> None:
        """Forget that the worker died; its data stays until the new worker reports."""
        self._state = replace(self._state, died=None, fatal=None, state="starting", detail="")

    def receive(self, event: LinkEvent, now: float) -> None:
        """Process one event of the link; everything a dead worker reported is kept."""
        match event:
            case Hello():
                self._greet(event)
            case Progress(stage=stage, detail=detail):
                self._state = replace(self._state, detail=f"{stage} {detail}".strip())
                self.note("info", f"{stage} {detail}".strip())
            case State(state=state, variant=variant):
                self._enter(state, variant)
            case Stats():
                self._measure(event, now)
            case Log(level=level, text=text):
                self.note(level, text)
            case Failure(message=text, fatal=fatal):
                self.note("error", text)
                if fatal:
                    self._state = replace(self._state, fatal=event, state="failed", detail="")
            case Bye(reason=reason):
                if self._state.state != "failed":
                    self.set_state("ended", reason)
                    self.note("info", f"ended: {reason}")
            case WorkerDied():
                self._state = replace(self._state, died=event, state="worker died", detail="")
                if self._state.fatal is None:
                    self.note("error", event.describe())

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
        self.set_state(state)

    def _measure(self, stats: Stats, now: float) -> None:
        index = self.index_of(stats.variant)
        if index == self._state.current:
            self._state = replace(self._state, stats=stats, stats_at=now)
            self._samples.append(Sample(now, stats.tokens_per_s, index))
