"""Host API calls by name and thread: which launched work on a device, which captured graphs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.timing.intervals import Union, union
from decodescope.analyzer.timing.queue_depth import queue_depth_at_calls
from decodescope.analyzer.trace import (
    Bools,
    Columns,
    HostEvents,
    HostTimes,
    Int64s,
    Intervals,
    Trace,
    grouped,
)

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
DEVICE_WORK = re.compile(
    r"Launch(?:Cooperative)?Kernel|KernelLaunch|GraphLaunch|Mem(?:cpy|set)", re.IGNORECASE
)
KERNEL_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel")
BEGIN_CAPTURE = re.compile(r"StreamBeginCapture")
END_CAPTURE = re.compile(r"StreamEndCapture")
_INSTANTIATE = re.compile(r"GraphInstantiate|GraphUpload")


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


def find_launch_calls(trace: Trace) -> LaunchCalls:
    """The launch calls of a trace; ops whose call is not in the trace are ignored."""
    linked = np.flatnonzero(trace.ops.launch >= 0)
    call, first, ops = np.unique(trace.ops.launch[linked], return_index=True, return_counts=True)
    first_op = linked[first]
    return LaunchCalls(
        call=call,
        first_op=first_op,
        ops=ops,
        is_graph=graph_launch_calls(trace)[call],
        queue_depth=queue_depth_at_calls(trace, call, first_op),
    )


def lost_launches(trace: Trace, launches: LaunchCalls) -> tuple[Int64s, int]:
    """The kernel launches without an op (indices of `Trace.calls`), and the number of all launches.

    Their ops are missing because the end of the trace was cut off or records were lost. Launches
    captured into a graph do not count. Calls with one correlation id (a driver call below a runtime
    call) are one launch.
    """
    calls = trace.calls
    is_launch = calls_named(trace, KERNEL_LAUNCH) & ~while_capturing(trace)
    made = np.flatnonzero(is_launch & (calls.correlation > 0))
    made = made[np.sort(np.unique(calls.correlation[made], return_index=True)[1])]
    ids, with_ops = calls.correlation[made], np.sort(calls.correlation[launches.call])
    lost = np.searchsorted(with_ops, ids, "left") == np.searchsorted(with_ops, ids, "right")
    return made[lost], len(made)


def calls_named(trace: Trace, pattern: re.Pattern[str]) -> Bools:
    """For each host call, whether `pattern` is found in its name."""
    used = np.bincount(trace.calls.name, minlength=len(trace.names))
    matches = np.zeros(len(used), dtype=np.bool_)
    for name in np.flatnonzero(used).tolist():
        matches[name] = bool(pattern.search(trace.names[name]))
    return np.asarray(matches[trace.calls.name], dtype=np.bool_)


def graph_launch_calls(trace: Trace) -> Bools:
    """For each host call, whether its name says that it launches a graph."""
    return calls_named(trace, _GRAPH_LAUNCH)


def while_capturing(trace: Trace) -> Bools:
    """Whether each call began while its thread captured a graph, also one that began before the
    trace."""
    begins, ends = calls_named(trace, BEGIN_CAPTURE), calls_named(trace, END_CAPTURE)
    capturing = np.zeros(len(trace.calls), dtype=np.bool_)
    if begins.any() or ends.any():
        for mine in trace.calls.by_thread():
            depth = np.cumsum(begins[mine].astype(np.int64) - ends[mine])
            capturing[mine] = depth - min(int(depth.min()), 0) > 0
    return capturing


def threads_at(
    events: HostEvents, chosen: Int64s, times: HostTimes
) -> Iterator[tuple[Int64s, Int64s]]:
    """For each thread with chosen events and with times: those events, and its rows of `times`."""
    rows = {
        (int(times.pid[here[0]]), int(times.tid[here[0]])): here
        for here in grouped(np.arange(len(times)), times.pid, times.tid)
    }
    for mine in grouped(chosen, events.pid, events.tid):
        here = rows.get((int(events.pid[mine[0]]), int(events.tid[mine[0]])))
        if here is not None:
            yield mine, here


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
    for mine in calls.by_thread() if begins.any() or ends.any() else ():
        thread = calls.take(mine)
        start_ns, end_ns = thread.start_ns[begins[mine]], thread.end_ns[ends[mine]]
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
