"""Moving along lanes: the next slice, the next gap, and what a name or a range matches."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from decodescope.analyzer.attribution.range_tree import paths_at
from decodescope.analyzer.lanes.build import Lanes
from decodescope.analyzer.lanes.lane import Lane
from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.trace import Bools, Columns, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Matches(Columns):
    """Slices in order of their start: their lane's place, and which slice of it."""

    start_ns: Int64s
    lane: Int64s
    slice: Int64s

    def step(self, at: tuple[int, int], backwards: bool) -> int | None:
        """The next match after (`at` ns, lane), or the one before it; after the last the first."""
        if not len(self):
            return None
        at_ns, lane = at
        first, after = self.start_ns.searchsorted((at_ns, at_ns + 1)).tolist()
        side: Literal["left", "right"] = "left" if backwards else "right"
        place = first + int(self.lane[first:after].searchsorted(lane, side=side)) - backwards
        return int(place % len(self))


def find_labels(lanes: Lanes, labels: Bools) -> Matches:
    """The slices of all lanes whose label is one of `labels` (one for each of `Lanes.names`)."""
    found = []
    for place, lane in enumerate(lanes.lanes):
        mine = np.flatnonzero(lane.named(labels))
        found.append(Matches(lane.slices.start_ns[mine], np.full_like(mine, place), mine))
    together = Matches.concatenate(found)
    return together.take(np.lexsort((together.lane, together.start_ns)))


def inside_range(lanes: Lanes, path: str) -> list[Bools]:
    """For each lane, which of its slices are inside the ranges with this path: their ops, the gaps
    that these end and their interruptions, the calls that launched them, and the runs of the ranges
    themselves. The path may be folded."""
    analysis = lanes.analysis
    ranges, trace = analysis.ranges, analysis.trace
    nodes = np.zeros(len(ranges.paths) + 1, dtype=np.bool_)
    nodes[:-1] = ranges.tree.within(paths_at(ranges.paths, path))
    ops, calls = nodes[ranges.op_node], np.zeros(len(trace.calls) + 1, dtype=np.bool_)
    calls[analysis.launches.call] = nodes[ranges.call_node]
    of_kind = {
        "stream": ops,
        "overlap": np.zeros(len(trace.ops), dtype=np.bool_),
        "wait": ops,
        "gap": ops[analysis.gaps.next],
        "range": nodes,
        "host": np.append(calls[:-1], np.zeros(len(trace.cpu_ops), dtype=np.bool_)),
        "interruption": np.append(ops, False)[[one.op for one in analysis.interruptions]]
        if analysis.interruptions
        else np.zeros(0, dtype=np.bool_),
        "host_range": np.zeros(len(trace.ranges), dtype=np.bool_),
    }
    return [of_kind[lane.key.kind][lane.slices.row] for lane in lanes.lanes]


def following(lane: Lane, at_ns: int, backwards: bool = False) -> int | None:
    """The first slice that starts after `at_ns`, or the last one that starts before it."""
    starts_ns = lane.slices.start_ns
    side: Literal["left", "right"] = "left" if backwards else "right"
    place = int(starts_ns.searchsorted(at_ns, side=side)) - backwards
    return place if 0 <= place < len(lane.slices) else None


def next_gap(gaps: Gaps, after_ns: int, least_ns: int, device: int | None = None) -> int | None:
    """The first gap that starts after `after_ns` and is at least `least_ns` long, on any device or
    on one; after the last the first. None if no gap is that long."""
    long = gaps.length_ns >= least_ns
    if device is not None:
        long &= gaps.device == device
    rows = np.flatnonzero(long)
    if not len(rows):
        return None
    rows = rows[np.argsort(gaps.start_ns[rows], kind="stable")]
    place = int(np.searchsorted(gaps.start_ns[rows], after_ns, side="right"))
    return int(rows[place % len(rows)])


def nth_largest_gap(gaps: Gaps, after: int | None, device: int | None = None) -> int | None:
    """The longest gap, on any device or on one; after gap `after` the one that is next in length
    (then in time), and after the shortest the longest again. None without gaps."""
    rows = np.arange(len(gaps)) if device is None else np.flatnonzero(gaps.device == device)
    if not len(rows):
        return None
    rows = rows[np.lexsort((gaps.start_ns[rows], -gaps.length_ns[rows]))]
    known = np.flatnonzero(rows == after) if after is not None else rows[:0]
    return int(rows[(int(known[0]) + 1) % len(rows) if len(known) else 0])
