"""Idle gaps of a device and their causes. The classes add up to the idle time exactly.

A gap is the idle time between two consecutive busy intervals of one device. `prev` is the op that
ends last before it, `next` the op that ends it, `call` the launch call of `next`. The first match
wins:

1. unlinked: `call` is not in the trace.
2. graph_internal: `prev` and `next` belong to the same graph launch.
3. host_wait: `call` began after `prev` ended, so the host was late.
4. kernel_floor: `call` had returned when `prev` ended, and the gap is at most the floor.
5. dependency: `prev` ran on another stream than `next`, or the launching thread made a stream wait
   for an event between its previous launch call and `call`.
6. launch_latency: the rest; called before `prev` ended, started late.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from decodescope.analyzer.timing.intervals import Union, covered_until, union
from decodescope.analyzer.timing.launches import (
    LaunchCalls,
    calls_named,
    graph_launch_calls,
    threads_at,
)
from decodescope.analyzer.trace import KERNEL, Bools, Int8s, Int64s, Intervals, Trace, grouped

UNLINKED, GRAPH_INTERNAL, HOST_WAIT, KERNEL_FLOOR, DEPENDENCY, LAUNCH_LATENCY = range(6)
_LABEL_APIS = {
    "sync": r"Synchronize",
    "allocation": r"Malloc|Free|HostAlloc|Host(?:Unr|R)egister"
    r"|Mem(?:Alloc|Create|Map|Unmap|Release)",
    "memcpy_api": r"Memcpy|Memset",
}
HOST_WAIT_LABELS = (*_LABEL_APIS, "python")
_PYTHON = len(_LABEL_APIS)
_WAIT_EVENT = re.compile(r"StreamWaitEvent")
QUEUED_AHEAD_NS = 50_000
MIN_BURST_GAPS = 100
_BURST_PERCENT = 99
Floors = Mapping[int, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Gaps(Intervals):
    """Gaps as columns, by device and then by start.

    `device` is that of `next`; `prev` and `next` index `Trace.ops`, `call` indexes `Trace.calls`
    (-1: not in the trace), `kind` indexes `GAP_CLASSES`, `label` indexes `HOST_WAIT_LABELS` (-1
    outside host_wait).
    """

    device: Int64s
    prev: Int64s
    next: Int64s
    call: Int64s
    kind: Int8s
    label: Int8s


def busy_by_device(trace: Trace) -> dict[int, Union]:
    """Busy intervals of each device, in order of device; indices point into `Trace.ops`."""
    unions = {}
    for device in np.unique(trace.ops.device).tolist():
        mine = np.flatnonzero(trace.ops.device == device)
        busy = union(trace.ops.start_ns[mine], trace.ops.end_ns[mine])
        unions[device] = Union(busy.start_ns, busy.end_ns, mine[busy.first], mine[busy.last_ending])
    return unions


def find_gaps(
    trace: Trace, unions: Collection[Union], launches: LaunchCalls, floors_ns: Floors | None = None
) -> tuple[Gaps, Floors]:
    """Every gap of `unions`, the busy intervals of one device each (indexing `Trace.ops`), and the
    kernel floor of each device, None if unknown.

    A union may also cover several devices; its gaps, in which all of them are idle, count for the
    device of `next`. The floor is `floors_ns` if given, else the one measured with the capture,
    else the median of each device's gaps before ops that were queued `QUEUED_AHEAD_NS` ahead and
    had to wait for nothing but `prev`.
    """
    idle = _unclassified(trace, unions)
    if trace.on_cpu:
        kind = np.full_like(idle.kind, HOST_WAIT)
        label = np.full_like(idle.label, _PYTHON)
        floors_ns = dict.fromkeys(np.unique(trace.ops.device).tolist())
    else:
        kind = _host_classes(trace, idle)
        waited = _waited(trace, launches, idle)
        if floors_ns is None:
            floors_ns = _floors(trace, idle, (kind == LAUNCH_LATENCY) & ~waited)
        _classify_queued(trace, idle, kind, waited, floors_ns)
        label = _host_wait_labels(trace, idle, kind)
    return replace(idle, kind=kind, label=label), floors_ns


def kernel_floor_ns(trace: Trace) -> int | None:
    """The gap between kernels that the host queued long before; no variant gets below it.

    `trace` is a recording of a burst: short kernels that were all queued behind a long one. The
    floor is the 99th percentile (nearest rank) of the gaps between consecutive kernels, counting
    gaps whose next kernel was queued (its launch call had returned) at least `QUEUED_AHEAD_NS`
    before. None if fewer than `MIN_BURST_GAPS` gaps count: the host was not ahead.
    """
    ops, calls = trace.ops, trace.calls
    kernels = np.flatnonzero((ops.kind == KERNEL) & (ops.launch >= 0))
    before, after = kernels[:-1], kernels[1:]
    gap_ns = ops.start_ns[after] - ops.end_ns[before]
    queued = calls.end_ns[ops.launch[after]] + QUEUED_AHEAD_NS <= ops.end_ns[before]
    counted = np.sort(gap_ns[queued & (ops.stream[before] == ops.stream[after])])
    if len(counted) < MIN_BURST_GAPS:
        return None
    return int(counted[-(-len(counted) * _BURST_PERCENT // 100) - 1])


def _unclassified(trace: Trace, unions: Collection[Union]) -> Gaps:
    before = Union.concatenate([busy.take(slice(None, -1)) for busy in unions])
    after = Union.concatenate([busy.take(slice(1, None)) for busy in unions])
    return Gaps(
        start_ns=before.end_ns,
        end_ns=after.start_ns,
        device=trace.ops.device[after.first],
        prev=before.last_ending,
        next=after.first,
        call=trace.ops.launch[after.first],
        kind=np.full(len(after), UNLINKED, dtype=np.int8),
        label=np.full(len(after), -1, dtype=np.int8),
    )


def _host_classes(trace: Trace, idle: Gaps) -> Int8s:
    """The classes that do not depend on the floor; all the others are `LAUNCH_LATENCY` for now."""
    kind = idle.kind.copy()
    linked = np.flatnonzero(idle.call >= 0)
    called = idle.call[linked]
    one_graph = trace.ops.launch[idle.prev[linked]] == called
    one_graph &= graph_launch_calls(trace)[called]
    late = trace.calls.start_ns[called] > idle.start_ns[linked]
    kind[linked] = np.select([one_graph, late], [GRAPH_INTERNAL, HOST_WAIT], default=LAUNCH_LATENCY)
    return kind


def _floors(trace: Trace, idle: Gaps, back_to_back: Bools) -> Floors:
    devices = np.unique(trace.ops.device).tolist()
    measured = trace.capture.kernel_floor_ns if trace.capture else None
    if measured is not None:
        return dict.fromkeys(devices, measured)
    queued = np.flatnonzero(back_to_back)
    ahead_ns = idle.start_ns[queued] - trace.calls.end_ns[idle.call[queued]]
    ahead = queued[ahead_ns >= QUEUED_AHEAD_NS]
    length_ns, device = idle.length_ns[ahead], idle.device[ahead]
    return {one: _lower_median(length_ns[device == one]) for one in devices}


def _lower_median(values: Int64s) -> int | None:
    if not len(values):
        return None
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _classify_queued(
    trace: Trace, idle: Gaps, kind: Int8s, waited: Bools, floors_ns: Floors
) -> None:
    """Set the final class of the gaps whose `next` was launched in time."""
    queued = np.flatnonzero(kind == LAUNCH_LATENCY)
    floor_ns = np.full(len(queued), -1, dtype=np.int64)
    for one, floor in floors_ns.items():
        if floor is not None:
            floor_ns[idle.device[queued] == one] = floor
    at_floor = trace.calls.end_ns[idle.call[queued]] <= idle.start_ns[queued]
    at_floor &= idle.length_ns[queued] <= floor_ns
    kind[queued[waited[queued]]] = DEPENDENCY
    kind[queued[at_floor]] = KERNEL_FLOOR


def _waited(trace: Trace, launches: LaunchCalls, idle: Gaps) -> Bools:
    """Whether `next` may have waited for another stream or device, or for an event."""
    ops = trace.ops
    waited = ops.stream[idle.prev] != ops.stream[idle.next]
    waited |= ops.device[idle.prev] != idle.device
    linked = np.flatnonzero(idle.call >= 0)
    waited[linked] |= _event_wait_before(trace, launches)[idle.call[linked]]
    return np.asarray(waited)


def _event_wait_before(trace: Trace, launches: LaunchCalls) -> Bools:
    """For each host call: whether its thread called StreamWaitEvent since its last launch call."""
    waited, is_launch = np.zeros((2, len(trace.calls)), dtype=np.bool_)
    is_wait = calls_named(trace, _WAIT_EVENT)
    if not is_wait.any():
        return waited
    is_launch[launches.call] = True
    chosen = np.flatnonzero(is_wait | is_launch)
    for mine in grouped(chosen, trace.calls.pid, trace.calls.tid):
        waits_before = np.cumsum(is_wait[mine])
        launching = is_launch[mine]
        since_last = np.diff(waits_before[launching], prepend=0)
        waited[mine[launching]] = since_last > 0
    return waited


def _host_wait_labels(trace: Trace, idle: Gaps, kind: Int8s) -> Int8s:
    """What the launching thread did from the gap's start to the call.

    The label is the kind of API whose calls cover most of that time, if they cover at least half
    of it; otherwise the thread ran its own (Python) code.
    """
    label = idle.label.copy()
    late = np.flatnonzero(kind == HOST_WAIT)
    label[late] = _PYTHON
    if not len(late):
        return label
    calls, since = trace.calls, idle.start_ns[late]
    until = calls.starts.take(idle.call[late])
    covered = np.zeros((len(_LABEL_APIS), len(late)), dtype=np.int64)
    for row, api in enumerate(map(re.compile, _LABEL_APIS.values())):
        for mine, here in threads_at(calls, np.flatnonzero(calls_named(trace, api)), until):
            waiting = union(calls.start_ns[mine], calls.end_ns[mine])
            covered[row, here] = covered_until(waiting, until.at_ns[here])
            covered[row, here] -= covered_until(waiting, since[here])
    best = covered.argmax(axis=0)
    enough = 2 * covered.max(axis=0) >= until.at_ns - since
    label[late[enough]] = best[enough]
    return label
