"""The structures of the gate: what a baseline keeps, and what a gate reports."""

from typing import Literal

from msgspec import Struct

from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Interval

BASELINE_VERSION = 1

GateVerdict = Literal["slower", "within", "undecided"]


class Sample(Struct, frozen=True):
    """One trace, or one run of a variant. `step_times_ns` are the times of its timed steps, of a
    run its mean one; `part_times_ns` holds the time of each part in up to 100 of these steps, and
    is empty for a run."""

    path: str
    step_times_ns: tuple[int, ...]
    part_times_ns: dict[str, tuple[int, ...]]


class Subject(Struct, frozen=True):
    """The traces or runs that count as one: all traces ("step"), or the runs of one variant, by its
    name. `conditions` are what they were measured under, as `comparability.conditions_of`."""

    name: str
    conditions: dict[str, str]
    samples: tuple[Sample, ...]


class Baseline(Struct, frozen=True):
    """The contents of a file of `baseline save`; `saved_at` is an ISO 8601 time."""

    baseline_version: int
    name: str
    saved_at: str
    subjects: tuple[Subject, ...]


class GateRow(Struct, frozen=True):
    """One figure of one subject: its step time (`part` is null) or one part of the step.

    Each side is the lower median of its samples' lower medians, `ratio` = `now_ns` ÷ `base_ns`,
    null if one of them is 0. `interval` is that of `comparing.step_interval`; null with one sample
    a side and fewer than two steps in one.

    `allowed_percent` is how much longer the figure may take; null if the gate does not judge it,
    and then the `verdict` is null too. "slower": the interval lies above what is allowed; "within":
    it lies below. Otherwise "undecided", and `more_samples` is how many more each side would need
    to decide, null if that is unknown or no practical number is enough. `counted_in` is what they
    are: steps, if each side is one trace.
    """

    subject: str
    part: str | None
    base_ns: int
    now_ns: int
    ratio: float | None
    interval: Interval | None
    allowed_percent: float | None
    verdict: GateVerdict | None
    counted_in: Literal["step", "trace", "round"]
    more_samples: int | None = None


class GateReport(Struct, frozen=True):
    """`gate --json`. `verdict` is "slower" if any row is, else "undecided" if any row is. `rows`
    has each subject's step first, then its parts in order of the change."""

    baseline: str
    saved_at: str
    verdict: GateVerdict
    rows: tuple[GateRow, ...]
    conditions: dict[str, str]
    findings: tuple[Finding, ...]
