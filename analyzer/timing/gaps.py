"""Idle gaps of a device, cut into parts by cause. The parts add up to the idle time exactly.

A gap [g0, g1] is the idle time between two consecutive busy intervals of one device. `prev` is the
op that ends last before it, `next` the op that ends it, [c0, c1] the launch call of `next`.

1. unlinked: the launch call is not in the trace; the whole gap.
2. graph_internal: `prev` and `next` belong to the same graph launch; the whole gap.
3. host_wait: the part before c0, the host was late.
4. launch_call: the part inside the call.
5. The rest, after c1, or the whole gap if the call had ended by g0: kernel_floor if it is at most
   the floor; else dependency if `next` waited for another stream or device, or the launching thread
   made a stream wait (for an event, a value in memory or a host function) between its previous
   launch call and this one; else launch_latency.

host_wait is cut into pieces by what the launching thread did meanwhile. At each moment it is in one
of `HOST_WAIT_LABELS`: in a CUDA call of one of the kinds, or in its own code ("python") where no
CUDA call runs. If calls are nested, the first kind in the order of the labels counts. The pieces
add up to the host_wait time exactly.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from decodescope.analyzer.timing.intervals import (
    Union,
    covered_inside,
    intersections,
    lower_median,
    open_changes,
    union,
)
from decodescope.analyzer.timing.launches import (
    LaunchCalls,
    calls_named,
    first_matches,
    graph_launch_calls,
    threads_at,
)
from decodescope.analyzer.trace import (
    KERNEL,
    Bools,
    HostEvents,
    Int8s,
    Int64s,
    Intervals,
    Trace,
    rows_by,
)

UNLINKED, GRAPH_INTERNAL, HOST_WAIT, LAUNCH_CALL, KERNEL_FLOOR, DEPENDENCY, LAUNCH_LATENCY = range(
    7
)
_STREAM_WAIT = re.compile(r"StreamWait|StreamBatchMemOp|LaunchHostFunc|StreamAddCallback")
QUEUED_AHEAD_NS = 50_000
MIN_BURST_GAPS = 100
_BURST_PERCENT = 99
_COARSE_NS = 1_000
_TINY_NS = 10
Floors = Mapping[int, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Gaps(Intervals):
    """Gaps as columns, by device and then by start.

    `device` is that of `next`; `prev` and `next` index `Trace.ops`, `call` indexes `Trace.calls`
    (-1: not in the trace).
    """

    device: Int64s
    prev: Int64s
    next: Int64s
    call: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class GapParts(Intervals):
    """The parts of gaps, none empty, in the order of the gaps and of time.

    `gap` indexes the gaps, `kind` indexes `GAP_CLASSES`; a gap has at most one part of a class. Of
    the pieces of host_wait, `kind` indexes `HOST_WAIT_LABELS`.
    """

    gap: Int64s
    kind: Int8s

    def of_gaps(self, first: int, after: int) -> Self:
        return self.take(slice(*np.searchsorted(self.gap, (first, after)).tolist()))


def busy_by_device(trace: Trace) -> dict[int, Union]:
    """Busy intervals of each device, in order of device; indices point into `Trace.ops`."""
    unions = {}
    for device, op_rows in rows_by(trace.ops.device).items():
        busy = union(trace.ops.start_ns[op_rows], trace.ops.end_ns[op_rows])
        unions[device] = Union(
            busy.start_ns, busy.end_ns, op_rows[busy.first], op_rows[busy.last_ending]
        )
    return unions


def find_gaps(trace: Trace, unions: Collection[Union]) -> Gaps:
    """Every gap of `unions`, the busy intervals of one device each (indexing `Trace.ops`).

    A union may also cover several devices; its gaps, in which all of them are idle, count for the
    device of `next`.
    """
    before = Union.concatenate([busy.take(slice(None, -1)) for busy in unions])
    after = Union.concatenate([busy.take(slice(1, None)) for busy in unions])
    return Gaps(
        start_ns=before.end_ns,
        end_ns=after.start_ns,
        device=trace.ops.device[after.first],
        prev=before.last_ending,
        next=after.first,
        call=trace.ops.launch[after.first],
    )


def cut_gaps(
    trace: Trace, gaps: Gaps, launches: LaunchCalls, floors_ns: Floors | None = None
) -> tuple[GapParts, Floors]:
    """The parts of `gaps`, and the kernel floor of each device, None if unknown.

    The floor is `floors_ns` if given, else the one measured with the capture, else the median of
    each device's gaps before ops that were queued `QUEUED_AHEAD_NS` ahead and had to wait for
    nothing but `prev`. There is no estimate from timestamps that are coarser than the floor
    (`floor_is_hidden`).
    """
    if trace.on_cpu:
        kind = np.full(len(gaps), HOST_WAIT, dtype=np.int8)
        whole = GapParts(gaps.start_ns, gaps.end_ns, np.arange(len(gaps)), kind)
        return whole, dict.fromkeys(np.unique(trace.ops.device).tolist())
    one_graph, waited = _one_graph(trace, gaps), _waited(trace, launches, gaps)
    cut = (gaps.call >= 0) & ~one_graph
    if floors_ns is None:
        floors_ns = _floors(trace, gaps, cut & ~waited)
    called_ns, returned_ns = gaps.start_ns.copy(), gaps.start_ns.copy()
    called_ns[cut] = trace.calls.start_ns[gaps.call[cut]]
    returned_ns[cut] = trace.calls.end_ns[gaps.call[cut]]
    called_ns = np.clip(called_ns, gaps.start_ns, gaps.end_ns)
    returned_ns = np.clip(returned_ns, called_ns, gaps.end_ns)
    at_floor = gaps.end_ns - returned_ns <= _floor_of_each(gaps, floors_ns)
    rest = np.select(
        [gaps.call < 0, one_graph, at_floor, waited],
        [UNLINKED, GRAPH_INTERNAL, KERNEL_FLOOR, DEPENDENCY],
        default=LAUNCH_LATENCY,
    )
    edges = np.column_stack((gaps.start_ns, called_ns, returned_ns, gaps.end_ns))
    begin_ns, end_ns = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    kind = np.column_stack((np.full_like(rest, HOST_WAIT), np.full_like(rest, LAUNCH_CALL), rest))
    gap = np.repeat(np.arange(len(gaps)), 3)
    parts = GapParts(begin_ns, end_ns, gap, kind.ravel().astype(np.int8))
    return parts.take(end_ns > begin_ns), floors_ns


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


def _one_graph(trace: Trace, gaps: Gaps) -> Bools:
    same_graph = (gaps.call >= 0) & (trace.ops.launch[gaps.prev] == gaps.call)
    same_graph[same_graph] = graph_launch_calls(trace)[gaps.call[same_graph]]
    return np.asarray(same_graph)


def _floors(trace: Trace, gaps: Gaps, back_to_back: Bools) -> Floors:
    devices = np.unique(trace.ops.device).tolist()
    measured = trace.capture.kernel_floor_ns if trace.capture else None
    if measured is not None:
        return dict.fromkeys(devices, measured)
    if floor_is_hidden(trace, gaps):
        return dict.fromkeys(devices)
    queued = np.flatnonzero(back_to_back)
    ahead_ns = gaps.start_ns[queued] - trace.calls.end_ns[gaps.call[queued]]
    ahead = queued[ahead_ns >= QUEUED_AHEAD_NS]
    length_ns = gaps.length_ns[ahead]
    known = {
        device: lower_median(length_ns[gap_rows])
        for device, gap_rows in rows_by(gaps.device[ahead]).items()
    }
    return dict.fromkeys(devices) | known


def floor_is_hidden(trace: Trace, gaps: Gaps) -> bool:
    """Whether the ops' timestamps hide how long a device idles between ops queued back to back.

    They are whole microseconds apart; or most ops of a stream begin one and the same tiny time (at
    most `_TINY_NS`) after the one before: ROCm ends an op of a queue where the next one begins.
    """
    start_ns = trace.ops.start_ns
    since_ns = np.concatenate((start_ns, trace.ops.end_ns)) - start_ns[:1]
    if not (since_ns % _COARSE_NS).any():
        return True
    lengths, counts = np.unique(gaps.length_ns, return_counts=True)
    if len(gaps) < MIN_BURST_GAPS:
        return False
    most = int(counts.argmax())
    return bool(lengths[most] <= _TINY_NS and 2 * counts[most] > len(gaps))


def _floor_of_each(gaps: Gaps, floors_ns: Floors) -> Int64s:
    floor_ns = np.full(len(gaps), -1, dtype=np.int64)
    for device, gap_rows in rows_by(gaps.device).items():
        if (floor := floors_ns[device]) is not None:
            floor_ns[gap_rows] = floor
    return floor_ns


def _waited(trace: Trace, launches: LaunchCalls, gaps: Gaps) -> Bools:
    """Whether `next` may have waited for another stream or device, or a stream was made to wait."""
    ops = trace.ops
    waited = ops.stream[gaps.prev] != ops.stream[gaps.next]
    waited |= ops.device[gaps.prev] != gaps.device
    linked = np.flatnonzero(gaps.call >= 0)
    waited[linked] |= _stream_wait_before(trace, launches)[gaps.call[linked]]
    return np.asarray(waited)


def _stream_wait_before(trace: Trace, launches: LaunchCalls) -> Bools:
    """For each host call: whether its thread made a stream wait since its last launch call."""
    waited, is_launch = np.zeros((2, len(trace.calls)), dtype=np.bool_)
    is_wait = calls_named(trace, _STREAM_WAIT)
    if not is_wait.any():
        return waited
    is_launch[launches.call] = True
    for call_rows in trace.calls.by_thread():
        waits_before = np.cumsum(is_wait[call_rows])
        launching = is_launch[call_rows]
        since_last = np.diff(waits_before[launching], prepend=0)
        waited[call_rows[launching]] = since_last > 0
    return waited


_KINDS = {
    "sync": re.compile(r"Synchronize"),
    "allocation": re.compile(
        r"Malloc|Free|HostAlloc|Host(?:Unr|R)egister|Mem(?:Alloc|Create|Map|Unmap|Release)"
    ),
    "memcpy_api": re.compile(r"Memcpy|Memset"),
    "other_api": re.compile(""),
}
HOST_WAIT_LABELS = (*_KINDS, "python")
PYTHON = len(_KINDS)


def find_host_waits(trace: Trace, gaps: Gaps, parts: GapParts) -> GapParts:
    """The host_wait parts among `parts`, cut where the launching thread's activity changes; their
    kind indexes `HOST_WAIT_LABELS`.

    In a CPU capture, and where no API calls are known, every piece is "python".
    """
    late = parts.take(parts.kind == HOST_WAIT)
    waits = replace(late, kind=np.full(len(late), PYTHON, np.int8))
    if trace.on_cpu or not len(waits):
        return waits
    calls, kinds = trace.calls, call_kinds(trace)
    launch_starts = calls.starts.take(gaps.call[waits.gap])
    pieces = []
    for call_rows, wait_rows in threads_at(calls, np.arange(len(calls)), launch_starts):
        of_thread = waits.take(wait_rows)
        by_start = of_thread.take(np.argsort(of_thread.start_ns, kind="stable"))
        waiting = union(by_start.start_ns, by_start.end_ns)
        # Most calls of a thread launch, and overlap no wait.
        call_rows = call_rows[covered_inside(waiting, calls.take(call_rows)) > 0]
        pieces.append(_cut(of_thread, *_activity(calls.take(call_rows), kinds[call_rows])))
    joined = GapParts.concatenate(pieces)
    return joined.take(np.argsort(joined.gap, kind="stable"))


def call_kinds(trace: Trace) -> Int8s:
    """For each call, the index in `HOST_WAIT_LABELS` of the first kind that its name matches."""
    return first_matches(trace, trace.calls, tuple(_KINDS.values()))


def _activity(calls: HostEvents, kinds: Int8s) -> tuple[Int64s, Int8s]:
    """When the activity of the thread that made `calls`, of the given kinds, changes, and its label
    from then on; the first row begins before all times."""
    by_kind = np.argsort(kinds, kind="stable")
    since_ns, row = open_changes(calls.take(by_kind), outermost=True)
    label = np.append(kinds[by_kind], np.int8(PYTHON))[row]
    changes = np.flatnonzero(np.diff(label, prepend=np.int8(-1)))
    return since_ns[changes], label[changes]


def _cut(waits: GapParts, since_ns: Int64s, label: Int8s) -> GapParts:
    """Each of `waits` (none empty) cut where the activity of its thread changes."""
    until_ns = np.append(since_ns[1:], np.iinfo(np.int64).max)
    row, span, pieces = intersections(waits, Intervals(since_ns, until_ns))
    return GapParts(pieces.start_ns, pieces.end_ns, waits.gap[row], label[span])
