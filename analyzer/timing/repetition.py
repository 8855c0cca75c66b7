"""Exact repetition in a sequence of names: which stretches repeat, and with what period.

A stretch [start, end) repeats with period p if names[i] == names[i + p] wherever both are inside.
It is a run if it cannot be made longer on either side and holds at least two periods, and p is
primitive: the smallest period that it has.

Method: prefix doubling. For k = 1, 2, 4, …, each position gets the rank of the k names that begin
there (equal names, equal rank), from the ranks of its two halves. The same sort gives each position
the distance to its next occurrence. With k the smallest power of two >= p, that distance is p
exactly from a run's first position to the last one from which k names are left before the last
period; so the stretches of one distance are the runs of at least p + k names. Shorter ones pass
through a stretch of distance p for k / 2, and the ranks for all smaller k say in log k comparisons
how far they reach. Time O(n log² n), memory O(n log n).
"""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.trace import Bools, Int64s


@dataclass(frozen=True, slots=True)
class Run:
    """The stretch [start, end) of a sequence, which repeats with the primitive period `period`."""

    start: int
    end: int
    period: int

    def __len__(self) -> int:
        return self.end - self.start


def maximal_runs(names: Int64s, *, min_repeats: int = 2) -> tuple[Run, ...]:
    """The runs of `names` (any integers) of at least `min_repeats` periods, longest first.

    A run is a stretch [start, end) with names[i] == names[i + period] for start <= i < end - period
    that cannot be extended, of length >= min_repeats * period, whose period is primitive. Runs of
    equal length stand in order of period, then of start. All runs of at least 3 periods are found.
    A shorter one is missed if each of its stretches of k names (k the largest power of two below
    the period) occurs twice within one period.
    """
    length, ranks, runs = 1, [], [np.zeros((0, 3), dtype=np.int64)]
    rank, distance = _ranked(names)
    # If no distance exceeds k / 2, neither does the period of a run that is not found yet: by Fine
    # and Wilf's theorem, its stretches of k names would give the whole run one shorter period.
    while (2 * distance > length).any():
        ranks.append(rank)
        runs += [_long_runs(distance, length), _short_runs(ranks, distance, length)]
        if length * min_repeats >= 2 * len(names) or len(rank) <= length:
            break
        pairs = rank[:-length] * (int(rank.max()) + 1) + rank[length:]
        rank, distance = _ranked(pairs)
        length *= 2
    start, end, period = np.concatenate(runs).T
    enough = np.flatnonzero(end - start >= min_repeats * period)
    ordered = enough[np.lexsort((start[enough], period[enough], (start - end)[enough]))]
    return tuple(Run(*row) for row in np.column_stack((start, end, period))[ordered].tolist())


def _ranked(keys: Int64s) -> tuple[Int64s, Int64s]:
    """The rank of each key, and the distance to the next equal key, 0 if there is none."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    differs = in_order[1:] != in_order[:-1]
    rank, distance = np.zeros((2, len(keys)), dtype=np.int64)
    rank[order[1:]] = np.cumsum(differs)
    distance[order[:-1]] = np.where(differs, 0, np.diff(order))
    return rank, distance


def _stretches(distance: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    opens = np.flatnonzero(np.diff(distance, prepend=-1))
    return opens, np.append(opens[1:], len(distance)), distance[opens]


def _long_runs(distance: Int64s, length: int) -> Int64s:
    """[runs, 3]: the runs with length / 2 < period <= length of at least period + length names."""
    first, after, period = _stretches(distance)
    rows = np.column_stack((first, after - 1 + length + period, period))
    return rows[(2 * period > length) & (period <= length)]


def _short_runs(ranks: list[Int64s], distance: Int64s, length: int) -> Int64s:
    """[runs, 3]: the runs with length < period <= 2 * length of less than period + 2 * length
    names, found from `distance`, that of stretches of `length` names; `ranks` are those of 1, 2, …,
    `length` names."""
    first, after, period = _stretches(distance)
    near = (period > length) & (period <= 2 * length)
    start, end, period = first[near], (after - 1 + length)[near] + period[near], period[near]
    for level in reversed(range(len(ranks))):
        rank, step = ranks[level], 1 << level
        end += step * _equal(rank, end - period, end)
        start -= step * _equal(rank, start - step, start - step + period)
    complete = (end - start >= 2 * period) & (end - start < period + 2 * length)
    return np.unique(np.column_stack((start, end, period))[complete], axis=0)


def _equal(rank: Int64s, first: Int64s, other: Int64s) -> Bools:
    """Whether the ranks at the positions `first` and, further on, `other` exist and are equal."""
    inside = (first >= 0) & (other < len(rank))
    inside[inside] = rank[first[inside]] == rank[other[inside]]
    return inside
