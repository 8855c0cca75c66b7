"""Idle gaps of a device and why each was there. The classes add up to the idle time exactly.

A gap lies between two consecutive busy intervals of one device. `prev` is the op that ends last
before it, `next` the op that ends it, `call` the launch call of `next`. First match wins:

1. unlinked: `call` is not in the trace.
2. graph_internal: `prev` and `next` belong to the same graph launch.
3. host_wait: `call` began after `prev` ended, so the host was late.
4. kernel_floor: `call` had returned when `prev` ended, and the gap is at most the floor.
5. dependency: `prev` ran on another stream than `next`, or the launching thread put a wait for an
   event between its previous launch call and `call`.
6. launch_latency: the rest; called before `prev` ended, started late.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.host_calls import calls_by_thread, calls_named, graph_launch_calls
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.timeline import Union, covered_until, union
from decodescope.analyzer.trace import Int8s, Int64s, Trace

UNLINKED, GRAPH_INTERNAL, HOST_WAIT, KERNEL_FLOOR, DEPENDENCY, LAUNCH_LATENCY = range(6)
HOST_WAIT_LABELS = ("sync", "allocation", "memcpy_api", "python")
_PYTHON = HOST_WAIT_LABELS.index("python")
_LABEL_APIS = (
    re.compile(r"Synchronize"),
    re.compile(r"Malloc|Free|HostAlloc|Host(?:Unr|R)egister|Mem(?:Alloc|Create|Map|Unmap|Release)"),
    re.compile(r"Memcpy|Memset"),
)
_WAIT_EVENT = re.compile(r"StreamWaitEvent")
QUEUED_AHEAD_NS = 50_000
Floors = Mapping[int, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Gaps as columns, by device and then by start.

    `prev` and `next` index `Trace.ops`, `call` indexes `Trace.calls` (-1: not in the trace), `kind`
    indexes `GAP_CLASSES`, `label` indexes `HOST_WAIT_LABELS` (-1 outside host_wait). `floors_ns`
    holds each device's kernel floor, None where it is not known.
    """

    start_ns: Int64s
    end_ns: Int64s
    device: Int64s
    prev: Int64s
    next: Int64s
    call: Int64s
    kind: Int8s
    label: Int8s
    floors_ns: Floors

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class _Intervals:
    """Idle intervals before they have a class; the columns are those of `Gaps`."""

    start_ns: Int64s
    end_ns: Int64s
    prev: Int64s
    next: Int64s

    @property
    def length_ns(self) -> Int64s:
        return self.end_ns - self.start_ns


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
) -> Gaps:
    """Every gap of `unions`, the busy intervals of one device each (indexing `Trace.ops`).

    A union may also hold several devices at once; its gaps, in which none of them did anything,
    count for the device of `next`. The floor is the one measured with the capture, for lack of it
    the median of each device's gaps before ops that were queued `QUEUED_AHEAD_NS` ahead and had
    nothing to wait for but `prev`. `floors_ns` gives floors that are known already.
    """
    idle = _between(unions)
    device = trace.ops.device[idle.next]
    call = trace.ops.launch[idle.next]
    if trace.on_cpu:
        kind = np.full(len(device), HOST_WAIT, dtype=np.int8)
        label = np.full(len(device), _PYTHON, dtype=np.int8)
        floors_ns = dict.fromkeys(np.unique(trace.ops.device).tolist())
    else:
        kind = _host_classes(trace, idle, call)
        waited = _waited(trace, launches, idle, call)
        if floors_ns is None:
            floors_ns = _floors(trace, idle, (kind == LAUNCH_LATENCY) & ~waited, call)
        _classify_queued(trace, idle, kind, waited, floors_ns)
        label = _host_wait_labels(trace, idle.start_ns, call, kind)
    return Gaps(
        idle.start_ns, idle.end_ns, device, idle.prev, idle.next, call, kind, label, floors_ns
    )


def _between(unions: Collection[Union]) -> _Intervals:
    none = np.zeros(0, dtype=np.int64)
    return _Intervals(
        np.concatenate([none, *(busy.end_ns[:-1] for busy in unions)]),
        np.concatenate([none, *(busy.start_ns[1:] for busy in unions)]),
        np.concatenate([none, *(busy.last_ending[:-1] for busy in unions)]),
        np.concatenate([none, *(busy.first[1:] for busy in unions)]),
    )


