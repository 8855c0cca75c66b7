"""The structures of a comparison: which variant is faster, how certain that is, what changed."""

from typing import Literal

from msgspec import Struct

from decodescope.analyzer.schema.answer import PartGroup
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.run_report import Accuracy, Interval, RunReport

ChangeVerdict = Literal["faster", "slower", "no_difference_shown", "unknown"]


class PartChange(Struct, frozen=True):
    """One part of both steps (`AnswerPart`), or of both windows if neither trace has steps; a side
    that lacks it is null. `change_ns` is other - base, where a missing part takes no time. The ops
    of idle time and of the profiler's cost are null."""

    part: str
    group: PartGroup
    base_ns: int | None
    other_ns: int | None
    change_ns: int
    base_ops: int | None = None
    other_ops: int | None = None


class StepChanges(Struct, frozen=True):
    """Two step times (`Answer.step_ns`) and what changed between the two median steps: `parts` add
    up to `other_step_ns` - `base_step_ns` exactly, and each side of them to that side's step time.
    The largest change is first.

    Without steps on either side, the step times are null and `parts` are those of the whole
    windows; with steps on one side only, there are no parts."""

    base_step_ns: int | None
    other_step_ns: int | None
    parts: tuple[PartChange, ...]


class SideTrace(Struct, frozen=True):
    """One trace of a side: its file, and the times of the steps whose median `step_ns` is (null
    without steps)."""

    path: str
    step_ns: int | None
    step_times_ns: tuple[int, ...]


class DiffAnswer(StepChanges, frozen=True, kw_only=True):
    """Step against step. `ratio` = `other_step_ns` ÷ `base_step_ns`: above 1, the other side is
    slower. Of several traces a side, the step time is that of the trace with the (lower) median
    one, and the parts are that trace's.

    `differences` are those of the work (model, kind of step, batch, …) and of the devices. With
    any, `ratio` is the quotient of two times and says nothing about which side is faster: the
    verdict is "unknown", as it is without an `interval`, and `reason` says why.

    `interval` is that of `comparing.step_interval`; null with one trace a side and fewer than two
    steps in one. If it contains 1, `more_base` and `more_other` are how many more traces of each
    side (more steps, of one trace a side) would show this difference; null if it is shown, if there
    is none, or if no practical number would.

    `unprofiled_ratio` is that of the step times that decodescope measured without a profiler, null
    unless both sides have one. It has no interval: a capture carries one such time.
    """

    ratio: float | None
    interval: Interval | None
    verdict: ChangeVerdict
    reason: str | None
    differences: tuple[str, ...]
    base_traces: tuple[SideTrace, ...]
    other_traces: tuple[SideTrace, ...]
    more_base: int | None = None
    more_other: int | None = None
    unprofiled_ratio: float | None = None


class SpeedRatio(Struct, frozen=True):
    """tokens/s of `other` ÷ that of `base`, from the paired rounds of one comparison.

    "no_difference_shown" if the interval contains 1. `interval` is null if there were too few
    rounds for one; then the verdict is "unknown" and `reason` says why.
    """

    value: float
    interval: Interval | None
    verdict: ChangeVerdict
    reason: str | None = None


class Change(Struct, frozen=True):
    """One figure before and after, null if its inputs are missing."""

    base: float | None
    other: float | None

    @property
    def moved(self) -> float:
        """`other` - `base`, where a side that is null counts as 0."""
        return (self.other or 0.0) - (self.base or 0.0)

    @property
    def ratio(self) -> float | None:
        """`other` ÷ `base`; None if one is null or `base` is 0."""
        return self.other / self.base if self.base and self.other is not None else None


class RangeChange(Struct, frozen=True):
    """One range of both sides, per step; layers are summed (`layer.*`).

    `path` is that of `other`, or of `base` if only that has it. If fusion divided the work
    differently, ranges that can only be compared together are one row: its path joins the names of
    their parts with "+", `replaced` lists those of `base`, and each side is their sum. A side that
    lacks the range is null. Where ops overlap, a sum of `gpu_ns` counts time twice, one of
    `attributed_ns` never does.
    """

    path: str
    replaced: tuple[str, ...]
    gpu_ns: Change
    idle_ns: Change
    gpu_ops: Change
    launch_calls: Change
    attributed_ns: Change


class Pair(Struct, frozen=True):
    """The changes from `base` to `other`.

    In a comparison, `speed` is the ratio of tokens/s (null if nothing was timed), and `step` what
    changed between the profiled windows. In a diff both are null: `Diff.answer` has its ratio and
    parts. `ranges` are means of the main steps (`Report.main_steps`), for two traces without steps
    totals; a finding says so. `overlapping`: ops overlap on a side, so that its ranges are to be
    compared by `attributed_ns`, not by `gpu_ns`.
    """

    base: str
    other: str
    speed: SpeedRatio | None
    ranges: tuple[RangeChange, ...]
    overlapping: bool = False
    step: StepChanges | None = None


class VariantRates(Struct, frozen=True):
    """tokens/s of one variant, round by round, with the interval of their mean. A variant that was
    `interpreted` has none."""

    variant: str
    tokens_per_s: tuple[float, ...]
    mean: float | None
    interval: Interval | None
    accuracy: Accuracy | None
    interpreted: bool = False


class Standing(Struct, frozen=True):
    """One variant's speed (mean tokens/s) beside its error (mean KL, nats), and the variants that
    beat it in both, fastest first. Nothing beats it if `beaten_by` is empty;
    decodescope.analyzer.comparing.comparison has the rule."""

    variant: str
    tokens_per_s: float
    kl: float
    beaten_by: tuple[str, ...]


class ComparisonResult(Struct, frozen=True):
    """`pairs` compare every variant with the first, then each with the one before it. `standings`
    has the variants with both tokens/s and accuracy, fastest first; it is empty if fewer than two
    have both."""

    rounds: int
    variants: tuple[VariantRates, ...]
    pairs: tuple[Pair, ...]
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...] = ()


class Comparison(Struct, frozen=True):
    """`compare --json`: every run of every round in the order they ran, one profiled window of
    each variant (by variant name), and their comparison."""

    schema_version: int
    runs: tuple[RunReport, ...]
    windows: dict[str, Report]
    comparison: ComparisonResult


class Diff(Struct, frozen=True):
    """`diff A B --json`: what changed from A to B. `base` and `other` are the reports of the traces
    that `answer` compares: of several a side, those with the median step time."""

    schema_version: int
    answer: DiffAnswer
    base: Report
    other: Report
    pair: Pair
    findings: tuple[Finding, ...]
