"""Typical times at one place of a step, and how far an interruption lies outside of them.

The place of an op is its name and how many ops of that name its step launched on its device before
it. Steps of one kind (`kinds_with_names`) have the same places.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.timing.intervals import upper_median
from decodescope.analyzer.timing.step_annotations import step_kind
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int64s, row_numbers, rows_by

MIN_INTERRUPTION_NS = 100_000
STEP_SHARE = 0.2
OUTLIER_FACTOR, SPREADS = 10, 20
# Fewer instances of a place than these are not compared with each other.
FEW = 3
# As many of a kind are looked at, the longest first.
MOST = 100
RARE_SHARE = 0.1
_COUNTS = re.compile(r"[1-9]\d*")


@dataclass(frozen=True, slots=True, eq=False)
class StepMedians:
    """The kind of each step as a number, the median time of its kind, and that of all steps (0
    without any)."""

    kind: Int64s
    of_step_ns: Int64s
    all_ns: int


class Outlier(NamedTuple):
    """Row `row` of some ops is far above the lower median of the other instances at its place, of
    which there are `other_steps`."""

    row: int
    typical_ns: int
    other_steps: int


def kinds_with_names(timeline: Timeline) -> list[tuple[str, str]]:
    """The kind of each step, and its name with "*" for counts, so that steps with and without
    prefill requests (`…context_0…`) differ. Steps that frames mark have one name for all kinds."""
    names = [timeline.step_name(index) for index in range(len(timeline.steps))]
    uncounted = {name: _COUNTS.sub("*", step_kind(name)) for name in set(names)}
    return [
        (annotation.kind, uncounted[name])
        for annotation, name in zip(timeline.step_annotations, names, strict=True)
    ]


def step_medians(timeline: Timeline) -> StepMedians:
    steps = timeline.steps
    kinds = kinds_with_names(timeline)
    number = {name: index for index, name in enumerate(dict.fromkeys(kinds))}
    kind = np.array([number[name] for name in kinds], dtype=np.int64)
    launched = np.flatnonzero(steps.gpu_ops)
    all_ns = upper_median(steps.time_ns[launched]) if len(launched) else 0
    of_step_ns = np.full(len(steps), all_ns, dtype=np.int64)
    for rows in rows_by(kind[launched]).values():
        of_step_ns[launched[rows]] = upper_median(steps.time_ns[launched[rows]])
    return StepMedians(kind, of_step_ns, all_ns)


def min_interruption_ns(timeline: Timeline, medians: StepMedians, ops: Int64s) -> Int64s:
    """How long a gap before each of `ops` must at least be: 100 µs and 20 % of the median step."""
    of_step_ns = np.append(medians.of_step_ns, medians.all_ns)[timeline.steps.op_step[ops]]
    return np.maximum((of_step_ns * STEP_SHARE).astype(np.int64), MIN_INTERRUPTION_NS)


def is_outside(values_ns: Int64s, typical_ns: Int64s | int, spread_ns: Int64s | int) -> Bools:
    """Whether each value is far above what is typical, in proportion and in spreads."""
    return np.asarray(
        (values_ns > OUTLIER_FACTOR * typical_ns) & (values_ns > typical_ns + SPREADS * spread_ns)
    )


def outside_of_all(values_ns: Int64s, all_ns: Int64s) -> tuple[Bools, int]:
    """Whether each value is far above the upper median of `all_ns`, and this median."""
    typical_ns = upper_median(all_ns)
    return is_outside(values_ns, typical_ns, upper_median(np.abs(all_ns - typical_ns))), typical_ns


def longest(lengths_ns: Int64s, chosen: Bools) -> list[int]:
    """The places of the longest `MOST` chosen lengths, in order."""
    places = np.flatnonzero(chosen)
    order = np.argsort(-lengths_ns[places], kind="stable")[:MOST]
    return sorted(places[order].tolist())


def outliers(
    timeline: Timeline, medians: StepMedians, ops: Int64s, values_ns: Int64s
) -> tuple[list[Outlier], Int64s]:
    """The longest of `ops` whose values are outliers at their place, in order, unless more than two
    instances of the place, and more than 10 %, are; and the rows of the ops with fewer than `FEW`
    instances. `values_ns` has a value for each op of the trace.
    """
    place = _places(timeline, medians.kind, ops)
    placed = np.flatnonzero(place >= 0)
    placed = placed[np.lexsort((values_ns[placed], place[placed]))]
    group = row_numbers(place[placed])
    counts = np.bincount(group)
    first, middle = np.cumsum(counts) - counts, counts // 2
    # An outlier is the longest of its place: the lower median of the others is one rank lower.
    typical_ns = values_ns[placed][first + np.maximum(middle - 1, 0)]
    distance_ns = np.abs(values_ns[placed] - typical_ns[group])
    spread_ns = distance_ns[np.lexsort((distance_ns, group))][first + middle]
    # Ops outside of steps are of group -1: the last row, without instances.
    group_of = np.full(len(place), -1, dtype=np.int64)
    group_of[placed] = group
    group = group_of[ops]
    instances, typical_ns, spread_ns = (
        np.append(column, 0)[group] for column in (counts, typical_ns, spread_ns)
    )
    several = instances >= FEW
    outside = is_outside(values_ns[ops], typical_ns, spread_ns) & several
    outside_of = np.bincount(group[outside], minlength=len(counts) + 1)[group]
    outside &= (outside_of < FEW) | (outside_of <= RARE_SHARE * instances)
    return [
        Outlier(row, int(typical_ns[row]), int(instances[row]) - 1)
        for row in longest(values_ns[ops], outside)
    ], np.flatnonzero(~several)


def _places(timeline: Timeline, kind: Int64s, ops: Int64s) -> Int64s:
    """A number for the place of each op of the trace; -1 outside of steps, and for ops whose name
    none of `ops` has."""
    columns, step = timeline.trace.ops, timeline.steps.op_step
    named = np.zeros(len(timeline.trace.names), dtype=np.bool_)
    named[columns.name[ops]] = True
    rows = np.flatnonzero(named[columns.name] & (step >= 0))
    rows = rows[np.lexsort((columns.name[rows], columns.device[rows], step[rows]))]
    device, name = columns.device[rows], columns.name[rows]
    counts = np.bincount(row_numbers(step[rows], device, name))
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.full(len(columns), -1, dtype=np.int64)
    place[rows] = row_numbers(kind[step[rows]], device, name, nth)
    return place
