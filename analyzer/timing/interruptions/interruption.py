"""An interruption of one device, which interruptions lie in which gap, and steps without their
interruptions: how long each was interrupted, what is left of it, and which has the median time.

A step on several devices is interrupted while all of them are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.timing.intervals import covered_inside, depth_changes
from decodescope.analyzer.timing.steps import Steps, by_devices
from decodescope.analyzer.trace import Int64s, Intervals

Cause = Literal[
    "wait",
    "first_replay",
    "module_loading",
    "graph_upload",
    "graph_capture",
    "allocation",
    "profiler",
    "launch",
    "call",
    "late_start",
    "long_op",
    "window_edge",
    "unlinked",
    "host",
]


@dataclass(frozen=True, slots=True)
class Interruption:
    """The device did nothing for the steps in [start, end), for a cause that `evidence` shows.

    `call` indexes `Trace.calls` (-1 for none), `op` (that ended the gap, or ran long) `Trace.ops`.
    """

    device: int
    start_ns: int
    end_ns: int
    cause: Cause
    evidence: str
    call: int
    op: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def interruptions_by_gap(
    gaps: Gaps, interruptions: Sequence[Interruption]
) -> dict[int, list[Interruption]]:
    """The interruptions during each gap, by the gap's row and in order of time; gaps without one
    are left out."""
    by_gap: dict[int, list[Interruption]] = {}
    for interruption in sorted(interruptions, key=lambda interruption: interruption.start_ns):
        inside = (gaps.start_ns < interruption.end_ns) & (gaps.end_ns > interruption.start_ns)
        for row in np.flatnonzero(inside & (gaps.device == interruption.device)).tolist():
            by_gap.setdefault(row, []).append(interruption)
    return by_gap


def interrupted_in_steps(steps: Steps, interruptions: Sequence[Interruption]) -> Int64s:
    """How much of each step's time was interrupted: int64 ns."""
    interrupted_ns = np.zeros(len(steps), dtype=np.int64)
    if not interruptions:
        return interrupted_ns
    for devices, rows in by_devices(steps.devices).items():
        start_ns = steps.span.start_ns[rows]
        times = Intervals(start_ns, start_ns + steps.time_ns[rows])
        interrupted_ns[rows] = covered_inside(interrupted_times(interruptions, devices), times)
    return interrupted_ns


def without_interruptions(
    interruptions: Sequence[Interruption], devices: tuple[int, ...], start_ns: int, end_ns: int
) -> Intervals:
    """The pieces of [start, end) in which not all of `devices` are interrupted, in order."""
    interrupted = interrupted_times(interruptions, devices)
    edges_ns = np.clip([interrupted.start_ns, interrupted.end_ns], start_ns, end_ns)
    begin_ns = np.concatenate(([start_ns], edges_ns[1]))
    until_ns = np.concatenate((edges_ns[0], [end_ns]))
    kept = until_ns > begin_ns
    return Intervals(begin_ns[kept], until_ns[kept])


def timed_steps(steps: Steps, among: Int64s) -> Int64s:
    """The steps whose median is the step time, of those `among` all that have ops, or a time
    without ops: those that another step follows (the last one's time lacks the waiting behind it),
    else all."""
    launched = among[(steps.gpu_ops[among] > 0) | (steps.time_ns[among] > 0)]
    followed = launched[steps.following[launched] >= 0]
    return followed if len(followed) else launched


def median_step(steps: Steps, interrupted_ns: Int64s, timed: Int64s) -> int | None:
    """The step with the (lower) median time without interruptions among `timed`, None if that is
    empty."""
    if not len(timed):
        return None
    times_ns = steps.time_ns[timed] - interrupted_ns[timed]
    ordered = timed[np.argsort(times_ns, kind="stable")]
    return int(ordered[(len(ordered) - 1) // 2])


def interrupted_times(interruptions: Sequence[Interruption], devices: tuple[int, ...]) -> Intervals:
    """The times at which each of `devices` is interrupted."""
    of_each = []
    for device in devices:
        times_ns = [(each.start_ns, each.end_ns) for each in interruptions if each.device == device]
        columns = np.array(times_ns, dtype=np.int64).reshape(-1, 2).T
        of_each.append(_deeper(Intervals(*columns), 1))
    return _deeper(Intervals.concatenate(of_each), len(devices))


def _deeper(intervals: Intervals, least: int) -> Intervals:
    """The times inside at least `least` of some intervals, in any order."""
    times_ns, depth = depth_changes(intervals.start_ns, intervals.end_ns)
    inside = np.flatnonzero(depth[:-1] >= least)
    return Intervals(times_ns[inside], times_ns[inside + 1])
