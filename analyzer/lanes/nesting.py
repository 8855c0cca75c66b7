"""Nested events as rows: what is innermost at each time, and how deep each event is."""

import numpy as np

from decodescope.analyzer.trace import Int64s, Intervals


def last_open(events: Intervals, at_ns: Int64s) -> Int64s:
    """For each time (in order) the last of `events` (sorted by start) that is open then, -1 for
    none: start <= at < end."""
    return _open(events, at_ns, np.searchsorted(events.start_ns, at_ns, side="right"))


def innermost(events: Intervals) -> tuple[Intervals, Int64s]:
    """The times cut where the last open event changes, and which one that is; events are sorted by
    start, then longest first."""
    at_ns = np.sort(np.concatenate((events.start_ns, events.end_ns)))
    # Much faster than np.unique.
    at_ns = at_ns[np.diff(at_ns, prepend=at_ns[:1] - 1) > 0]
    row = last_open(events, at_ns)
    changes = np.flatnonzero(np.diff(row, prepend=-1))
    until_ns = np.append(at_ns[changes], at_ns[-1:])[1:]
    row, since_ns = row[changes], at_ns[changes]
    shown = row >= 0
    return Intervals(since_ns[shown], until_ns[shown]), row[shown]


def depths(events: Intervals, most: int) -> Int64s:
    """How deep each event is, at most `most`: one deeper than the last event before it that is open
    at its start, 0 without one."""
    around = _open(events, events.start_ns, np.arange(len(events)))
    depth = np.zeros(len(events), dtype=np.int64)
    above = around
    for _ in range(most):
        inside = above >= 0
        depth += inside
        above = np.where(inside, around[above], -1)
    return depth


def _open(events: Intervals, at_ns: Int64s, begun: Int64s) -> Int64s:
    """For each time the last of the first `begun` events (in order) that ends later, -1 for none.

    Each step skips all that the event in between skips, so there are about log2(n) + depth steps.
    """
    place = begun + np.arange(len(at_ns))
    is_event = np.ones(len(events) + len(at_ns), dtype=np.bool_)
    is_event[place] = False
    until_ns = np.empty(len(is_event), dtype=np.int64)
    until_ns[is_event], until_ns[place] = events.end_ns, at_ns
    before = np.arange(-1, len(is_event) - 1, dtype=np.int64)
    short = np.arange(len(is_event))
    while len(short):
        found = before[short]
        short = short[(found >= 0) & (until_ns[found] <= until_ns[short])]
        before[short] = before[before[short]]
    number = np.append(np.cumsum(is_event) - 1, -1)
    return np.asarray(number[before[place]], dtype=np.int64)
