"""The immutable `View` that all panels read, its parts, and the time it is read at."""

import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.protocol.messages import Failure, Hello, Meters, Stats
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import CaptureInfo, Report
from decodescope.analyzer.text.formatting import age, duration
from decodescope.analyzer.vocabulary.words import step_words, steps_words
from decodescope.tui.link.base import Playback, WorkerDied
from decodescope.tui.model.attached import Attached
from decodescope.tui.model.comparing import NO_COMPARISON, ComparisonState
from decodescope.tui.model.notices import Banner, LogLine
from decodescope.tui.model.picks import NOTHING, Selection
from decodescope.tui.model.shelf import NO_FILES, Shelf

if TYPE_CHECKING:
    from decodescope.analyzer import Analysis
    from decodescope.analyzer.tracks.build import Tracks


Kind = Literal["live", "replay", "trace"]
# What a starting run has to report first: statistics, and an analysed window.
Part = Literal["figures", "window"]

# A hung worker is noticed after this long.
_WORD_WITHIN_S = {
    "running": 3.0,
    "paused": 5.0,
    "failed": 5.0,
    "capturing": 30.0,
    **dict.fromkeys(("loading", "building", "starting"), 120.0),
}
_STEPS_OF_A_WINDOW = 20
ANSWER_PAGE, LOG_PAGE = "step", "log"
COMPARISON_PAGE = "ab"
# Profiled ÷ unprofiled step time from which figures say so.
PROFILER_MATTERS = 1.05
_OTHER_PACE = 1.3
_OVER = ("failed", "ended", "ending")


