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
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.launches import LaunchCalls, graph_launch_calls
from decodescope.analyzer.report import GAP_CLASSES, GapReport, GapTotal
from decodescope.analyzer.timeline import Union, covered_until, union
from decodescope.analyzer.trace import CPU_DEVICE, Int8s, Int64s, Trace

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
LARGEST_GAPS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Gaps as columns, by device and then by start.

    `prev` and `next` index `Trace.ops`, `call` indexes `Trace.calls` (-1: not in the trace), `kind`
    indexes `GAP_CLASSES`, `label` indexes `HOST_WAIT_LABELS` (-1 outside host_wait). `floors_ns`
    holds each device's kernel floor, None where nothing was queued far enough ahead.
    """

    start_ns: Int64s
    end_ns: Int64s
    device: Int64s
    prev: Int64s
    next: Int64s
    call: Int64s
    kind: Int8s
    label: Int8s
    floors_ns: dict[int, int | None]

    def __len__(self) -> int:
        return len(self.start_ns)


def find_gaps(trace: Trace, unions: dict[int, Union], launches: LaunchCalls) -> Gaps:
    """Every gap of every device; `unions` are the busy intervals, indexing `Trace.ops`."""
    start, end, device, prev, nxt = _between(unions)
    call = trace.ops.launch[nxt]
    floors: dict[int, int | None] = dict.fromkeys(unions)
    if trace.on_cpu:
        kind = np.full(len(start), HOST_WAIT, dtype=np.int8)
        label = np.full(len(start), _PYTHON, dtype=np.int8)
    else:
        kind, floors = _classify(trace, unions, launches, start, end, device, prev, nxt)
        label = _host_wait_labels(trace, start, call, kind)
    return Gaps(start, end, device, prev, nxt, call, kind, label, floors)


def gap_totals(kinds: Int8s, lengths_ns: Int64s, names: tuple[str, ...]) -> dict[str, GapTotal]:
    """Count, sum and maximum of the lengths for each name, in the order of `names`."""
    totals = {}
    for index, name in enumerate(names):
        mine = lengths_ns[kinds == index]
        totals[name] = GapTotal(len(mine), int(mine.sum()), int(mine.max(initial=0)))
    return totals


def largest_gaps(trace: Trace, gaps: Gaps, unions: dict[int, Union]) -> tuple[GapReport, ...]:
    """The `LARGEST_GAPS` longest gaps, longest first; ties in order of device and start."""
    order = np.argsort(gaps.start_ns - gaps.end_ns, kind="stable")[:LARGEST_GAPS]
    return tuple(_gap_report(trace, gaps, unions, index) for index in order.tolist())


def _gap_report(trace: Trace, gaps: Gaps, unions: dict[int, Union], index: int) -> GapReport:
    device, start = int(gaps.device[index]), int(gaps.start_ns[index])
    label, call = int(gaps.label[index]), int(gaps.call[index])
    return GapReport(
        device=device_label(trace, device),
        at_ns=start - int(unions[device].start_ns[0]),
        length_ns=int(gaps.end_ns[index]) - start,
        gap_class=GAP_CLASSES[gaps.kind[index]],
        label=HOST_WAIT_LABELS[label] if label >= 0 else None,
        prev=trace.names[trace.ops.name[gaps.prev[index]]],
        next=trace.names[trace.ops.name[gaps.next[index]]],
        call=trace.names[trace.calls.name[call]] if call >= 0 else None,
    )


def device_label(trace: Trace, device: int) -> int | str:
    """How reports call a device: its ordinal, or "cpu" where leaf operators stand for GPU ops."""
    return "cpu" if device == CPU_DEVICE and trace.on_cpu else device


def busy_by_device(trace: Trace) -> dict[int, Union]:
    """Busy intervals of each device, in order of device; indices point into `Trace.ops`."""
    unions = {}
    for device in np.unique(trace.ops.device).tolist():
        mine = np.flatnonzero(trace.ops.device == device)
        busy = union(trace.ops.start_ns[mine], trace.ops.end_ns[mine])
        unions[device] = Union(busy.start_ns, busy.end_ns, mine[busy.first], mine[busy.last_ending])
    return unions


def _between(unions: dict[int, Union]) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    none = np.zeros(0, dtype=np.int64)
    busy = unions.values()
    return (
        np.concatenate([none, *(u.end_ns[:-1] for u in busy)]),
        np.concatenate([none, *(u.start_ns[1:] for u in busy)]),
        np.concatenate(
            [none, *(np.full(len(u.first) - 1, device) for device, u in unions.items())]
        ),
        np.concatenate([none, *(u.last_ending[:-1] for u in busy)]),
        np.concatenate([none, *(u.first[1:] for u in busy)]),
    )


def _classify(
    trace: Trace,
    unions: dict[int, Union],
    launches: LaunchCalls,
    start: Int64s,
    end: Int64s,
    device: Int64s,
    prev: Int64s,
    nxt: Int64s,
) -> tuple[Int8s, dict[int, int | None]]:
    ops, calls = trace.ops, trace.calls
    call = ops.launch[nxt]
    if not len(calls):
        return np.full(len(start), UNLINKED, dtype=np.int8), dict.fromkeys(unions)
    linked = call >= 0
    called_ns, returned_ns = calls.start_ns[call], calls.end_ns[call]
    in_graph = linked & (ops.launch[prev] == call) & graph_launch_calls(trace)[call]
    late = linked & ~in_graph & (called_ns > start)
    in_time = linked & ~in_graph & ~late

    length = end - start
    ahead = in_time & (start - returned_ns >= QUEUED_AHEAD_NS)
    floors: dict[int, int | None] = {}
    floor_of_gap = np.full(len(start), -1, dtype=np.int64)
    for ordinal in unions:
        here = device == ordinal
        floor = _lower_median(length[here & ahead])
        floors[ordinal] = floor
        floor_of_gap[here] = -1 if floor is None else floor

    other_stream = ops.stream[prev] != ops.stream[nxt]
    waited = other_stream | _event_wait_before(trace, launches)[call]
    at_floor = in_time & (returned_ns <= start) & (length <= floor_of_gap)
    kind = np.select(
        [~linked, in_graph, late, at_floor, waited],
        [UNLINKED, GRAPH_INTERNAL, HOST_WAIT, KERNEL_FLOOR, DEPENDENCY],
        default=LAUNCH_LATENCY,
    )
    return kind.astype(np.int8), floors


def _lower_median(values: Int64s) -> int | None:
    if not len(values):
        return None
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _event_wait_before(trace: Trace, launches: LaunchCalls) -> NDArray[np.bool_]:
    """For each host call: whether its thread called StreamWaitEvent since its last launch call."""
    calls = trace.calls
    waited = np.zeros(len(calls), dtype=np.bool_)
    is_wait = _calls_named(trace, _WAIT_EVENT)
    if not is_wait.any():
        return waited
    is_launch = np.zeros(len(calls), dtype=np.bool_)
    is_launch[launches.call] = True
    for mine in _calls_by_thread(trace, np.flatnonzero(is_wait | is_launch)):
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
        chosen = np.flatnonzero(_calls_named(trace, api))
        for mine in _calls_by_thread(trace, chosen):
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


def _calls_named(trace: Trace, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    by_name = np.array([bool(pattern.search(name)) for name in trace.names], dtype=np.bool_)
    return np.asarray(by_name[trace.calls.name]) if len(by_name) else np.zeros(0, dtype=np.bool_)


def _calls_by_thread(trace: Trace, chosen: Int64s) -> Iterator[Int64s]:
    """The chosen calls of each thread, still in order of start."""
    pid, tid = trace.calls.pid[chosen], trace.calls.tid[chosen]
    order = np.lexsort((tid, pid))
    if len(order):
        changes = (np.diff(pid[order]) != 0) | (np.diff(tid[order]) != 0)
        yield from np.split(chosen[order], np.flatnonzero(changes) + 1)
