"""The structures of a comparison: which variant is faster, how certain that is, what changed."""

from typing import Literal

from msgspec import Struct

from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.run_report import Accuracy, Interval, RunReport

ChangeVerdict = Literal["faster", "slower", "no_difference_shown", "unknown"]

PartKind = Literal[
    "role",
    "idle",
    "host_tail",
    "beyond_step",
    "not_busy",
    "layer",
    "more_layers",
    "prologue",
    "epilogue",
    "outside",
]


class StepPartChange(Struct, frozen=True):
    """One part of both steps; a side that lacks it is null. `change_ns` is other - base, where a
    missing part takes no time.

    `kind` says what `part` is:

    - role: the attributed time of a role (`RoleReport`)
    - layer: that of one layer, or of as many layers of a motif as both sides have, at their mean
    - more_layers: that of the layers which one side has more
    - prologue, epilogue, outside: that of the ops before and after the layers, and of other ops
      that ran in the step: of other steps, or of devices without layers
    - idle: idle time of one class, host_tail: the host's time after the last op (`waterfall`)
    - not_busy: idle time and host tail together
    - beyond_step: what roles and layers count, but the step's time does not (negative): ops that
      ran while the next step did, or during an interruption

    Ops are null for time in which nothing runs.
    """

    part: str
    kind: PartKind
    base_ns: int | None
    other_ns: int | None
    change_ns: int
    base_ops: int | None = None
    other_ops: int | None = None


class StepChanges(Struct, frozen=True):
    """The profiled steps that stand for two traces (`StructureReport.step`), without
    interruptions. `roles` adds up to `change_ns` exactly, and each side of it to that side's step;
    so does `layers`, which is empty unless both steps have layers. The largest change is first."""

    base_ns: int
    other_ns: int
    change_ns: int
    roles: tuple[StepPartChange, ...]
    layers: tuple[StepPartChange, ...] = ()


class SpeedRatio(Struct, frozen=True):
    """tokens/s of `other` ÷ that of `base`, from the paired rounds of one comparison, or from the
    step times of two traces.

    "no_difference_shown" if the interval contains 1. `interval` is null if there were too few
    rounds (or steps) for one; then the verdict is "unknown" and `reason` says why.
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
    """The changes from `base` to `other`, per step (for two traces without step markers in total;
    a finding says so). `idle_ns` has every gap class, and "all".

    `speed` is null if nothing was timed. `step_ns` is the step time that it compares: unprofiled if
    that was measured. All other figures come from the profiled windows: means of
    their steps, idle and busy inside the steps' GPU spans. `overlapping`: ops overlap on a side, so
    that its ranges are to be compared by `attributed_ns`, not by `gpu_ns`.
    """

    base: str
    other: str
    speed: SpeedRatio | None
    step_ns: Change
    launch_calls: Change
    gpu_ops: Change
    busy_ns: Change
    idle_ns: dict[str, Change]
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


class Gate(Struct, frozen=True):
    """The regression gate: `failures` has one sentence for each figure that is too slow;
    `baseline` is the file it was compared with."""

    baseline: str
    allowed_percent: float
    failures: tuple[str, ...]


class ComparisonResult(Struct, frozen=True):
    """`pairs` compare every variant with the first, then each with the one before it. `standings`
    has the variants with both tokens/s and accuracy, fastest first; it is empty if fewer than two
    have both."""

    rounds: int
    variants: tuple[VariantRates, ...]
    pairs: tuple[Pair, ...]
    findings: tuple[Finding, ...]
    gate: Gate | None
    standings: tuple[Standing, ...] = ()


class Comparison(Struct, frozen=True):
    """`compare --json`: every run of every round in the order they ran, one profiled window of
    each variant (by variant name), and their comparison."""

    schema_version: int
    runs: tuple[RunReport, ...]
    windows: dict[str, Report]
    comparison: ComparisonResult


class Diff(Struct, frozen=True):
    """`diff A B --json`: two traces' reports, and what changed from A to B."""

    schema_version: int
    base: Report
    other: Report
    pair: Pair
    findings: tuple[Finding, ...]
    gate: Gate | None
