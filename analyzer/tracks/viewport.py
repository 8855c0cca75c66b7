"""The time on the screen: which part, exact in whole nanoseconds at any width, and how it is drawn.

Time is drawn as it is, or with long idle gaps cut short.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from decodescope.analyzer.trace import Int64s, Intervals


@dataclass(frozen=True, slots=True)
class Viewport:
    """The time from `start_ns` on, `span_ns` long, drawn in some number of equal columns, which are
    not part of it: a terminal of another width shows the same time."""

    start_ns: int
    span_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.span_ns

    def edges_ns(self, columns: int) -> Int64s:
        """The edges of the columns: int64 [columns + 1], start + floor(i * span / columns)."""
        whole, rest = divmod(self.span_ns, max(columns, 1))
        place = np.arange(columns + 1, dtype=np.int64)
        # No product exceeds the span, so times near the limits of int64 stay exact.
        return np.asarray(self.start_ns + place * whole + place * rest // max(columns, 1))

    def column_of(self, at_ns: int, columns: int) -> int:
        """The last column whose edge is at or before `at_ns`, also outside of the columns."""
        return -(-(at_ns - self.start_ns + 1) * columns // max(self.span_ns, 1)) - 1

    def zoomed(self, factor: Fraction, at_ns: int) -> Self:
        """`factor` times as much time, with `at_ns` in the same place."""
        span_ns = max(int(self.span_ns * factor), 1)
        before_ns = (at_ns - self.start_ns) * span_ns // max(self.span_ns, 1)
        return type(self)(at_ns - before_ns, span_ns)

    def panned(self, share: Fraction) -> Self:
        """Moved by a share of the time shown, at least 1 ns."""
        step_ns = max(int(self.span_ns * abs(share)), 1)
        return type(self)(self.start_ns + (step_ns if share > 0 else -step_ns), self.span_ns)

    def showing(self, start_ns: int, end_ns: int) -> Self:
        """Moved, and if necessary zoomed out, so that [start, end] is inside; what was outside
        comes to the middle."""
        if self.start_ns <= start_ns and end_ns <= self.end_ns:
            return self
        length_ns = end_ns - start_ns
        span_ns = self.span_ns if length_ns <= self.span_ns else length_ns + length_ns // 4
        return type(self)(start_ns - (span_ns - length_ns) // 2, span_ns)

    def within(self, start_ns: int, end_ns: int, columns: int) -> Self:
        """The nearest one inside [start, end], with at least 1 ns a column where there is room."""
        span_ns = min(max(self.span_ns, columns, 1), max(end_ns - start_ns, 1))
        return type(self)(max(min(self.start_ns, end_ns - span_ns), start_ns), span_ns)


def fitting(start_ns: int, end_ns: int) -> Viewport:
    """[start, end] with a margin of a twentieth on both sides."""
    margin_ns = (end_ns - start_ns) // 20
    return Viewport(start_ns - margin_ns, max(end_ns - start_ns + 2 * margin_ns, 1))


@dataclass(frozen=True, slots=True, eq=False)
class TimeMap:
    """A function from time to drawn time, continuous, non-decreasing and linear between its knots,
    with slope 1 outside. `cut` are the pieces of time that are drawn shorter, each `limit_ns` long;
    empty and 0 without compression."""

    time_ns: Int64s
    drawn_ns: Int64s
    cut: Intervals
    limit_ns: int = 0

    def draw(self, time_ns: Int64s) -> Int64s:
        """The drawn times of `time_ns`, rounded down."""
        return _mapped(time_ns, self.time_ns, self.drawn_ns)

    def time(self, drawn_ns: Int64s) -> Int64s:
        """The times of `drawn_ns`, rounded down: where time is as it is, the exact inverse."""
        return _mapped(drawn_ns, self.drawn_ns, self.time_ns)

    def draw_one(self, time_ns: int) -> int:
        return int(self.draw(np.array([time_ns], dtype=np.int64))[0])

    def time_one(self, drawn_ns: int) -> int:
        return int(self.time(np.array([drawn_ns], dtype=np.int64))[0])


def _mapped(at_ns: Int64s, source_ns: Int64s, target_ns: Int64s) -> Int64s:
    piece = np.clip(np.searchsorted(source_ns, at_ns, side="right") - 1, 0, len(source_ns) - 2)
    length_ns = source_ns[piece + 1] - source_ns[piece]
    drawn_ns = target_ns[piece + 1] - target_ns[piece]
    offset_ns = at_ns - source_ns[piece]
    scaled = np.maximum(offset_ns, 0) * drawn_ns.astype(np.float64) / np.maximum(length_ns, 1)
    # Rounding must not leave a hole before the next piece.
    inside_ns = np.where(
        offset_ns == length_ns, drawn_ns, np.minimum(scaled.astype(np.int64), drawn_ns)
    )
    beyond = (offset_ns < 0) | (offset_ns > length_ns)
    past = np.where(offset_ns > length_ns, offset_ns - length_ns + drawn_ns, offset_ns)
    inside_ns = np.where(length_ns == drawn_ns, offset_ns, inside_ns)
    return np.asarray(target_ns[piece] + np.where(beyond, past, inside_ns), dtype=np.int64)


def as_it_is(world: tuple[int, int]) -> TimeMap:
    """Drawn time is time."""
    knots = np.array((world[0], max(world[1], world[0] + 1)), dtype=np.int64)
    return TimeMap(knots, knots, Intervals(knots[:0], knots[:0]))


def compressed(busy: Intervals, world: tuple[int, int]) -> TimeMap:
    """Idle time is drawn no longer than busy time, the longest gaps cut to one length: the largest
    L, at least 1 ns, for which the sum of min(gap, L) is at most the busy time. `busy` are disjoint
    intervals in order, inside `world`; the time before the first and after the last counts as
    gaps."""
    edge = np.array(world, dtype=np.int64)
    idle = Intervals(np.append(edge[:1], busy.end_ns), np.append(busy.start_ns, edge[1:]))
    busy_ns = int(busy.length_ns.sum())
    gaps_ns = np.sort(idle.length_ns)
    if not busy_ns or int(gaps_ns.sum()) <= busy_ns:
        return as_it_is(world)
    limit_ns = _limit_ns(gaps_ns, busy_ns)
    cut = idle.take(idle.length_ns > limit_ns)
    if not len(cut):
        return as_it_is(world)
    time_ns = np.unique(np.concatenate((edge, cut.start_ns, cut.end_ns)))
    saved_ns = np.concatenate(([0], np.cumsum(cut.length_ns - limit_ns)))
    before = np.searchsorted(cut.end_ns, time_ns, side="right")
    return TimeMap(time_ns, time_ns - saved_ns[before], cut, limit_ns)


def _limit_ns(gaps_ns: Int64s, most_ns: int) -> int:
    """The largest L, at least 1, with sum(min(gap, L)) <= `most_ns`; gaps are sorted."""
    below_ns = np.concatenate(([0], np.cumsum(gaps_ns)))
    longer = np.arange(len(gaps_ns), 0, -1)
    # With L = gaps[i], the first i gaps keep their length and the others become L.
    used_ns = below_ns[:-1] + gaps_ns * longer
    kept = int(np.searchsorted(used_ns, most_ns, side="right"))
    return max(int(most_ns - below_ns[kept]) // max(len(gaps_ns) - kept, 1), 1)
