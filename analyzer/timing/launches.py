"""Host API calls by name and thread: which launched work on a device, which captured graphs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.schema.kernel_report import QueueDepth
from decodescope.analyzer.timing.intervals import Union, depth_at_starts, depth_changes, union
from decodescope.analyzer.trace import (
    Bools,
    Columns,
    HostEvents,
    HostTimes,
    Int8s,
    Int64s,
    Intervals,
    Trace,
    grouped,
    rows_by,
)

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
DEVICE_WORK = re.compile(
    r"Launch(?:Cooperative)?Kernel|KernelLaunch|GraphLaunch|Mem(?:cpy|set)", re.IGNORECASE
)
KERNEL_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel")
BEGIN_CAPTURE = re.compile(r"StreamBeginCapture")
END_CAPTURE = re.compile(r"StreamEndCapture")
_INSTANTIATE = re.compile(r"GraphInstantiate|GraphUpload")

_PARTS = 120


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCalls(Columns):
    """One row for each call that put at least one GPU op on a device, in order of call start.

    `call` indexes `Trace.calls`, `first_op` is its earliest op in `Trace.ops`, `ops` the number of
    its ops. `queue_depth` is the number of ops of that device that are launched but not yet started
    when the call starts, including its own (a graph launch adds all its ops).
    """

    call: Int64s
    first_op: Int64s
    ops: Int64s
    is_graph: Bools
    queue_depth: Int64s

    def rows_of_ops(self, trace: Trace) -> Int64s:
        """The row of each op's call, -1 for none."""
        row = np.full(len(trace.calls) + 1, -1, dtype=np.int64)
        row[self.call] = np.arange(len(self))
        return np.asarray(row[trace.ops.launch])


def find_launch_calls(trace: Trace) -> LaunchCalls:
    """The launch calls of a trace; ops whose call is not in the trace are ignored."""
    linked = np.flatnonzero(trace.ops.launch >= 0)
    call, first, ops = np.unique(trace.ops.launch[linked], return_index=True, return_counts=True)
    first_op = linked[first]
    queue_depth = np.zeros(len(call), dtype=np.int64)
    ops_of = rows_by(trace.ops.device)
    for device, launch_rows in rows_by(trace.ops.device[first_op]).items():
        at_ns = trace.calls.start_ns[call[launch_rows]]
        queue_depth[launch_rows] = depth_at_starts(*times_in_queue(trace, ops_of[device]), at_ns)
    return LaunchCalls(
        call=call,
        first_op=first_op,
        ops=ops,
        is_graph=graph_launch_calls(trace)[call],
        queue_depth=queue_depth,
    )


def lost_launches(trace: Trace, launches: LaunchCalls) -> tuple[Int64s, int]:
    """The kernel launches without an op (indices of `Trace.calls`), and the number of all launches.

    Their ops are missing because the end of the trace was cut off or records were lost.
    """
    made = _made(trace, calls_named(trace, KERNEL_LAUNCH))
    correlation = trace.calls.correlation
    lost = ~np.isin(correlation[made], correlation[launches.call])
    return made[lost], len(made)


def launches_without_ops(trace: Trace) -> LaunchCalls:
    """The launches of kernels and graphs of a trace without an op, as if each had put one on a
    device."""
    is_graph = graph_launch_calls(trace)
    call = _made(trace, calls_named(trace, KERNEL_LAUNCH) | is_graph)
    none = np.zeros(len(call), dtype=np.int64)
    return LaunchCalls(call, none, none + 1, is_graph[call], none)


def _made(trace: Trace, is_launch: Bools) -> Int64s:
    """Which calls launch. Launches captured into a graph do not count. Calls with one correlation
    id (a driver call below a runtime call) are one launch."""
    correlation = trace.calls.correlation
    made = np.flatnonzero(is_launch & ~while_capturing(trace) & (correlation > 0))
    return made[np.sort(np.unique(correlation[made], return_index=True)[1])]


def first_matches(trace: Trace, events: HostEvents, patterns: Sequence[re.Pattern[str]]) -> Int8s:
    """For each event, the index of the first pattern that is found in its name, -1 for none."""
    used = np.bincount(events.name, minlength=len(trace.names))
    matches = np.full(len(used), -1, dtype=np.int8)
    for name in np.flatnonzero(used).tolist():
        found_in = (i for i, pattern in enumerate(patterns) if pattern.search(trace.names[name]))
        matches[name] = next(found_in, -1)
    return np.asarray(matches[events.name], dtype=np.int8)


def calls_named(trace: Trace, pattern: re.Pattern[str]) -> Bools:
    """For each host call, whether `pattern` is found in its name."""
    return trace.by_name(trace.calls.name, pattern.search)


def incomplete_replays(trace: Trace, launches: LaunchCalls) -> tuple[int, int, int]:
    """How many graph launches put fewer ops on a device than another one of the same graph, how
    many ops are missing from those, and the number of all launches whose graph is known.

    CUPTI numbers a node `graph id << 32 | number within the graph`, in each process.
    """
    graph = trace.ops.graph_node_id[launches.first_op] >> 32
    replays = np.flatnonzero(launches.is_graph & (graph > 0))
    keys = np.stack((trace.calls.pid[launches.call[replays]], graph[replays]))
    known, which = np.unique(keys, axis=1, return_inverse=True)
    most = np.zeros(known.shape[1], dtype=np.int64)
    np.maximum.at(most, which.reshape(-1), launches.ops[replays])
    missing = most[which.reshape(-1)] - launches.ops[replays]
    return int(np.count_nonzero(missing)), int(missing.sum()), len(replays)


def graph_launch_calls(trace: Trace) -> Bools:
    """For each host call, whether its name says that it launches a graph."""
    return calls_named(trace, _GRAPH_LAUNCH)


