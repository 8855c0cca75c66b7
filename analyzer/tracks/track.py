"""One row of a timeline, indexed so that a column of any width costs O(log n)."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.intervals import uncovered_ns
from decodescope.analyzer.trace import Bools, Int8s, Int64s, Intervals

TrackKind = Literal[
    "host", "host_range", "range", "stream", "overlap", "wait", "gap", "interruption", "busy"
]
NONE = -1


class TrackKey(NamedTuple):
    """Which track it is, the same in every window of a run.

    `number` is the stream, the level of a range (0 is the outermost), or the thread id of a host;
    `device` is a device, or the process id of a host.
    """

    kind: TrackKind
    device: int
    number: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Slices(Intervals):
    """The slices of a track, sorted by start.

    `label` indexes `Tracks.names` (-1: none), `row` the table that the track is about, `kind` is
    what its colour says: a family of ops, a class of gaps or a kind of host work; of ranges, 0 and
    1 in turn.
    """

    label: Int64s
    row: Int64s
    kind: Int8s


@dataclass(frozen=True, slots=True, eq=False)
class TrackColumns:
    """The columns of a track on a screen, for slices of time given by their edges.

    `busy` is the share of the column's time that is covered, `kind` the kind that covers most of it
    (`NONE` if nothing does). The parts `first` to `after` (excluded) touch the column.
    """

    busy: NDArray[np.float64]
    kind: Int8s
    first: Int64s
    after: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """A track and its index.

    The parts are the slices' uncovered times (see `uncovered_ns`): disjoint, in order, and
    together as long as the slices' union. `part` is the slice of each; row i of `covered_ns` [parts
    + 1, kinds] is how long the first i parts cover, by kind, and `kinds` are the kinds of its
    columns. `rank` orders the slices by length, the first of equally long ones last.
    """

    key: TrackKey
    title: str
    slices: Slices
    part: Int64s
    start_ns: Int64s
    end_ns: Int64s
    covered_ns: Int64s
    column: Int64s
    kinds: Int8s
    rank: Int64s

    def columns(self, edges_ns: Int64s) -> TrackColumns:
        """The columns between consecutive `edges_ns` (in order)."""
        columns = max(len(edges_ns) - 1, 0)
        before_ns, after_ns = edges_ns[:columns], edges_ns[1:]
        first = np.searchsorted(self.end_ns, before_ns, side="right")
        after = np.maximum(np.searchsorted(self.start_ns, after_ns, side="left"), first)
        if not len(self.part):
            nothing = np.full(columns, NONE, dtype=np.int8)
            return TrackColumns(np.zeros(columns), nothing, first, after)
        inside_ns = self.inside_ns(edges_ns)
        total_ns, width_ns = inside_ns.sum(axis=1), after_ns - before_ns
        busy = np.divide(
            total_ns, width_ns, out=(after > first).astype(np.float64), where=width_ns > 0
        )
        kind = np.where(total_ns > 0, self.kinds[inside_ns.argmax(axis=1)], NONE)
        point = (width_ns == 0) & (after > first)
        kind[point] = self.kinds[self.column[first[point]]]
        return TrackColumns(busy, kind.astype(np.int8), first, after)

    def inside_ns(self, edges_ns: Int64s) -> Int64s:
        """How long the parts of each of `kinds` cover the columns between consecutive `edges_ns`:
        int64 [columns, kinds]."""
        begun = np.searchsorted(self.start_ns, edges_ns, side="right")
        covered_ns = self.covered_ns[begun]
        if len(self.part):
            latest = begun - 1
            left_ns = np.where(begun > 0, np.maximum(self.end_ns[latest] - edges_ns, 0), 0)
            covered_ns[np.arange(len(edges_ns)), self.column[latest]] -= left_ns
        return np.diff(covered_ns, axis=0)

    def marked(self, marks: Int64s, columns: TrackColumns) -> Bools:
        """Whether a marked part touches each of `columns`; `marks` counts them (`count_marks`)."""
        return np.asarray(marks[columns.after] > marks[columns.first])

    def count_marks(self, chosen: Bools) -> Int64s:
        """How many of the first i parts are of chosen slices: int64 [parts + 1]."""
        return np.concatenate(([0], np.cumsum(chosen[self.part], dtype=np.int64)))

    def named(self, labels: Bools) -> Bools:
        """Whether the label of each slice is one of `labels`, one for each of `Tracks.names`."""
        label = self.slices.label
        return np.append(labels, False)[label]

    def largest(self, columns: TrackColumns) -> Int64s:
        """The longest slice that touches each of `columns`, -1 for none. Slices are disjoint."""
        largest = np.full(len(columns.first), NONE, dtype=np.int64)
        touched = np.flatnonzero(columns.after > columns.first)
        if len(touched):
            bounds = np.stack((columns.first[touched], columns.after[touched]), axis=1).ravel()
            best = np.maximum.reduceat(np.append(self.rank, NONE), bounds)[::2]
            by_rank = np.empty(len(self.rank), dtype=np.int64)
            by_rank[self.rank] = np.arange(len(self.rank))
            largest[touched] = by_rank[best]
        return largest

    def at(self, start_ns: int, end_ns: int) -> int | None:
        """The slice that covers most of [start, end); of a gap track, the longest that touches it;
        None if there is none."""
        edges_ns = np.array((start_ns, max(end_ns, start_ns)), dtype=np.int64)
        columns = self.columns(edges_ns)
        first, after = int(columns.first[0]), int(columns.after[0])
        if after <= first:
            return None
        if self.key.kind == "gap":
            return int(self.largest(columns)[0])
        inside_ns = np.minimum(self.end_ns[first:after], end_ns)
        inside_ns -= np.maximum(self.start_ns[first:after], start_ns)
        return int(self.part[first + int(inside_ns.argmax())])


def track_of(key: TrackKey, title: str, slices: Slices) -> Track:
    """The track of `slices`, sorted by start, with its index: O(n)."""
    uncovered = uncovered_ns(slices.start_ns, slices.end_ns)
    part = np.flatnonzero(uncovered > 0)
    length_ns, end_ns = uncovered[part], slices.end_ns[part]
    kinds, column = np.unique(slices.kind[part], return_inverse=True)
    by_kind = np.zeros((len(part) + 1, len(kinds)), dtype=np.int64)
    by_kind[np.arange(1, len(part) + 1), column] = length_ns
    covered_ns = np.cumsum(by_kind, axis=0, out=by_kind)
    rank = np.zeros(0, dtype=np.int64)
    if key.kind == "gap":
        rank = np.empty(len(slices), dtype=np.int64)
        rank[np.lexsort((-np.arange(len(slices)), slices.length_ns))] = np.arange(len(slices))
    return Track(
        key,
        title,
        slices,
        part,
        end_ns - length_ns,
        end_ns,
        covered_ns,
        column.astype(np.int64),
        kinds.astype(np.int8),
        rank,
    )
