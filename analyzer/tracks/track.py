"""One row of a timeline, indexed so that a column of any width costs O(log n)."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.intervals import uncovered_ns
from decodescope.analyzer.trace import Bools, Int8s, Int64s, Intervals

TrackKind = Literal[
    "host", "host_range", "range", "stream", "part", "overlap", "wait", "gap", "interruption", "map"
]
NONE = -1


class TrackKey(NamedTuple):
    """Which track it is, the same in every window of a run.

    `number` is the stream or the thread id of a host; `device` is a device, or the process id of a
    host. `level` is that of a range (0 is the outermost), the sub-row of a stream, or the number of
    a part.
    """

    kind: TrackKind
    device: int
    number: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Slices(Intervals):
    """The slices of a track, sorted by start.

    `label` indexes `Tracks.names` (-1: none), `row` the table that the track is about, `kind` is
    what its colour says: the part of the step that an op counts for, a class of gaps or a kind of
    host work; of ranges, 0 and 1 in turn.
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
    together as long as the slices' union. `part` is the slice of each, `kinds` are all kinds, and
    `column` is the place of each part's kind among them. `by_kind` are the parts kind by kind, each
    as its place + column * (parts + 1), and `covered_ns` [parts + 1] how long the first of these
    cover. Of gaps, `by_length` are the slices from the shortest to the longest, the first of
    equally long ones last, and `rank` the place of each there, with `NONE` at the end.
    """

    key: TrackKey
    title: str
    slices: Slices
    part: Int64s
    start_ns: Int64s
    end_ns: Int64s
    kinds: Int8s
    column: Int8s
    by_kind: Int64s
    covered_ns: Int64s
    by_length: Int64s
    rank: Int64s

    def touching(self, edges_ns: Int64s) -> tuple[Int64s, Int64s]:
        """`TrackColumns.first` and `after` between consecutive `edges_ns` (in order)."""
        columns = max(len(edges_ns) - 1, 0)
        first = np.searchsorted(self.end_ns, edges_ns[:columns], side="right")
        after = np.searchsorted(self.start_ns, edges_ns[1:], side="left")
        return first, np.maximum(after, first)

    def columns(self, edges_ns: Int64s) -> TrackColumns:
        """The columns between consecutive `edges_ns` (in order)."""
        first, after = self.touching(edges_ns)
        if not len(self.part):
            nothing = np.full(len(first), NONE, dtype=np.int8)
            return TrackColumns(np.zeros(len(first)), nothing, first, after)
        inside_ns = self.inside_ns(edges_ns)
        total_ns, width_ns = inside_ns.sum(axis=1), edges_ns[1:] - edges_ns[:-1]
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
        places = begun[np.newaxis, :]
        if len(self.kinds) != 1:
            kinds = np.arange(len(self.kinds))[:, np.newaxis]
            places = np.searchsorted(self.by_kind, kinds * (len(self.part) + 1) + places)
        covered_ns = self.covered_ns[places]
        if len(self.part):
            latest = begun - 1
            left_ns = np.where(begun > 0, np.maximum(self.end_ns[latest] - edges_ns, 0), 0)
            covered_ns[self.column[latest], np.arange(len(edges_ns))] -= left_ns
        return np.asarray(covered_ns[:, 1:] - covered_ns[:, :-1]).T

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
            largest[touched] = self.by_length[np.maximum.reduceat(self.rank, bounds)[::2]]
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
    start_ns, end_ns = slices.start_ns, slices.end_ns
    if len(part) < len(slices) or (uncovered < slices.length_ns).any():
        end_ns = end_ns[part]
        start_ns = end_ns - uncovered[part]
    kinds, inverse = np.unique(slices.kind[part], return_inverse=True)
    column = inverse.astype(np.int8)
    order = np.argsort(column, kind="stable")
    by_length = rank = np.zeros(0, dtype=np.int64)
    if key.kind == "gap":
        by_length = np.lexsort((-np.arange(len(slices)), slices.length_ns))
        rank = np.full(len(slices) + 1, NONE, dtype=np.int64)
        rank[by_length] = np.arange(len(slices))
    return Track(
        key=key,
        title=title,
        slices=slices,
        part=part,
        start_ns=start_ns,
        end_ns=end_ns,
        kinds=kinds.astype(np.int8),
        column=column,
        by_kind=order + column[order].astype(np.int64) * (len(part) + 1),
        covered_ns=np.append(0, np.cumsum(uncovered[part[order]])),
        by_length=by_length,
        rank=rank,
    )
