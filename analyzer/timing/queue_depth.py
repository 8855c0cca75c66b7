"""How many ops wait on the device: at each launch call, and over time.

An op is queued from the start of its launch call (a graph launch queues all its ops at once) to its
own start. Ops without a launch call in the trace take no part.
"""

import numpy as np

from decodescope.analyzer.report import QueueDepth
from decodescope.analyzer.timing.timeline import Union, depth_at_starts, depth_changes
from decodescope.analyzer.trace import Int64s, Trace


def queue_depth_at_calls(trace: Trace, call: Int64s, first_op: Int64s) -> Int64s:
    """The depth of the called device's queue at the start of each `call`, its own ops included."""
    depth = np.zeros(len(call), dtype=np.int64)
    call_device = trace.ops.device[first_op]
    for device in np.unique(call_device).tolist():
        here = call_device == device
        launched_ns, started_ns = _queued(trace, device)
        depth[here] = depth_at_starts(launched_ns, started_ns, trace.calls.start_ns[call[here]])
    return depth


def queue_depth_over_time(trace: Trace, unions: dict[int, Union]) -> QueueDepth | None:
    """Mean, maximum and empty share over the windows of the devices that have linked ops.

    Weighted by time: mean = sum of (depth * how long) / sum of the windows. None where no op is
    linked or no time passed.
    """
    window_ns, empty_ns, deepest, weighted = 0, 0, 0, 0.0
    for device, busy in unions.items():
        launched_ns, started_ns = _queued(trace, device)
        if not len(launched_ns):
            continue
        begin, end = busy.start_ns[:1], busy.end_ns[-1:]
        times, depths = depth_changes(launched_ns, started_ns)
        edges = np.concatenate((begin, np.clip(times, begin, end), end))
        depths, widths = np.concatenate(([0], depths)), np.diff(edges)
        window_ns += int(end[0] - begin[0])
        empty_ns += int(widths[depths == 0].sum())
        deepest = max(deepest, int(depths[widths > 0].max(initial=0)))
        weighted += float(widths.astype(np.float64) @ depths)
    if not window_ns:
        return None
    return QueueDepth(mean=weighted / window_ns, max=deepest, empty_share=empty_ns / window_ns)


def _queued(trace: Trace, device: int) -> tuple[Int64s, Int64s]:
    """When each linked op of a device was launched, and when it started (never before that)."""
    ops = trace.ops
    mine = (ops.device == device) & (ops.launch >= 0)
    launched_ns = trace.calls.start_ns[ops.launch[mine]]
    return launched_ns, np.maximum(ops.start_ns[mine], launched_ns)
