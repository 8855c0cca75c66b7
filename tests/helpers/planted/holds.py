"""Plants what holds a device up into a trace: everything later moves, as it would have."""

from dataclasses import replace

import numpy as np

from decodescope.analyzer.trace import GpuOps, HostEvents, Trace

HOLD_NS = 463_000_000


def launching_calls(trace: Trace) -> list[int]:
    """The calls that launched something, in order, without the first: before it nothing ran."""
    return np.unique(trace.ops.launch[trace.ops.launch >= 0]).tolist()[1:]


def held_before(trace: Trace, call: int, ns: int, name: str | None) -> Trace:
    """The host did nothing but one call of this name (None: nothing) before a launch call."""
    at_ns, calls = int(trace.calls.start_ns[call]), trace.calls
    moved = _later(trace, at_ns, _launched_from(trace, at_ns), ns)
    if name is None:
        return moved
    row = calls.take(slice(call, call + 1))
    return with_call(moved, name, at_ns, at_ns + ns, int(row.pid[0]), int(row.tid[0]))


def held_in(trace: Trace, call: int, ns: int) -> Trace:
    """A launch call took longer."""
    at_ns = int(trace.calls.end_ns[call])
    moved = _later(trace, at_ns, _launched_from(trace, int(trace.calls.start_ns[call])), ns)
    moved.calls.end_ns[call] = at_ns + ns
    return moved


def begun_late(trace: Trace, op: int, ns: int) -> Trace:
    """The device began an op, and all after it, later."""
    later = trace.ops.start_ns >= trace.ops.start_ns[op]
    return replace(trace, ops=_ops_later(trace.ops, later, ns))


def ran_long(trace: Trace, op: int, ns: int) -> Trace:
    """One op ran longer; those that began after it began later."""
    later = np.arange(len(trace.ops)) > op
    moved = _ops_later(trace.ops, later, ns)
    moved.end_ns[op] += ns
    return replace(trace, ops=moved)


def with_call(trace: Trace, name: str, start_ns: int, end_ns: int, pid: int, tid: int) -> Trace:
    """The trace with one more call."""
    trace, number = _named(trace, name)
    one = HostEvents(*(np.array([v]) for v in (start_ns, end_ns, number, pid, tid, -1, -1)))
    joined = HostEvents.concatenate((trace.calls, one))
    order = np.lexsort((-joined.end_ns, joined.start_ns))
    place = np.argsort(order)
    ops = trace.ops
    launch = np.where(ops.launch >= 0, place[ops.launch], -1)
    return replace(trace, calls=joined.take(order), ops=replace(ops, launch=launch))


def with_pause(trace: Trace, name: str, start_ns: int, end_ns: int) -> Trace:
    """The trace with one more pause of the profiler."""
    trace, number = _named(trace, name)
    one = HostEvents(*(np.array([v]) for v in (start_ns, end_ns, number, -1, 0, -1, -1)))
    return replace(trace, overhead=HostEvents.concatenate((trace.overhead, one)))


def _named(trace: Trace, name: str) -> tuple[Trace, int]:
    """The trace with a name more, which is last, and its number."""
    if name in trace.names:
        return trace, trace.names.index(name)
    return replace(trace, names=(*trace.names, name)), len(trace.names)


def _launched_from(trace: Trace, at_ns: int) -> np.ndarray:
    """Whether each op was launched at or after a time, or is unlinked and began after such ops."""
    ops = trace.ops
    linked = ops.launch >= 0
    later = linked & (trace.calls.start_ns[ops.launch] >= at_ns)
    first_ns = ops.start_ns[later].min(initial=np.iinfo(np.int64).max)
    return later | (~linked & (ops.start_ns >= first_ns))


def _later(trace: Trace, at_ns: int, ops: np.ndarray, ns: int) -> Trace:
    """Host events that begin at or after a time begin later, those that run then end later."""
    return replace(
        trace,
        ops=_ops_later(trace.ops, ops, ns),
        calls=_host_later(trace.calls, at_ns, ns),
        cpu_ops=_host_later(trace.cpu_ops, at_ns, ns),
        ranges=_host_later(trace.ranges, at_ns, ns),
        overhead=_host_later(trace.overhead, at_ns, ns),
    )


def _host_later(events: HostEvents, at_ns: int, ns: int) -> HostEvents:
    starts, ends = events.start_ns >= at_ns, events.end_ns > at_ns
    return replace(events, start_ns=events.start_ns + ns * starts, end_ns=events.end_ns + ns * ends)


def _ops_later(ops: GpuOps, later: np.ndarray, ns: int) -> GpuOps:
    moved = replace(ops, start_ns=ops.start_ns + ns * later, end_ns=ops.end_ns + ns * later)
    return moved.take(np.lexsort((np.arange(len(ops)), moved.end_ns, moved.start_ns)))
