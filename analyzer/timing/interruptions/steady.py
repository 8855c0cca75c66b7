"""The steady state: the time of devices and steps without interruptions.

Whatever lies inside an interruption is taken away: window = steady window + interruptions, and so
for busy time and each class of idle time. A step on several devices is interrupted while all of
them are. A step that takes as long as its host marker or its GPU span, whichever is longer, still
does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.intervals import covered_inside, depth_changes
from decodescope.analyzer.timing.steps import Steps, by_devices
from decodescope.analyzer.timing.timeline import Timeline, idle_inside
from decodescope.analyzer.trace import Columns, Int64s, Intervals


@dataclass(frozen=True, slots=True, eq=False)
class InterruptedSteps(Columns):
    """The interrupted time of each step, in ns: of its time, its host marker, its GPU span and the
    busy time in it, and each class of idle in it ([steps, classes])."""

    time_ns: Int64s
    host_ns: Int64s
    span_ns: Int64s
    busy_ns: Int64s
    idle_ns: Int64s


def interrupted_in_steps(
    timeline: Timeline, interruptions: Sequence[Interruption]
) -> InterruptedSteps:
    steps = timeline.steps
    count = len(steps)
    time_ns, host_ns, span_ns, busy_ns = np.zeros((4, count), dtype=np.int64)
    idle_ns = np.zeros((count, len(GAP_CLASSES)), dtype=np.int64)
    interrupted = InterruptedSteps(time_ns, host_ns, span_ns, busy_ns, idle_ns)
    if not interruptions or not count:
        return interrupted
    markers = steps.host
    hosts = [interruption.host for interruption in interruptions if interruption.host is not None]
    host_ns[:] = covered_inside(_merged(hosts), markers)
    for devices, rows in by_devices(steps.devices).items():
        step_indices = np.array(rows)
        times = Intervals(
            steps.span.start_ns[step_indices],
            steps.span.start_ns[step_indices] + steps.time_ns[step_indices],
        )
        time_ns[step_indices] = covered_inside(interrupted_times(interruptions, devices), times)
        span_ns[step_indices], idle_ns[step_indices] = interrupted_inside(
            timeline, interruptions, devices, steps.span.take(step_indices)
        )
    busy_ns[:] = span_ns - idle_ns.sum(axis=1)
    last = steps.time_ns == np.maximum(markers.length_ns, steps.span.length_ns)
    kept_ns = np.maximum(markers.length_ns - host_ns, steps.span.length_ns - span_ns)
    time_ns[last] = (steps.time_ns - kept_ns)[last]
    return interrupted


def interrupted_inside(
    timeline: Timeline,
    interruptions: Sequence[Interruption],
    devices: tuple[int, ...],
    spans: Intervals,
) -> tuple[Int64s, Int64s]:
    """How long all of `devices` are interrupted in each span, and the part of that in each class of
    idle ([spans, classes])."""
    interrupted = interrupted_times(interruptions, devices)
    idle_ns = np.zeros((len(spans), len(GAP_CLASSES)), dtype=np.int64)
    idle = timeline.idle_of(devices)
    for start, end in zip(interrupted.start_ns.tolist(), interrupted.end_ns.tolist(), strict=True):
        touched = np.flatnonzero((spans.start_ns < end) & (spans.end_ns > start))
        clipped = spans.take(touched)
        clipped = Intervals(np.maximum(clipped.start_ns, start), np.minimum(clipped.end_ns, end))
        idle_ns[touched] += idle_inside(idle, clipped)
    return covered_inside(interrupted, spans), idle_ns


def timed_steps(steps: Steps, interrupted: InterruptedSteps, among: Int64s) -> Int64s:
    """The steps whose median is the step time: those followed by another step with ops, else all
    with ops; without an interruption, if there are such steps. Only the steps `among` count. Empty
    if none of them has ops."""
    launched = among[steps.gpu_ops[among] > 0]
    after = steps.following[launched]
    followed = launched[(after >= 0) & (steps.gpu_ops[after] > 0)]
    for candidates in (
        followed[interrupted.time_ns[followed] == 0],
        launched[interrupted.time_ns[launched] == 0],
        followed,
    ):
        if len(candidates):
            return candidates
    return launched


def median_step(steps: Steps, interrupted: InterruptedSteps, timed: Int64s) -> int | None:
    """The step with the (lower) median steady time among `timed`, None if that is empty."""
    if not len(timed):
        return None
    steady_ns = steps.time_ns[timed] - interrupted.time_ns[timed]
    ordered = timed[np.argsort(steady_ns, kind="stable")]
    return int(ordered[(len(ordered) - 1) // 2])


def interrupted_times(interruptions: Sequence[Interruption], devices: tuple[int, ...]) -> Intervals:
    """The times at which each of `devices` is interrupted, from the first op of the trace on."""
    of_each = [
        _merged(
            [
                (interruption.start_ns, interruption.end_ns)
                for interruption in interruptions
                if interruption.device == device and not interruption.before_ops
            ]
        )
        for device in devices
    ]
    joined = Intervals.concatenate(of_each)
    return _deeper(joined.start_ns, joined.end_ns, len(devices))


def _merged(intervals: Sequence[tuple[int, int]]) -> Intervals:
    """The union of intervals in any order."""
    start_ns, end_ns = np.array(intervals, dtype=np.int64).reshape(-1, 2).T
    return _deeper(start_ns, end_ns, 1)


def _deeper(start_ns: Int64s, end_ns: Int64s, least: int) -> Intervals:
    """The times inside at least `least` of some intervals."""
    times_ns, depth = depth_changes(start_ns, end_ns)
    inside = np.flatnonzero(depth[:-1] >= least)
    return Intervals(times_ns[inside], times_ns[inside + 1])
