"""Attributed time: each instant in which a device is busy counts once, for the ops that run in it.

Ops of one stream run in order: while two overlap (a kernel that was launched early waits for the
one before it), the instant counts for the first. Of ops of different streams, kernels share an
instant equally, whatever their order. Copies and fills count only where no kernel runs, and
communication only where nothing else does (exposed communication). So the attributed times of a
device add up to its busy time, to the nanosecond.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.names.rules import communicates
from decodescope.analyzer.timing.intervals import Union, uncovered_ns, union
from decodescope.analyzer.trace import MEMCPY, MEMSET, Int8s, Int64s, Intervals, Trace, grouped

# What covers what: a rank counts only where none of the lower ones runs.
_KERNELS, _COPIES, _COMMUNICATION = range(3)


def attributed_in(trace: Trace, rows: Int64s, windows: Intervals) -> Int64s:
    """The attributed time of the ops `rows` (sorted as the trace, of devices that count as one)
    inside disjoint `windows`: int64 ns, one for each op."""
    ops = trace.ops
    total_ns = np.zeros(len(rows), dtype=np.int64)
    rank = _ranks(trace, rows)
    stream = ops.stream[rows]
    if len(np.unique(ops.device[rows])) > 1:
        pairs = np.stack((ops.device[rows], stream))
        stream = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()
    for start_ns, end_ns in zip(windows.start_ns.tolist(), windows.end_ns.tolist(), strict=True):
        inside = np.flatnonzero((ops.start_ns[rows] < end_ns) & (ops.end_ns[rows] > start_ns))
        times = Intervals(
            np.maximum(ops.start_ns[rows[inside]], start_ns),
            np.minimum(ops.end_ns[rows[inside]], end_ns),
        )
        total_ns[inside] += attributed_ns(times, stream[inside], rank[inside])
    return total_ns


def attributed_of_device(trace: Trace, rows: Int64s) -> Int64s:
    """The attributed time of `rows`, all ops of one device, in the whole trace: int64 ns."""
    ops = trace.ops.take(rows)
    return attributed_ns(ops, ops.stream, _ranks(trace, rows))


def begins_in_order(times: Intervals, stream: Int64s) -> Int64s:
    """When each interval (sorted by start) begins behind all that started before it on its stream;
    at its end, if it is covered by them."""
    if (times.start_ns[1:] >= np.maximum.accumulate(times.end_ns[:-1])).all():
        return times.start_ns
    begin_ns = times.end_ns.copy()
    for of_stream in grouped(np.arange(len(times)), stream):
        begin_ns[of_stream] -= uncovered_ns(times.start_ns[of_stream], times.end_ns[of_stream])
    return begin_ns


def attributed_ns(times: Intervals, stream: Int64s, rank: Int8s) -> Int64s:
    """The attributed time of each interval (sorted by start), in ns: int64.

    Streams first: the time behind the latest end of the intervals before it on its stream. Then, of
    those that still overlap, the shares of the ranks. A share is rounded down; what is missing to
    the union's length goes to those with the largest fractions.
    """
    end_ns = times.end_ns
    begin_ns = begins_in_order(times, stream)
    own_ns = end_ns - begin_ns
    counted = np.flatnonzero(own_ns)
    begin_ns = begin_ns[counted]
    order = np.lexsort((end_ns[counted], begin_ns))
    counted, begin_ns = counted[order], begin_ns[order]
    if len(counted) > 1 and (begin_ns[1:] < np.maximum.accumulate(end_ns[counted])[:-1]).any():
        own_ns[counted] = _shared(begin_ns, end_ns[counted], rank[counted])
    return own_ns


def _shared(begin_ns: Int64s, end_ns: Int64s, rank: Int8s) -> Int64s:
    """Intervals (none empty, sorted by begin) of which those of one rank share each instant that no
    lower rank covers."""
    edges_ns = np.unique(np.concatenate((begin_ns, end_ns)))
    first, after = np.searchsorted(edges_ns, begin_ns), np.searchsorted(edges_ns, end_ns)
    width_ns = np.diff(edges_ns)
    free = np.ones(len(width_ns), dtype=np.bool_)
    whole_ns, fraction_ns = np.zeros(len(begin_ns), dtype=np.int64), np.zeros(len(begin_ns))
    for level in np.unique(rank).tolist():
        of_level = np.flatnonzero(rank == level)
        change = np.bincount(first[of_level], minlength=len(edges_ns)) - np.bincount(
            after[of_level], minlength=len(edges_ns)
        )
        running = np.cumsum(change)[:-1]
        each_ns, rest_ns = np.divmod(np.where(free, width_ns, 0), np.maximum(running, 1))
        each_ns[running == 0] = 0
        bounds = first[of_level], after[of_level]
        whole_ns[of_level] = _sums(each_ns, *bounds)
        fraction_ns[of_level] = _sums(rest_ns / np.maximum(running, 1), *bounds)
        free &= running == 0
    return _rounded(whole_ns, fraction_ns, union(begin_ns, end_ns), begin_ns)


def _sums(values: NDArray[Any], first: Int64s, after: Int64s) -> NDArray[Any]:
    before = np.concatenate((np.zeros(1, dtype=values.dtype), np.cumsum(values)))
    return np.asarray(before[after] - before[first])


def _rounded(
    whole_ns: Int64s, fraction_ns: NDArray[np.float64], busy: Union, begin_ns: Int64s
) -> Int64s:
    """The shares `whole_ns` + `fraction_ns` as integers that add up to the length of each busy
    interval. No float holds a whole share: those of long times would not add up."""
    interval = np.searchsorted(busy.start_ns, begin_ns, side="right") - 1
    floor_ns = np.floor(fraction_ns).astype(np.int64)
    rounded_ns = whole_ns + floor_ns
    lacking_ns = busy.length_ns.copy()
    np.subtract.at(lacking_ns, interval, rounded_ns)
    order = np.lexsort((floor_ns - fraction_ns, interval))
    place = np.arange(len(order)) - busy.first[interval[order]]
    rounded_ns[order] += place < lacking_ns[interval[order]]
    return rounded_ns


def _ranks(trace: Trace, rows: Int64s) -> Int8s:
    kind, name = trace.ops.kind[rows], trace.ops.name[rows]
    is_communication = trace.by_name(name, communicates)
    copies = (kind == MEMCPY) | (kind == MEMSET)
    rank = np.where(copies, _COPIES, _KERNELS)
    return np.where(is_communication, _COMMUNICATION, rank).astype(np.int8)
