"""What is usual at one place of a step: the median and spread over the step's instances.

The place of an op is its name and how many ops of that name its step launched on its device before
it. Steps of one kind (`kinds_by_name`) have the same places.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.timing.step_annotations import step_kind
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Columns, Int64s

_COUNTS = re.compile(r"[1-9]\d*")


@dataclass(frozen=True, slots=True, eq=False)
class Habit(Columns):
    """For each of some ops: the upper median over the instances of its place, the median distance
    from it, how many instances there are (0 for an op outside of steps), and a number for the
    place."""

    typical_ns: Int64s
    spread_ns: Int64s
    instances: Int64s
    place: Int64s


def kinds_by_name(timeline: Timeline) -> list[str]:
    """The kind of each step: its name with "*" for counts, so that steps with and without prefill
    requests (`…context_0…`) are of different kinds."""
    names = [timeline.step_name(index) for index in range(len(timeline.steps))]
    kinds = {name: _COUNTS.sub("*", step_kind(name)) for name in set(names)}
    return [kinds[name] for name in names]


def numbered(*keys: NDArray[np.integer]) -> Int64s:
    """For sorted rows of keys, the number of each row's group: 0, 0, 1, …"""
    number = np.zeros(len(keys[0]), dtype=np.int64)
    if len(number):
        changes = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        np.cumsum(changes, out=number[1:])
    return number


def upper_median(values: Int64s) -> int:
    """The median of at least one value; of an even number of them, the larger of the two."""
    middle = len(values) // 2
    return int(np.partition(values, middle)[middle])


def habits(timeline: Timeline, kind: Int64s, ops: Int64s, values_ns: Int64s) -> Habit:
    """The habit at the place of each of `ops`; `values_ns` has a value for each op of the trace,
    `kind` numbers the kind of each step."""
    place = _places(timeline, kind, ops)
    rows = np.flatnonzero(place >= 0)
    rows = rows[np.lexsort((values_ns[rows], place[rows]))]
    group = numbered(place[rows])
    counts = np.bincount(group)
    middle = np.cumsum(counts) - counts + counts // 2
    typical_ns = values_ns[rows][middle]
    distance_ns = np.abs(values_ns[rows] - typical_ns[group])
    spread_ns = distance_ns[np.lexsort((distance_ns, group))][middle]
    group_of = np.full(len(place), -1, dtype=np.int64)
    group_of[rows] = group
    found = group_of[ops]
    known = found >= 0
    return Habit(
        typical_ns=_chosen(typical_ns, found, known),
        spread_ns=_chosen(spread_ns, found, known),
        instances=_chosen(counts, found, known),
        place=found,
    )


def _chosen(values: Int64s, index: Int64s, known: Bools) -> Int64s:
    result = np.zeros(len(index), dtype=np.int64)
    result[known] = values[index[known]]
    return result


def _places(timeline: Timeline, kind: Int64s, ops: Int64s) -> Int64s:
    """A number for the place of each op of the trace; -1 outside of steps, and for ops whose name
    none of `ops` has."""
    columns, step = timeline.trace.ops, timeline.steps.op_step
    named = np.zeros(len(timeline.trace.names), dtype=np.bool_)
    named[columns.name[ops]] = True
    rows = np.flatnonzero(named[columns.name] & (step >= 0))
    rows = rows[np.lexsort((columns.name[rows], columns.device[rows], step[rows]))]
    of_name = numbered(step[rows], columns.device[rows], columns.name[rows])
    counts = np.bincount(of_name)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = (kind[step[rows]], columns.device[rows], columns.name[rows], nth)
    order = np.lexsort(keys)
    place = np.full(len(columns), -1, dtype=np.int64)
    place[rows[order]] = numbered(*(key[order] for key in keys))
    return place
