"""A comparison as the app follows it: its events folded into one immutable state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonConfig,
    ComparisonDone,
    ComparisonProgress,
    RoundCompared,
    RunMeasured,
)
from decodescope.analyzer.errors import process_end
from decodescope.analyzer.protocol.messages import Bye, Failure
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.comparison import ComparisonLinkEvent

if TYPE_CHECKING:
    from decodescope.analyzer.tracks.aligned_steps import AlignedSteps

SideName = Literal["", "A", "B", "x"]
Phase = Literal["idle", "reading", "running", "cancelling", "cancelled", "done", "failed"]

DEFAULT_ROUNDS = 5
MOST_ROUNDS = 99


@dataclass(frozen=True, slots=True)
class ComparisonState:
    """A comparison and its result. `toggled` are the variants whose choice the user changed,
    `sides` the files that the user put on a side, each with what was open, `runs` those that are
    complete.

    `result` is the latest comparison or diff, also while the next round is measured and after a
    failure; `origin` says what it is of, and `steps` are those of files. `side` is compared with
    the first one in detail, "" for the last. `worker_paused`: the live worker waits until the
    comparison has ended.
    """

    phase: Phase = "idle"
    toggled: frozenset[str] = frozenset()
    sides: Mapping[tuple[str, ...], SideName] = field(default_factory=dict)
    rounds: int = DEFAULT_ROUNDS
    config: ComparisonConfig | None = None
    progress: ComparisonProgress | None = None
    runs: tuple[RunReport, ...] = ()
    result: Comparison | Diff | None = None
    origin: str = ""
    steps: "AlignedSteps | None" = None
    error: str = ""
    side: str = ""
    worker_paused: bool = False

    @property
    def measuring(self) -> bool:
        return self.phase in ("running", "cancelling")

    @property
    def busy(self) -> bool:
        """Whether variants are measured, or files are read."""
        return self.measuring or self.phase == "reading"

    def begun(self, config: ComparisonConfig) -> "ComparisonState":
        """A comparison of variants begins; nothing of an earlier one is left."""
        return ComparisonState(
            phase="running",
            toggled=self.toggled,
            sides=self.sides,
            rounds=self.rounds,
            config=config,
            origin="measured here",
            worker_paused=self.worker_paused,
        )

    def failed(self, error: str) -> "ComparisonState":
        return replace(self, phase="failed", error=error, progress=None)

    def received(self, event: ComparisonLinkEvent) -> "ComparisonState":
        match event:
            case ComparisonProgress():
                return replace(self, progress=event)
            case RunMeasured(report=report):
                return replace(self, runs=(*self.runs, report))
            case RoundCompared(comparison=comparison):
                return replace(self, result=comparison)
            case ComparisonDone(comparison=comparison):
                stopped = self.phase in ("cancelling", "cancelled")
                phase: Phase = "cancelled" if stopped else "done"
                return replace(self, result=comparison, phase=phase, progress=None)
            case Failure(message=message):
                return self.failed(message)
            case Bye(reason="cancelled"):
                return replace(self, phase="cancelled", progress=None)
            case WorkerDied(exit_code=code, log_tail=tail) if self.measuring:
                last = f"; its last output: {tail[-1]}" if tail else ""
                return self.failed(f"the comparison's process {process_end(code)}{last}")
        return self


NO_COMPARISON = ComparisonState()
