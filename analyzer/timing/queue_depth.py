"""How many ops wait on the device: at each launch call, and over time.

An op is queued from the start of its launch call (a graph launch queues all its ops at once) to its
own start. Ops whose launch call is not in the trace are ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.schema.launch_report import QueueDepth
from decodescope.analyzer.timing.intervals import Union, depth_at_starts, depth_changes
from decodescope.analyzer.trace import Int64s, Intervals, Trace, rows_by

_PARTS = 120


@dataclass(frozen=True, slots=True, eq=False)
class _Queue(Intervals):
    """The depth of one device's queue along its window: adjacent intervals, none empty."""

    depth: Int64s


def queue_depth_at_calls(trace: Trace, call: Int64s, first_op: Int64s) -> Int64s:
    """The depth of the device's queue at the start of each `call`, including its own ops."""
    depth = np.zeros(len(call), dtype=np.int64)
    ops_of = rows_by(trace.ops.device)
    for device, here in rows_by(trace.ops.device[first_op]).items():
        at_ns = trace.calls.start_ns[call[here]]
        depth[here] = depth_at_starts(*times_in_queue(trace, ops_of[device]), at_ns)
    return depth


def queue_depth_over_time(trace: Trace, unions: dict[int, Union]) -> QueueDepth | None:
    """The figures of `QueueDepth`; None if no op is linked or no time passed."""
    ops_of = rows_by(trace.ops.device)
    found = (_queue(trace, ops_of[device], busy) for device, busy in unions.items())
    queues = [queue for queue in found if queue is not None]
    if not queues:
        return None
    window_ns = sum(int(queue.length_ns.sum()) for queue in queues)
    empty_ns = sum(int(queue.length_ns[queue.depth == 0].sum()) for queue in queues)
    weighted = sum(
        float((queue.length_ns * queue.depth.astype(np.float64)).sum()) for queue in queues
    )
    bucket_ns, over_time = _deepest_in_parts(queues)
    return QueueDepth(
        mean=weighted / window_ns,
        max=max(over_time),
        empty_share=empty_ns / window_ns,
        over_time=over_time,
        bucket_ns=bucket_ns,
    )


def _queue(trace: Trace, mine: Int64s, busy: Union) -> _Queue | None:
    """The queue of the device with the ops `mine`; None if none is linked or its window has no
    length."""
    launched_ns, started_ns = times_in_queue(trace, mine)
    begin, end = busy.start_ns[:1], busy.end_ns[-1:]
    if not len(launched_ns) or begin[0] == end[0]:
        return None
    times, depths = depth_changes(launched_ns, started_ns)
    edges = np.concatenate((begin, np.clip(times, begin, end), end))
    depths = np.concatenate((np.zeros(1, dtype=np.int64), depths))
    passes = edges[1:] > edges[:-1]
    return _Queue(edges[:-1][passes], edges[1:][passes], depths[passes])


def _deepest_in_parts(queues: Sequence[_Queue]) -> tuple[int, tuple[int, ...]]:
    """The length of a part, and the largest depth of any of the queues in each part."""
    begin = min(int(queue.start_ns[0]) for queue in queues)
    end = max(int(queue.end_ns[-1]) for queue in queues)
    part_ns = -(-(end - begin) // _PARTS)
    starts = np.arange(begin, end, part_ns)
    deepest = np.zeros(len(starts), dtype=np.int64)
    for queue in queues:
        first = np.searchsorted(queue.end_ns, starts, side="right")
        until = np.searchsorted(queue.start_ns, starts + part_ns, side="left")
        bounds = np.column_stack((first, until)).ravel()
        # reduceat returns the element at `first` if no interval is between the two bounds.
        found = np.maximum.reduceat(np.append(queue.depth, 0), bounds)[::2]
        deepest = np.maximum(deepest, np.where(first < until, found, 0))
    return part_ns, tuple(deepest.tolist())


def times_in_queue(trace: Trace, mine: Int64s) -> tuple[Int64s, Int64s]:
    """When each linked op among `mine` was launched, and when it started (at the earliest then)."""
    linked = mine[trace.ops.launch[mine] >= 0]
    launched_ns = trace.calls.start_ns[trace.ops.launch[linked]]
    return launched_ns, np.maximum(trace.ops.start_ns[linked], launched_ns)