class AppClock:
    """The machine's clocks; tests pass a clock that stands still."""

    def monotonic(self) -> float:
        return time.monotonic()

    def local(self) -> datetime:
        return datetime.now()


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One analysed window, announced at monotonic second `at`.

    `tracks` index all of its time. Of merged ranks, `ranks` says who waits for whom. If the user
    chose a `step`, `analysis` has the figures of that step, and `of_trace` is the window with those
    of the median step.
    """

    path: Path
    analysis: "Analysis"
    tracks: "Tracks"
    at: float
    ranks: RanksReport | None = None
    step: int | None = None
    of_trace: "Window | None" = None

    @property
    def whole(self) -> "Window":
        """The window without a chosen step."""
        return self.of_trace or self

    @property
    def report(self) -> Report:
        return self.analysis.report

    def with_model(self, given: Given) -> "Window":
        analysis = self.analysis.with_model(given)
        return replace(self, analysis=analysis, tracks=replace(self.tracks, analysis=analysis))

    @property
    def communication(self) -> CommunicationReport | None:
        """Who waits for whom: among merged ranks, or the GPUs of one trace."""
        return self.report.communication if self.ranks is None else self.ranks.communication

    @property
    def per(self) -> str:
        """The unit that the tables divide by: "step", or "trace" for a trace without steps."""
        return "step" if self.report.main_steps.steps else "trace"

    @property
    def step_words(self) -> str:
        """The chosen step, or the one with the median time; "" without steps."""
        return step_words(self.report, self.step)

    @property
    def steps_words(self) -> str:
        """The steps that figures per step are of."""
        return steps_words(self.report) if self.step is None else self.step_words


@dataclass(frozen=True, slots=True)
class Choice:
    """Something a number key selects: a variant, or an opened trace file. A variant that does not
    run here may have been `recorded` in a file; an `interpreted` one has no speed."""

    name: str
    summary: str
    unavailable: str | None = None
    interpreted: bool = False
    recorded: Path | None = None


@dataclass(frozen=True, slots=True)
class SpeedSample:
    """One point of the tok/s history; `choice` is the index of its variant, -1 if unknown. Of a
    server also the `running` requests and the median inter-token latency."""

    at: float
    tokens_per_s: float
    choice: int
    running: float | None = None
    inter_token_ms: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Everything the panels show, as it is at second `now` of the source's time. `stats` and
    `window` belong to `choices[current]`.

    `heard_at` is when the source last said something. `detail` is the slow stage that began at
    `stage_at`. `held`: the selection belongs to `window`, and a later one has arrived. `preview`
    stands in for what a starting run has not reported; its own view was `recorded_on` a device.
    `attached` is what the windows are of, in a replay too.
    """

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
    samples: tuple[SpeedSample, ...] = ()
    log: tuple[LogLine, ...] = ()
    died: WorkerDied | None = None
    fatal: Failure | None = None
    banner: Banner | None = None
    playback: Playback | None = None
    analysing: bool = False
    meters: Meters | None = None
    recording: bool = False
    heard_at: float | None = None
    stage_at: float | None = None
    unseen: int = 0
    page: str = ""
    selection: Selection = NOTHING
    held: bool = False
    shelf: Shelf = NO_FILES
    comparison: ComparisonState = NO_COMPARISON
    preview: "Preview | None" = None
    recorded_on: str = ""
    attached: Attached | None = None
    now: float = 0.0
    frozen: bool = False

    @property
    def variant(self) -> str | None:
        return self.choices[self.current].name if self.current >= 0 else None

    @property
    def possible(self) -> tuple[int, ...]:
        places = range(len(self.choices))
        return tuple(place for place in places if self.choices[place].unavailable is None)

    @property
    def live_figures(self) -> bool:
        """Whether the figures describe a run in progress."""
        return self.died is None and self.state in ("running", "capturing")

    @property
    def following(self) -> bool:
        """Whether what is shown is the newest moment of a run that another process records."""
        return self.playback is not None and self.playback.state == "following"

    @property
    def is_attached(self) -> bool:
        """Whether what is shown is of something that runs now, outside this app."""
        return self.attached is not None and self.kind != "replay"

    @property
    def silent_s(self) -> float | None:
        """For how many seconds nothing was heard of the worker, if it should have said something:
        it sends figures or heartbeats, except while it captures, loads or builds; then only a much
        longer silence means anything. None otherwise. Heartbeats are not recorded, so of a run that
        is followed only the silence of a running worker counts."""
        allowed_s = _WORD_WITHIN_S.get(self.state)
        heard = self.kind == "live" or (self.following and self.live_figures)
        if not heard or self.died or self.heard_at is None or allowed_s is None:
            return None
        rates = self.stats and self.stats.rates
        if rates and self.state in ("running", "capturing"):
            # A window of slow steps takes that long.
            allowed_s += _STEPS_OF_A_WINDOW * rates.step_p99_ns / 1e9
        elif self.interpreted and self.state == "running":
            allowed_s = _WORD_WITHIN_S["building"]
        silent_s = self.now - self.heard_at
        return silent_s if silent_s > allowed_s else None

    @property
    def progress(self) -> str:
        """The slow stage in progress, and how long it has taken so far."""
        if not self.detail or self.stage_at is None:
            return self.detail
        so_far_s = max(self.now - self.stage_at, 0.0)
        if so_far_s < 1.0:
            return self.detail
        return f"{self.detail}, {so_far_s:.0f} s"

    @property
    def about(self) -> Hello | CaptureInfo | None:
        return self.hello or (self.window.report.capture if self.window else None)

    @property
    def on_cpu(self) -> bool:
        """Whether the figures count the CPU's innermost operators instead of GPU ops."""
        return self.about is not None and self.about.device == "cpu"

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter runs the variant."""
        is_known = 0 <= self.current < len(self.choices)
        return is_known and self.choices[self.current].interpreted

    @property
    def has_steps(self) -> bool:
        return self.window is not None and self.window.tracks.home_step is not None

    @property
    def waiting(self) -> str:
        """Why there is no window to show."""
        if self.state == "unreadable":
            return "this file could not be read"
        if self.attached is not None and not self.choices:
            return self.attached.offer if self.is_attached else "no window until this moment"
        if self.kind == "trace":
            return "reading the trace…"
        if self.analysing:
            return f"analysing the window of {self.variant}"
        if self.died is not None or self.state in ("ended", "failed"):
            return "no window was captured"
        if self.interpreted:
            return f"Triton's interpreter runs {self.variant}: its tokens count, its times do not"
        if self.variant:
            return f"waiting for the first window of {self.variant}"
        return "waiting for the worker"

    @property
    def window_note(self) -> str:
        """How old the window is, and what makes it differ from the run; "" without a window."""
        window = self.window
        if window is None:
            return ""
        parts = []
        if self.frozen:
            parts.append("frozen")
        elif self.held:
            parts.append("held for what is chosen: esc")
        elif self.kind != "trace":
            parts.append(f"window {age(self.now - window.at)} ago")
        capture = window.report.capture
        then_ns = capture.unprofiled_step_ns if capture is not None else None
        if self.stats is not None and self.stats.step_p50_ns and then_ns:
            now_ns = self.stats.step_p50_ns
            if max(now_ns, then_ns) > _OTHER_PACE * min(now_ns, then_ns):
                parts.append(f"a step took {duration(then_ns)} then")
        slowdown = window.report.answer.profiler_ratio
        if slowdown is not None and slowdown > PROFILER_MATTERS:
            parts.append(f"profiler \u00d7{slowdown:.2f}")
        if window.report.health.status == "degraded":
            parts.append("degraded trace")
        return " · ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Preview:
    """The `view` of a recording of what a run is starting to decode; `parts` are those that the run
    itself has not reported."""

    view: View
    parts: frozenset[Part] = frozenset(("figures", "window"))


def stand_in(view: View, part: Part | None) -> View:
    """The view for a panel that draws `part` of a run; None draws other things."""
    preview = view.preview
    return view if preview is None or part not in preview.parts else preview.view


def remaining(view: View) -> Preview | None:
    """The preview with the parts that the run has not reported; None if nothing is left, the run is
    over, or it decodes something else."""
    preview = view.preview
    if preview is None or view.died is not None or view.fatal or view.state in _OVER:
        return None
    recorded = preview.view
    if view.variant not in (None, recorded.variant) or not _same_run(view, recorded):
        return None
    parts = preview.parts
    if view.stats is not None:
        parts -= {"figures"}
    if view.window is not None:
        parts -= {"window"}
    return replace(preview, parts=parts) if parts else None


def _same_run(view: View, recorded: View) -> bool:
    """Whether both greetings, if there are any, name the same model and workload, on a GPU."""
    if view.hello is None or recorded.hello is None:
        return True
    names = ("model", "device", "dtype", "batch")
    return all(getattr(view.hello, name) == getattr(recorded.hello, name) for name in names)
