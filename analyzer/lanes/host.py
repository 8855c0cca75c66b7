"""The lanes of a host thread: its ranges, and its innermost operators and CUDA calls."""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.lanes.lane import Lane, LaneKey, Slices, lane_of
from decodescope.analyzer.lanes.nesting import depths, innermost
from decodescope.analyzer.timing.host_waits import HOST_WAIT_LABELS, call_kinds
from decodescope.analyzer.timing.launches import KERNEL_LAUNCH, calls_named, graph_launch_calls
from decodescope.analyzer.trace import HostEvents, Int8s, Int64s, Intervals, Trace, grouped

HOST_KINDS = ("operator", "launch", *HOST_WAIT_LABELS[:-1])
MAX_LEVELS = 8
Thread = tuple[int, int]
_LAUNCH, _OTHER = 1, 2


def owners(trace: Trace) -> dict[Thread, int | None]:
    """The host threads, (process, thread), and the device that each launched most ops on, None if
    it launched none. Of a CPU capture there are none: its threads are streams."""
    if trace.on_cpu:
        return {}
    threads: dict[Thread, int | None] = {}
    linked = np.flatnonzero(trace.ops.launch >= 0)
    call = trace.ops.launch[linked]
    for mine in grouped(np.arange(len(linked)), trace.calls.pid[call], trace.calls.tid[call]):
        devices, ops = np.unique(trace.ops.device[linked[mine]], return_counts=True)
        first = int(call[mine[0]])
        thread = int(trace.calls.pid[first]), int(trace.calls.tid[first])
        threads[thread] = int(devices[ops.argmax()])
    for events in (trace.calls, trace.cpu_ops, trace.ranges):
        for rows in events.by_thread():
            threads.setdefault((int(events.pid[rows[0]]), int(events.tid[rows[0]])), None)
    return threads


class HostLanes:
    """The host's events by thread, numbered once for all threads."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._kinds = _call_kinds(trace)
        self._calls, self._operators, self._ranges = map(
            _by_thread, (trace.calls, trace.cpu_ops, trace.ranges)
        )

    def lanes(self, thread: Thread, prefix: str, name: str) -> Iterator[Lane]:
        """The ranges of a thread, the outermost first, then what is innermost at each time."""
        pid, tid = thread
        ranges_title = "h-range" if name == "host" else name.replace("cpu", "rng")
        none = np.zeros(0, dtype=np.int64)
        ranges = self._ranges.get(thread, none)
        found = self._trace.ranges.take(ranges)
        depth = depths(found, MAX_LEVELS)
        for level in range(min(int(depth.max(initial=-1)) + 1, MAX_LEVELS)):
            mine = np.flatnonzero(depth == level)
            end_ns = found.end_ns[mine]
            end_ns[:-1] = np.minimum(end_ns[:-1], found.start_ns[mine[1:]])
            slices = Slices(found.start_ns[mine], end_ns, found.name[mine].astype(np.int64),
                            ranges[mine], (np.arange(len(mine)) % 2).astype(np.int8))  # fmt: skip
            title = prefix + (ranges_title if level == 0 else f"  .{level}")
            yield lane_of(LaneKey("host_range", pid, tid, level), title, slices)
        rows = self._calls.get(thread, none), self._operators.get(thread, none)
        if len(rows[0]) or len(rows[1]):
            yield lane_of(LaneKey("host", pid, tid), prefix + name, self._innermost(*rows))

    def _innermost(self, calls: Int64s, operators: Int64s) -> Slices:
        """What is innermost at each time; a `row` at or beyond the number of the trace's calls is
        that of an operator, counted from there."""
        trace = self._trace
        together = HostEvents.concatenate([trace.cpu_ops.take(operators), trace.calls.take(calls)])
        row = np.concatenate((operators + len(trace.calls), calls))
        operator = np.zeros(len(operators), dtype=np.int8)
        kind = np.concatenate((operator, self._kinds[calls]))
        order = np.lexsort((-together.end_ns, together.start_ns))
        together, row, kind = together.take(order), row[order], kind[order]
        times, seen = innermost(Intervals(together.start_ns, together.end_ns))
        label = together.name[seen].astype(np.int64)
        return Slices(times.start_ns, times.end_ns, label, row[seen], kind[seen])


def _by_thread(events: HostEvents) -> dict[Thread, Int64s]:
    return {(int(events.pid[rows[0]]), int(events.tid[rows[0]])): rows
            for rows in events.by_thread()}  # fmt: skip


def _call_kinds(trace: Trace) -> Int8s:
    launches = calls_named(trace, KERNEL_LAUNCH) | graph_launch_calls(trace)
    return np.where(launches, _LAUNCH, call_kinds(trace) + _OTHER).astype(np.int8)
