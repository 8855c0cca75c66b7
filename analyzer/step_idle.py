"""Idle time inside each step's GPU span, by class.

Idle is when no device that the step used did anything. Of a step on one device these are that
device's gaps; on several, the gaps of all of them together, which have the class that the op that
ends them gives them (see `gaps`). Either way the classes of a step add up to its idle time.
"""

import numpy as np

from decodescope.analyzer.gaps import Gaps, find_gaps
from decodescope.analyzer.launches import LaunchCalls
from decodescope.analyzer.report import GAP_CLASSES
from decodescope.analyzer.steps import Steps, by_devices
from decodescope.analyzer.timeline import Union, merged
from decodescope.analyzer.trace import Int64s, Trace


def step_idle_ns(
    trace: Trace, unions: dict[int, Union], gaps: Gaps, launches: LaunchCalls, steps: Steps
) -> Int64s:
    """Idle ns: int64 [steps, classes], classes as in `GAP_CLASSES`; 0 for a step without ops."""
    idle_ns = np.zeros((len(steps), len(GAP_CLASSES)), dtype=np.int64)
    for devices, indices in by_devices(steps.devices).items():
        together = gaps
        if len(unions) > 1:
            busy = merged([unions[device] for device in devices])
            together = find_gaps(trace, (busy,), launches, gaps.floors_ns)
        start, end = steps.span_start_ns[indices], steps.span_end_ns[indices]
        idle_ns[indices] = _inside(together, start, end)
    return idle_ns


def _inside(gaps: Gaps, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """Time of the gaps between each start and end, by class.

    Both are edges of busy time, so that no gap lies across them, and gaps are in order of time.
    """
    rows = np.arange(len(gaps))
    until = np.zeros((len(gaps) + 1, len(GAP_CLASSES)), dtype=np.int64)
    until[rows + 1, gaps.kind] = gaps.end_ns - gaps.start_ns
    np.cumsum(until, axis=0, out=until)
    first = np.searchsorted(gaps.start_ns, start_ns)
    after = np.searchsorted(gaps.end_ns, end_ns, side="right")
    return np.asarray(until[after] - until[first], dtype=np.int64)
