"""Assigns slices to tracks so that viewers show all of them.

Viewers of Chrome traces read the slices of one track as a call stack: they may nest, but two that
overlap partially are dropped or mangled. Such a slice goes to another track.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from decodescope.analyzer.trace import HostEvents, Int64s

_MAX_NUMBER = 1 << 31


def separate_tracks(start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """Tracks on which no two slices overlap at all; slices sorted by start, tracks from 0."""
    if len(start_ns) < 2 or (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return np.zeros(len(start_ns), dtype=np.int64)
    return _first_fit(start_ns, end_ns, may_nest=False)


def nesting_tracks(start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """Tracks on which slices nest or are apart; sorted by start, longest first, tracks from 0."""
    return _first_fit(start_ns, end_ns, may_nest=True)


def _first_fit(start_ns: Int64s, end_ns: Int64s, *, may_nest: bool) -> Int64s:
    """The first track that each slice fits on. A track's stack holds the ends of open slices."""
    track = np.zeros(len(start_ns), dtype=np.int64)
    stacks: list[list[int]] = []
    for index, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        for candidate, stack in enumerate(stacks):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or (may_nest and end <= stack[-1]):
                track[index] = candidate
                stack.append(end)
                break
        else:
            track[index] = len(stacks)
            stacks.append([end])
    return track


@dataclass(frozen=True, slots=True, eq=False)
class HostPlaces:
    """The process and thread number under which each event of several consecutive groups is drawn;
    `edges` are the rows at which the groups begin and end."""

    pid: Int64s
    tid: Int64s
    edges: tuple[int, ...]

    def of_group(self, index: int) -> "HostPlaces":
        """The places of one group's events."""
        mine = slice(self.edges[index], self.edges[index + 1])
        return HostPlaces(self.pid[mine], self.tid[mine], (0, mine.stop - mine.start))


def host_places(groups: Sequence[HostEvents]) -> HostPlaces:
    """Where each event of each group is drawn.

    An event keeps its process and thread, with two exceptions. Numbers that viewers do not accept
    (negative ones, which stand for text, and those of 32 bits and more) become unused ones. An
    event that partially overlaps another one of its thread gets an unused thread number.
    """
    start, end = (
        np.concatenate([getattr(group, name) for group in groups])
        for name in ("start_ns", "end_ns")
    )
    pid, tid = (
        _usable(np.concatenate([getattr(group, name) for group in groups]))
        for name in ("pid", "tid")
    )
    order = np.lexsort((-end, start, tid, pid))
    drawn = tid.copy()
    free = int(tid.max(initial=0)) + 1
    changes = (np.diff(pid[order]) != 0) | (np.diff(tid[order]) != 0)
    for mine in np.split(order, np.flatnonzero(changes) + 1):
        track = nesting_tracks(start[mine], end[mine])
        moved = track > 0
        drawn[mine[moved]] = free - 1 + track[moved]
        free += int(track.max(initial=0))
    return HostPlaces(pid, drawn, (0, *accumulate(len(group) for group in groups)))


def _usable(numbers: Int64s) -> Int64s:
    usable = (numbers >= 0) & (numbers < _MAX_NUMBER)
    free = int(numbers[usable].max(initial=0)) + 1
    _, others = np.unique(numbers[~usable], return_inverse=True)
    found = numbers.copy()
    found[~usable] = free + others
    return found
