"""Assigns slices to tracks so that viewers show all of them.

Viewers of Chrome traces read the slices of one track as a call stack: they may nest, but two that
overlap partially are dropped or mangled. Such a slice goes to another track.
"""

from dataclasses import replace

import numpy as np

from decodescope.analyzer.trace import HostEvents, Int64s, grouped

_MAX_NUMBER = 1 << 31


def first_fit(start_ns: Int64s, end_ns: Int64s, *, may_nest: bool) -> Int64s:
    """The first track, from 0, that each slice fits on. Slices are sorted by start.

    The slices of one track do not overlap; with `may_nest`, one may contain another, and of those
    that start together the longest comes first.
    """
    track = np.zeros(len(start_ns), dtype=np.int64)
    if (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return track
    # The ends of the open slices of each track.
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


def as_drawn(events: HostEvents) -> HostEvents:
    """The events, in any order, with the process and thread numbers under which they are drawn.

    An event keeps its process and thread, with two exceptions. Numbers that viewers do not accept
    (negative ones, which represent text, and those of 32 bits and more) become unused ones. An
    event that partially overlaps another one of its thread gets an unused thread number.
    """
    pid, tid = _usable(events.pid), _usable(events.tid)
    drawn = tid.copy()
    free = int(tid.max(initial=0)) + 1
    for mine in grouped(np.lexsort((-events.end_ns, events.start_ns)), pid, tid):
        track = first_fit(events.start_ns[mine], events.end_ns[mine], may_nest=True)
        moved = track > 0
        drawn[mine[moved]] = free - 1 + track[moved]
        free += int(track.max(initial=0))
    return replace(events, pid=pid, tid=drawn)


def _usable(numbers: Int64s) -> Int64s:
    usable = (numbers >= 0) & (numbers < _MAX_NUMBER)
    free = int(numbers[usable].max(initial=0)) + 1
    _, others = np.unique(numbers[~usable], return_inverse=True)
    found = numbers.copy()
    found[~usable] = free + others
    return found
