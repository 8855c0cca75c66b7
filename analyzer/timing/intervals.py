"""Arithmetic on intervals of integer nanoseconds: unions, overlap, coverage, queue depth.

An interval is [start, end) with start <= end. Columns of starts and ends are int64 of equal length,
sorted by start unless a function says otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.trace import Bools, Int64s, Intervals

_ANY_END, _NO_END = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Union(Intervals):
    """Disjoint intervals in order, each as long as possible.

    `first` and `last_ending` index the input: the interval that opens each one, and the one that
    ends last in it (the latest in input order, if several do).
    """

    first: Int64s
    last_ending: Int64s

    @property
    def busy_ns(self) -> int:
        """Time covered: sum of (end - start)."""
        return int(self.length_ns.sum())


def union(start_ns: Int64s, end_ns: Int64s) -> Union:
    """Union of intervals sorted by start. Intervals that touch are joined."""
    count = len(start_ns)
    reach = np.maximum.accumulate(end_ns)
    opens = np.ones(count, dtype=np.bool_)
    opens[1:] = start_ns[1:] > reach[:-1]
    first = np.flatnonzero(opens).astype(np.int64, copy=False)
    last = np.append(first, count)[1:] - 1
    end = reach[last]
    ends_last = end_ns == np.repeat(end, last - first + 1)
    positions = np.where(ends_last, np.arange(count, dtype=np.int64), -1)
    return Union(start_ns[first], end, first, np.maximum.reduceat(positions, first))


def merged(unions: Sequence[Union]) -> Union:
    """The union of unions whose indices all point into one list of intervals sorted by start."""
    if len(unions) == 1:
        return unions[0]
    parts = Union.concatenate(unions)
    parts = parts.take(np.lexsort((parts.first, parts.start_ns)))
    joined = union(parts.start_ns, parts.end_ns)
    reach = np.repeat(joined.end_ns, np.diff(joined.first, append=len(parts)))
    ends_last = np.where(parts.end_ns == reach, parts.last_ending, -1)
    last_ending = np.maximum.reduceat(ends_last, joined.first)
    return Union(joined.start_ns, joined.end_ns, parts.first[joined.first], last_ending)


def grouped_busy_ns(
    group: NDArray[np.integer], start_ns: Int64s, end_ns: Int64s, groups: int
) -> Int64s:
    """Length of the union of each group's intervals, in any order; int64 of length `groups`.

    The running latest end is taken over the ranks of the ends, shifted by group, so that no sum of
    times can overflow.
    """
    totals = np.zeros(groups, dtype=np.int64)
    count = len(start_ns)
    order = np.lexsort((start_ns, group))
    group, start_ns, end_ns = group[order].astype(np.int64), start_ns[order], end_ns[order]
    by_end = np.argsort(end_ns, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[by_end] = np.arange(count)
    latest = np.maximum.accumulate(rank + group * count) - group * count
    reach = end_ns[by_end][latest]
    same_group = group[1:] == group[:-1]
    covered_until = np.where(same_group, np.maximum(reach[:-1], start_ns[1:]), start_ns[1:])
    added = np.concatenate((end_ns[:1] - start_ns[:1], np.maximum(end_ns[1:] - covered_until, 0)))
    np.add.at(totals, group, added)
    return totals


def covered_until(intervals: Intervals, times_ns: Int64s) -> Int64s:
    """How much of disjoint intervals, in order, precedes each time."""
    if not len(intervals):
        return np.zeros(len(times_ns), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(intervals.length_ns)))
    index = np.searchsorted(intervals.start_ns, times_ns, side="right")
    inside = np.maximum(intervals.end_ns[index - 1] - times_ns, 0)
    return np.asarray(before[index] - np.where(index > 0, inside, 0), dtype=np.int64)


def covered_inside(intervals: Intervals, spans: Intervals) -> Int64s:
    """How much of disjoint intervals, in order, lies inside each span."""
    return covered_until(intervals, spans.end_ns) - covered_until(intervals, spans.start_ns)


def stretches(first: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """The numbers first, first + 1, … of each stretch, `counts` of them, one stretch after another,
    and the stretch of each."""
    stretch = np.repeat(np.arange(len(first)), counts)
    before = np.cumsum(counts) - counts
    return np.arange(len(stretch)) + (first - before)[stretch], stretch


def intersections(intervals: Intervals, spans: Intervals) -> tuple[Int64s, Int64s, Intervals]:
    """The pieces of intervals inside disjoint spans in order, and the rows of the interval and of
    the span that each piece is of. None is empty."""
    first = np.searchsorted(spans.end_ns, intervals.start_ns, side="right")
    after = np.searchsorted(spans.start_ns, intervals.end_ns, side="left")
    span, row = stretches(first, np.maximum(after - first, 0))
    start_ns = np.maximum(intervals.start_ns[row], spans.start_ns[span])
    end_ns = np.minimum(intervals.end_ns[row], spans.end_ns[span])
    inside = end_ns > start_ns
    return row[inside], span[inside], Intervals(start_ns[inside], end_ns[inside])


def containing(intervals: Intervals, at_ns: Int64s) -> Int64s:
    """The one of disjoint intervals, in order, that contains each time; -1 for none."""
    index = np.searchsorted(intervals.start_ns, at_ns, side="right") - 1
    inside = (index >= 0) & (at_ns < intervals.end_ns[index])
    return np.where(inside, index, -1)


def uncovered_ns(start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """The time of each interval behind the latest end of those before it (in order); 0 if it ends
    no later than they do.

    That part is [end - uncovered, end). The parts are disjoint, and their sum is the union's
    length.
    """
    begin_ns = start_ns.copy()
    np.maximum(begin_ns[1:], np.maximum.accumulate(end_ns[:-1]), out=begin_ns[1:])
    return np.asarray(np.maximum(end_ns - begin_ns, 0))


def outermost(intervals: Intervals) -> Bools:
    """Which intervals, in order of start, lie in none of those before them."""
    outer = np.ones(len(intervals), dtype=np.bool_)
    outer[1:] = intervals.start_ns[1:] >= np.maximum.accumulate(intervals.end_ns)[:-1]
    return outer


def around(events: Intervals) -> Int64s:
    """For each event the last one before it that is open at its start, -1 for none.

    Each step skips all that the event in between skips, so there are about log2(n) + depth steps.
    """
    # Start and end of each event in turn: no later one is before a start, so starts are skipped.
    until_ns = np.stack((events.start_ns, events.end_ns), axis=1).ravel()
    before = np.arange(-1, len(until_ns) - 1, dtype=np.int64)
    short = np.arange(len(until_ns))
    while len(short):
        earlier = before[short]
        short = short[(earlier >= 0) & (until_ns[earlier] <= until_ns[short])]
        before[short] = before[before[short]]
    return np.asarray(before[::2] // 2, dtype=np.int64)


def open_changes(events: Intervals, *, outermost: bool = False) -> tuple[Int64s, Int64s]:
    """When the innermost open one of events (in the order of `HostEvents`) changes, and its row
    from then on, -1 for none; the first row is from before all times.

    The innermost of the open events is the last one in the order of the rows, the outermost the
    first. Each event is open from its start until just before its end, and the events may overlap
    in any way. Method: between two neighbouring edges the same events are open. Each event covers a
    stretch of such pieces, which is the union of two stretches of 2**k pieces; the largest row of
    longer stretches is handed down to their halves, from the longest to single pieces.
    """
    before = np.iinfo(np.int64).min
    edges_ns = np.sort(np.concatenate((events.start_ns, events.end_ns)), kind="stable")
    edges_ns = edges_ns[np.diff(edges_ns, prepend=edges_ns[:1] - 1) > 0]
    first = np.searchsorted(edges_ns, events.start_ns)
    after = np.searchsorted(edges_ns, events.end_ns)
    rows = np.flatnonzero(after > first)
    level = np.frexp(after[rows] - first[rows])[1] - 1
    rank = len(events) - np.arange(len(events)) if outermost else np.arange(len(events)) + 1
    best = np.zeros(len(edges_ns), dtype=np.int64)
    for k in range(int(level.max(initial=0)), -1, -1):
        covering = rows[level == k]
        np.maximum.at(best, first[covering], rank[covering])
        np.maximum.at(best, after[covering] - (1 << k), rank[covering])
        if k:
            half = 1 << (k - 1)
            best[half:] = np.maximum(best[half:], best[:-half])
    row = np.where(best > 0, len(events) - best if outermost else best - 1, -1)
    changes = np.flatnonzero(np.diff(row, prepend=-1))
    return np.append(before, edges_ns[changes]), np.append(-1, row[changes])


def overlapped(start_ns: Int64s, end_ns: Int64s) -> Intervals:
    """The times during which two or more intervals (sorted by start) run at once."""
    until = np.minimum(end_ns[1:], np.maximum.accumulate(end_ns[:-1]))
    doubled = until > start_ns[1:]
    joined = union(start_ns[1:][doubled], until[doubled])
    return Intervals(joined.start_ns, joined.end_ns)


def first_fit(
    start_ns: Int64s, end_ns: Int64s, *, may_nest: bool = False, most: int | None = None
) -> Int64s:
    """The first track, from 0, that each slice fits on, `most` if it fits on none of so many.

    Slices are sorted by start. Those of one track do not overlap; with `may_nest`, one may contain
    another, and of those that start together the longest comes first.
    """
    track = np.zeros(len(start_ns), dtype=np.int64)
    if (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return track
    # The latest end that each track has room for: at first, any.
    room = np.full(len(start_ns) + 1, _ANY_END)
    stacks: list[list[int]] = [[]]  # the ends of the open slices of each track
    open_slices: list[tuple[int, int]] = []  # end and track of each, as a heap
    for index, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        while open_slices and open_slices[0][0] <= start:
            changed = heappop(open_slices)[1]
            stacks[changed].pop()
            room[changed] = stacks[changed][-1] if stacks[changed] else _ANY_END
        track[index] = free = int((room[: len(stacks) + 1] >= end).argmax())
        if free == most:
            continue
        if free == len(stacks):
            stacks.append([])
        stacks[free].append(end)
        heappush(open_slices, (end, free))
        room[free] = end if may_nest else _NO_END
    return track


def lower_median(values: Int64s) -> int:
    """The median of at least one value; of an even number of them, the smaller of the two."""
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def upper_median(values: Int64s) -> int:
    """The median of at least one value; of an even number of them, the larger of the two."""
    middle = len(values) // 2
    return int(np.partition(values, middle)[middle])


def depth_at_starts(arrive_ns: Int64s, leave_ns: Int64s, at_ns: Int64s) -> Int64s:
    """How many arrived at or before each time and have not left by then; in any order."""
    arrived = np.searchsorted(np.sort(arrive_ns), at_ns, side="right")
    left = np.searchsorted(np.sort(leave_ns), at_ns, side="right")
    return np.asarray(arrived - left, dtype=np.int64)


def depth_changes(arrive_ns: Int64s, leave_ns: Int64s) -> tuple[Int64s, Int64s]:
    """The times at which the number present changes, and the number from then on; in any order.

    One entry for each distinct time. An item that leaves before it arrives leaves as it arrives.
    """
    times = np.concatenate((arrive_ns, np.maximum(leave_ns, arrive_ns)))
    steps = np.repeat(np.array([1, -1], dtype=np.int64), len(arrive_ns))
    order = np.argsort(times, kind="stable")
    distinct, first = np.unique(times[order], return_index=True)
    depth = np.cumsum(steps[order])
    last = np.append(first, len(times))[1:] - 1
    return distinct, np.asarray(depth[last], dtype=np.int64)
