"""Assigns slices to tracks so that viewers show all of them.

Viewers of Chrome traces read the slices of one track as a call stack: they may nest, but two that
overlap partially are dropped or mangled. Such a slice goes to another track.
"""

from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from decodescope.analyzer.trace import HostEvents, Int64s, grouped

_MAX_NUMBER = 1 << 31
_ANY_END, _NO_END = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def first_fit(start_ns: Int64s, end_ns: Int64s, *, may_nest: bool) -> Int64s:
    """The first track, from 0, that each slice fits on. Slices are sorted by start.

    The slices of one track do not overlap; with `may_nest`, one may contain another, and of those
    that start together the longest comes first.
    """
    track = np.zeros(len(start_ns), dtype=np.int64)
    if (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return track
    stacks: list[list[int]] = [[]]  # the ends of the open slices of each track
    open_slices: list[tuple[int, int]] = []  # end and track of each, as a heap
    room = _Room()
    for index, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        while open_slices and open_slices[0][0] <= start:
            changed = heappop(open_slices)[1]
            stacks[changed].pop()
            room.set(changed, stacks[changed][-1] if stacks[changed] else _ANY_END)
        free_track = room.first(end)
        if free_track == len(stacks):
            stacks.append([])
        stacks[free_track].append(end)
        heappush(open_slices, (end, free_track))
        room.set(free_track, end if may_nest else _NO_END)
        track[index] = free_track
    return track


class _Room:
    """The latest end that each track has room for, as a binary tree of maxima; a track that was not
    set yet has room for any."""

    def __init__(self) -> None:
        self._maxima = [_ANY_END, _ANY_END]

    def set(self, track: int, end: int) -> None:
        while 2 * track >= len(self._maxima):
            self._double()
        node = len(self._maxima) // 2 + track
        self._maxima[node] = end
        while node > 1:
            node //= 2
            self._maxima[node] = max(self._maxima[2 * node : 2 * node + 2])

    def first(self, end: int) -> int:
        """The first track with room for `end`."""
        tracks, node = len(self._maxima) // 2, 1
        if self._maxima[node] < end:
            return tracks
        while node < tracks:
            node *= 2
            node += self._maxima[node] < end
        return node - tracks

    def _double(self) -> None:
        tracks = len(self._maxima) // 2
        leaves = self._maxima[tracks:] + [_ANY_END] * tracks
        self._maxima = [_ANY_END] * (4 * tracks)
        self._maxima[2 * tracks :] = leaves
        for node in range(2 * tracks - 1, 0, -1):
            self._maxima[node] = max(self._maxima[2 * node : 2 * node + 2])


def as_drawn(events: HostEvents) -> HostEvents:
    """The events, in any order, with the process and thread numbers under which they are drawn.

    An event keeps its process and thread, with two exceptions. Numbers that viewers do not accept
    (negative ones, which represent text, and those of 32 bits and more) become unused ones. An
    event that partially overlaps another one of its thread gets an unused thread number.
    """
    pid, tid = _usable(events.pid), _usable(events.tid)
    drawn = tid.copy()
    free = int(tid.max(initial=0)) + 1
    for thread_events in grouped(np.lexsort((-events.end_ns, events.start_ns)), pid, tid):
        track = first_fit(
            events.start_ns[thread_events], events.end_ns[thread_events], may_nest=True
        )
        moved = track > 0
        drawn[thread_events[moved]] = free - 1 + track[moved]
        free += int(track.max(initial=0))
    return replace(events, pid=pid, tid=drawn)


def _usable(numbers: Int64s) -> Int64s:
    usable = (numbers >= 0) & (numbers < _MAX_NUMBER)
    free = int(numbers[usable].max(initial=0)) + 1
    _, others = np.unique(numbers[~usable], return_inverse=True)
    renumbered = numbers.copy()
    renumbered[~usable] = free + others
    return renumbered