def while_capturing(trace: Trace) -> Bools:
    """Whether each call began while its thread captured a graph, also one that began before the
    trace."""
    begins, ends = calls_named(trace, BEGIN_CAPTURE), calls_named(trace, END_CAPTURE)
    capturing = np.zeros(len(trace.calls), dtype=np.bool_)
    if begins.any() or ends.any():
        for call_rows in trace.calls.by_thread():
            depth = np.cumsum(begins[call_rows].astype(np.int64) - ends[call_rows])
            capturing[call_rows] = depth - min(int(depth.min()), 0) > 0
    return capturing


def launching_thread(trace: Trace, launches: LaunchCalls, call: int) -> tuple[int, int] | None:
    """(pid, tid) of a call; for -1 that of the thread with most launch calls, None without any."""
    calls = trace.calls
    if call >= 0:
        return int(calls.pid[call]), int(calls.tid[call])
    if not len(launches):
        return None
    threads = np.stack((calls.pid[launches.call], calls.tid[launches.call]), axis=1)
    threads, counts = np.unique(threads, axis=0, return_counts=True)
    pid, tid = threads[counts.argmax()].tolist()
    return pid, tid


def threads_at(
    events: HostEvents, chosen: Int64s, times: HostTimes
) -> Iterator[tuple[Int64s, Int64s]]:
    """For each thread with chosen events and with times: those events, and its rows of `times`."""
    rows = {
        (int(times.pid[time_rows[0]]), int(times.tid[time_rows[0]])): time_rows
        for time_rows in grouped(np.arange(len(times)), times.pid, times.tid)
    }
    for event_rows in grouped(chosen, events.pid, events.tid):
        time_rows = rows.get((int(events.pid[event_rows[0]]), int(events.tid[event_rows[0]])))
        if time_rows is not None:
            yield event_rows, time_rows


@dataclass(frozen=True, slots=True, eq=False)
class GraphCaptures:
    """`count` captures, the kernel `launches` that they recorded, and the time of the captures and
    of making executable graphs of them."""

    count: int
    launches: int
    during: Union


def find_captures(trace: Trace) -> GraphCaptures:
    """The graph captures of a trace. One that began before the trace, or had not ended with it,
    lasts from the first call or to the last one of its thread."""
    calls = trace.calls
    begins, ends = calls_named(trace, BEGIN_CAPTURE), calls_named(trace, END_CAPTURE)
    recorded = calls_named(trace, KERNEL_LAUNCH) & while_capturing(trace)
    recorded[trace.ops.launch[trace.ops.launch >= 0]] = False
    made = calls_named(trace, _INSTANTIATE)
    spans = [Intervals(calls.start_ns[made], calls.end_ns[made])]
    count = 0
    for call_rows in calls.by_thread() if begins.any() or ends.any() else ():
        thread = calls.take(call_rows)
        start_ns, end_ns = thread.start_ns[begins[call_rows]], thread.end_ns[ends[call_rows]]
        if len(end_ns) and (not len(start_ns) or start_ns[0] > end_ns[0]):
            start_ns = np.concatenate((thread.start_ns[:1], start_ns))
        last_ns = int(thread.end_ns.max())
        until_ns = np.append(end_ns, last_ns)[np.searchsorted(end_ns, start_ns)]
        spans.append(Intervals(start_ns, until_ns))
        count += len(start_ns)
    spans_ns = Intervals.concatenate(spans)
    spans_ns = spans_ns.take(np.argsort(spans_ns.start_ns, kind="stable"))
    launches = len(np.unique(calls.correlation[recorded]))
    return GraphCaptures(count, launches, union(spans_ns.start_ns, spans_ns.end_ns))


@dataclass(frozen=True, slots=True, eq=False)
class _Queue(Intervals):
    """The depth of one device's queue along its window: adjacent intervals, none empty."""

    depth: Int64s


def queue_depth_over_time(trace: Trace, unions: dict[int, Union]) -> QueueDepth | None:
    """The figures of `QueueDepth`; None if no op is linked or no time passed."""
    ops_of = rows_by(trace.ops.device)
    queues = [
        queue
        for device, busy in unions.items()
        if (queue := _queue(trace, ops_of[device], busy)) is not None
    ]
    if not queues:
        return None
    joined = _Queue.concatenate(queues)
    window_ns = int(joined.length_ns.sum())
    bucket_ns, over_time = _deepest_in_parts(queues)
    return QueueDepth(
        mean=float((joined.length_ns * joined.depth.astype(np.float64)).sum()) / window_ns,
        max=max(over_time),
        empty_share=int(joined.length_ns[joined.depth == 0].sum()) / window_ns,
        over_time=over_time,
        bucket_ns=bucket_ns,
    )


def _queue(trace: Trace, op_rows: Int64s, busy: Union) -> _Queue | None:
    """The queue of the device with the ops `op_rows`; None if none is linked or its window has no
    length."""
    launched_ns, started_ns = times_in_queue(trace, op_rows)
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
        deepest_of_queue = np.maximum.reduceat(np.append(queue.depth, 0), bounds)[::2]
        deepest = np.maximum(deepest, np.where(first < until, deepest_of_queue, 0))
    return part_ns, tuple(deepest.tolist())


def times_in_queue(trace: Trace, op_rows: Int64s) -> tuple[Int64s, Int64s]:
    """When each linked op of some was launched, and when it started (at the earliest then)."""
    linked = op_rows[trace.ops.launch[op_rows] >= 0]
    launched_ns = trace.calls.start_ns[trace.ops.launch[linked]]
    return launched_ns, np.maximum(trace.ops.start_ns[linked], launched_ns)
