"""Idle time inside each step's GPU span, by class.

Idle is when no device that the step used did anything. Of a step on one device these are that
device's gaps; on several, the gaps of all of them together, which have the class that the op that
ends them gives them (see `gaps`). Either way the classes of a step add up to its idle time.
"""

import numpy as np

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.gaps import Gaps, find_gaps
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.steps import Steps, by_devices
from decodescope.analyzer.timing.timeline import Union, merged
from decodescope.analyzer.trace import Int64s, Trace


def step_idle_ns(
    trace: Trace, unions: dict[int, Union], gaps: Gaps, launches: LaunchCalls, steps: Steps
) -> Int64s:
    """Idle ns: int64 [steps, classes], classes as in `GAP_CLASSES`; 0 for a step without ops."""
    idle_ns = np.zeros((len(steps), len(GAP_CLASSES)), dtype=np.int64)
    for devices, indices in by_devices(steps.devices).items():
        together = gaps_of_devices(trace, unions, gaps, launches, devices)
        start, end = steps.span_start_ns[indices], steps.span_end_ns[indices]
        idle_ns[indices] = idle_between(together, start, end)
    return idle_ns


def gaps_of_devices(
    trace: Trace,
    unions: dict[int, Union],
    gaps: Gaps,
    launches: LaunchCalls,
    devices: tuple[int, ...],
) -> Gaps:
    """The intervals in which none of `devices` did anything; `gaps` are those of each device."""
    if len(unions) == 1:
        return gaps
    busy = merged([unions[device] for device in devices])
    return find_gaps(trace, (busy,), launches, gaps.floors_ns)


def idle_between(gaps: Gaps, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """Time of the gaps (of one union, in order) between each start and end, by class."""
    return _idle_until(gaps, end_ns) - _idle_until(gaps, start_ns)


def _idle_until(gaps: Gaps, times_ns: Int64s) -> Int64s:
    """How much of the gaps of each class lies before each time: int64 [times, classes]."""
    rows = np.arange(len(gaps))
    total = np.zeros((len(gaps) + 1, len(GAP_CLASSES)), dtype=np.int64)
    total[rows + 1, gaps.kind] = gaps.end_ns - gaps.start_ns
    np.cumsum(total, axis=0, out=total)
    begun = np.searchsorted(gaps.start_ns, times_ns, side="right")
    until = total[begun]
    inside = np.flatnonzero(begun)
    last = begun[inside] - 1
    until[inside, gaps.kind[last]] -= np.maximum(gaps.end_ns[last] - times_ns[inside], 0)
    return until