def _host_classes(trace: Trace, idle: _Intervals, call: Int64s) -> Int8s:
    """The classes that do not depend on the floor; `LAUNCH_LATENCY` stands for all the others."""
    kind = np.full(len(call), UNLINKED, dtype=np.int8)
    linked = np.flatnonzero(call >= 0)
    called = call[linked]
    one_graph = trace.ops.launch[idle.prev[linked]] == called
    one_graph &= graph_launch_calls(trace)[called]
    late = trace.calls.start_ns[called] > idle.start_ns[linked]
    kind[linked] = np.select([one_graph, late], [GRAPH_INTERNAL, HOST_WAIT], default=LAUNCH_LATENCY)
    return kind


def _floors(
    trace: Trace, idle: _Intervals, back_to_back: NDArray[np.bool_], call: Int64s
) -> Floors:
    devices = np.unique(trace.ops.device).tolist()
    measured = trace.capture.kernel_floor_ns if trace.capture else None
    if measured is not None:
        return dict.fromkeys(devices, measured)
    queued = np.flatnonzero(back_to_back)
    ahead_ns = idle.start_ns[queued] - trace.calls.end_ns[call[queued]]
    ahead = queued[ahead_ns >= QUEUED_AHEAD_NS]
    length_ns, device = idle.length_ns[ahead], trace.ops.device[idle.next[ahead]]
    return {one: _lower_median(length_ns[device == one]) for one in devices}


def _lower_median(values: Int64s) -> int | None:
    if not len(values):
        return None
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _classify_queued(
    trace: Trace, idle: _Intervals, kind: Int8s, waited: NDArray[np.bool_], floors_ns: Floors
) -> None:
    """Set the class of the gaps whose work was called in time."""
    ops, queued = trace.ops, np.flatnonzero(kind == LAUNCH_LATENCY)
    nxt = idle.next[queued]
    device = ops.device[nxt]
    floor_ns = np.full(len(queued), -1, dtype=np.int64)
    for one, floor in floors_ns.items():
        if floor is not None:
            floor_ns[device == one] = floor
    at_floor = trace.calls.end_ns[ops.launch[nxt]] <= idle.start_ns[queued]
    at_floor &= idle.length_ns[queued] <= floor_ns
    kind[queued[waited[queued]]] = DEPENDENCY
    kind[queued[at_floor]] = KERNEL_FLOOR


def _waited(
    trace: Trace, launches: LaunchCalls, idle: _Intervals, call: Int64s
) -> NDArray[np.bool_]:
    """Whether `next` may have waited for another stream or device, or for an event."""
    ops = trace.ops
    waited = ops.stream[idle.prev] != ops.stream[idle.next]
    waited |= ops.device[idle.prev] != ops.device[idle.next]
    linked = np.flatnonzero(call >= 0)
    waited[linked] |= _event_wait_before(trace, launches)[call[linked]]
    return np.asarray(waited)


def _event_wait_before(trace: Trace, launches: LaunchCalls) -> NDArray[np.bool_]:
    """For each host call: whether its thread called StreamWaitEvent since its last launch call."""
    calls = trace.calls
    waited = np.zeros(len(calls), dtype=np.bool_)
    is_wait = calls_named(trace, _WAIT_EVENT)
    if not is_wait.any():
        return waited
    is_launch = np.zeros(len(calls), dtype=np.bool_)
    is_launch[launches.call] = True
    for mine in calls_by_thread(trace, np.flatnonzero(is_wait | is_launch)):
        waits_before = np.cumsum(is_wait[mine])
        launching = is_launch[mine]
        since_last = np.diff(waits_before[launching], prepend=0)
        waited[mine[launching]] = since_last > 0
    return waited


def _host_wait_labels(trace: Trace, start: Int64s, call: Int64s, kind: Int8s) -> Int8s:
    """What the launching thread did from the gap's start to the call.

    The label is the kind of API whose calls cover most of that time, if they cover at least half
    of it; otherwise the thread ran its own (Python) code.
    """
    label = np.full(len(start), -1, dtype=np.int8)
    late = np.flatnonzero(kind == HOST_WAIT)
    label[late] = _PYTHON
    if not len(late):
        return label
    calls = trace.calls
    covered = np.zeros((len(_LABEL_APIS), len(late)), dtype=np.int64)
    until = calls.start_ns[call[late]]
    for row, api in enumerate(_LABEL_APIS):
        chosen = np.flatnonzero(calls_named(trace, api))
        for mine in calls_by_thread(trace, chosen):
            one = mine[0]
            here = (calls.tid[call[late]] == calls.tid[one]) & (
                calls.pid[call[late]] == calls.pid[one]
            )
            waiting = union(calls.start_ns[mine], calls.end_ns[mine])
            covered[row, here] = covered_until(waiting, until[here]) - covered_until(
                waiting, start[late[here]]
            )
    best = covered.argmax(axis=0)
    enough = 2 * covered.max(axis=0) >= until - start[late]
    label[late[enough]] = best[enough]
    return label
