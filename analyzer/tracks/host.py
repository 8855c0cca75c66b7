"""The tracks of a host thread: its ranges, and its innermost operators and CUDA calls."""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.timing.gaps import HOST_WAIT_LABELS, call_kinds
from decodescope.analyzer.timing.intervals import around, open_changes
from decodescope.analyzer.timing.launches import KERNEL_LAUNCH, calls_named, graph_launch_calls
from decodescope.analyzer.trace import HostEvents, Int64s, Intervals, Trace, grouped
from decodescope.analyzer.tracks.track import Slices, Track, TrackKey, track_of

HOST_KINDS = ("operator", "launch", *HOST_WAIT_LABELS[:-1])
MAX_LEVELS = 8
Thread = tuple[int, int]
_LAUNCH, _OTHER = 1, 2


def innermost(events: Intervals) -> tuple[Intervals, Int64s]:
    """The times cut where the last open event changes, and which one that is; events are sorted by
    start, then longest first."""
    since_ns, row = open_changes(events)
    shown = row >= 0
    until_ns = np.append(since_ns[1:], since_ns[-1:])
    return Intervals(since_ns[shown], until_ns[shown]), row[shown]


def depths(events: Intervals, most: int) -> Int64s:
    """How deep each event is, at most `most`: one deeper than the last event before it that is open
    at its start, 0 without one."""
    above = outer = around(events)
    depth = np.zeros(len(events), dtype=np.int64)
    for _ in range(most):
        inside = above >= 0
        depth += inside
        above = np.where(inside, outer[above], -1)
    return depth


def owners(trace: Trace) -> dict[Thread, int | None]:
    """The host threads, (process, thread), and the device that each launched most ops on, None if
    it launched none. Of a CPU capture there are none: its threads are streams."""
    if trace.on_cpu:
        return {}
    threads: dict[Thread, int | None] = {}
    linked = np.flatnonzero(trace.ops.launch >= 0)
    call = trace.ops.launch[linked]
    for thread_rows in grouped(
        np.arange(len(linked)), trace.calls.pid[call], trace.calls.tid[call]
    ):
        devices, ops = np.unique(trace.ops.device[linked[thread_rows]], return_counts=True)
        first = int(call[thread_rows[0]])
        thread = int(trace.calls.pid[first]), int(trace.calls.tid[first])
        threads[thread] = int(devices[ops.argmax()])
    for events in (trace.calls, trace.cpu_ops, trace.ranges):
        for rows in events.by_thread():
            threads.setdefault((int(events.pid[rows[0]]), int(events.tid[rows[0]])), None)
    return threads


class HostTracks:
    """The host's events by thread, numbered once for all threads."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        launches = calls_named(trace, KERNEL_LAUNCH) | graph_launch_calls(trace)
        kinds = np.where(launches, _LAUNCH, call_kinds(trace) + _OTHER)
        self._kinds = kinds.astype(np.int8)
        self._calls, self._operators, self._ranges = (
            {(int(events.pid[own[0]]), int(events.tid[own[0]])): own for own in events.by_thread()}
            for events in (trace.calls, trace.cpu_ops, trace.ranges)
        )

    def tracks(self, thread: Thread, prefix: str, name: str) -> Iterator[Track]:
        """The ranges of a thread, the outermost first, then what is innermost at each time."""
        pid, tid = thread
        ranges_title = "h-range" if name == "host" else name.replace("cpu", "rng")
        none = np.zeros(0, dtype=np.int64)
        ranges = self._ranges.get(thread, none)
        host_ranges = self._trace.ranges.take(ranges)
        depth = depths(host_ranges, MAX_LEVELS)
        for level in range(min(int(depth.max(initial=-1)) + 1, MAX_LEVELS)):
            at_level = np.flatnonzero(depth == level)
            end_ns = host_ranges.end_ns[at_level]
            end_ns[:-1] = np.minimum(end_ns[:-1], host_ranges.start_ns[at_level[1:]])
            slices = Slices(
                host_ranges.start_ns[at_level],
                end_ns,
                host_ranges.name[at_level].astype(np.int64),
                ranges[at_level],
                (np.arange(len(at_level)) % 2).astype(np.int8),
            )
            title = prefix + (ranges_title if level == 0 else f"  .{level}")
            yield track_of(TrackKey("host_range", pid, tid, level), title, slices)
        calls, operators = self._calls.get(thread, none), self._operators.get(thread, none)
        if len(calls) or len(operators):
            slices = self._innermost(calls, operators)
            yield track_of(TrackKey("host", pid, tid), prefix + name, slices)

    def _innermost(self, calls: Int64s, operators: Int64s) -> Slices:
        """The innermost event at each time. A `row` at or beyond the number of the trace's calls is
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
