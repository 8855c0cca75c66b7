"""Compares two traces: step times, launches, idle of each class, ranges, roles, layers.

If decodescope captured both traces, their speeds are compared by the step times it measured without
a profiler; otherwise by the profiled steps. A profiled step takes as long as its host marker or its
GPU span, whichever is longer.
"""

from statistics import fmean

from decodescope.analyzer.comparing.bootstrap import MIN_ROUNDS, unpaired_ratio
from decodescope.analyzer.comparing.comparability import (
    step_differences,
    structure_findings,
    window_findings,
    workload_differences,
)
from decodescope.analyzer.comparing.comparison import speed_ratio
from decodescope.analyzer.comparing.pair_changes import pair_of, uninterrupted_steps
from decodescope.analyzer.schema.comparison_report import Change, Diff, SpeedRatio
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, Report
from decodescope.analyzer.text.formatting import ratio_text

BASE, OTHER = "A", "B"


def diff_reports(base: Report, other: Report) -> Diff:
    """The changes from `base` (A) to `other` (B), and findings on what limits the comparison.

    `pair.speed` is null if a trace has no step that took time. From unprofiled step times it is one
    ratio without an interval; from profiled steps it has that of `bootstrap.unpaired_ratio`. Traces
    of different batch sizes are compared by tokens/s, not by steps/s.
    """
    unprofiled, profiled = _unprofiled(base, other), _profiled(base, other)
    step_ns, speed = unprofiled or profiled
    return Diff(
        schema_version=SCHEMA_VERSION,
        base=base,
        other=other,
        pair=pair_of((base.source.path, other.source.path), (base, other), speed, step_ns),
        findings=(
            *_workload_findings(base, other),
            *_step_findings(base, other),
            *structure_findings((BASE, OTHER), (base, other)),
            *_speed_findings(speed, profiled[1]),
            *window_findings(BASE, base),
            *window_findings(OTHER, other),
        ),
        gate=None,
    )


def has_unprofiled_times(diff: Diff) -> bool:
    """Whether the compared step times were measured without a profiler."""
    return _unprofiled(diff.base, diff.other) is not None


def _unprofiled(base: Report, other: Report) -> tuple[Change, SpeedRatio] | None:
    base_ns, other_ns = (
        report.capture.unprofiled_step_ns if report.capture else None for report in (base, other)
    )
    if base_ns is None or other_ns is None or min(base_ns, other_ns) <= 0:
        return None
    reason = (
        "each trace carries one unprofiled step time; an interval needs repeated runs, "
        "as compare makes them"
    )
    value = base_ns / other_ns * _tokens_ratio(base, other)
    return Change(base_ns, other_ns), speed_ratio(value, None, reason)


def _profiled(base: Report, other: Report) -> tuple[Change, SpeedRatio | None]:
    base_ns, other_ns = _step_times_ns(base), _step_times_ns(other)
    change = Change(*(fmean(times) if times else None for times in (base_ns, other_ns)))
    if change.base is None or change.other is None:
        return change, None
    tokens_ratio = _tokens_ratio(base, other)
    interval = unpaired_ratio(other_ns, [time * tokens_ratio for time in base_ns])
    fewest = min(len(base_ns), len(other_ns))
    reason = f"{fewest} steps: an interval needs at least {MIN_ROUNDS}"
    return change, speed_ratio(change.base / change.other * tokens_ratio, interval, reason)


def _step_times_ns(report: Report) -> list[int]:
    times = (max(step.host_ns or 0, step.gpu_span_ns or 0) for step in uninterrupted_steps(report))
    return [time for time in times if time > 0]


def _tokens_ratio(base: Report, other: Report) -> float:
    """Tokens of a step of `other` ÷ those of a step of `base`; 1 if they are unknown."""
    if base.capture is None or other.capture is None:
        return 1.0
    if min(base.capture.batch, other.capture.batch) < 1:
        return 1.0
    return other.capture.batch / base.capture.batch


def _workload_findings(base: Report, other: Report) -> list[Finding]:
    if base.capture is not None and other.capture is not None:
        differences = workload_differences(base.capture, other.capture)
    else:
        differences = step_differences(base, other)
        if _devices(base) != _devices(other):
            devices = f"devices {_devices(base)} against {_devices(other)}"
            differences = (devices, *differences)
    if not differences:
        return []
    message = "A and B are not of one workload, so a change may come from that: "
    return [Finding("different_workloads", message + ", ".join(differences))]


def _devices(report: Report) -> str:
    names = [device.name or f"unnamed {device.device}" for device in report.devices]
    return ", ".join(names) or "none"


def _step_findings(base: Report, other: Report) -> list[Finding]:
    if base.steps and other.steps:
        return []
    if base.steps or other.steps:
        lacking = OTHER if base.steps else BASE
        message = f"{lacking} has no step markers, so its figures per step are unknown"
        return [Finding("steps_on_one_side", message)]
    message = "no step markers on either side: the figures are of the whole traces"
    return [Finding("whole_traces", message)]


def _speed_findings(speed: SpeedRatio | None, profiled: SpeedRatio | None) -> list[Finding]:
    if profiled is None:
        return [] if speed else [Finding("nothing_timed", "no step times, so no ratio of speeds")]
    if profiled is speed:
        message = (
            "step times are those of profiled steps, and the steps of one window depend on "
            "each other: the real uncertainty is larger than an interval over them says"
        )
        return [Finding("profiled_steps", message)]
    message = (
        f"under the profiler the ratio would be {ratio_text(profiled.value)}; idle, busy and "
        "ranges come from those profiled steps"
    )
    return [Finding("observer_effect", message)]
