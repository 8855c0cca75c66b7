"""How far apart the ranks are in each step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from decodescope.analyzer.collectives.matching import Group, Int64Table
from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Bools, Int64s, Trace


@dataclass(frozen=True, slots=True, eq=False)
class RankSteps:
    """The GPU spans of one rank's steps on the wall clock. Steps without ops have no span, `used`
    is False for them."""

    rank: int
    start_ns: Int64s
    end_ns: Int64s
    used: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Skew:
    """The steps that all of `ranks` recorded: `index` of each on the first of them, and its start
    and end on all, int64 [ranks, steps], on one clock; `comparable` is False where there is none,
    and only the lengths compare."""

    ranks: tuple[int, ...]
    index: Int64s
    start_ns: Int64Table
    end_ns: Int64Table
    comparable: bool

    @property
    def start_spread_ns(self) -> Int64s:
        """Last start - first start of each step."""
        return _spread(self.start_ns)

    @property
    def end_spread_ns(self) -> Int64s:
        """Last end - first end."""
        return _spread(self.end_ns)

    @property
    def length_spread_ns(self) -> Int64s:
        """Longest - shortest GPU span."""
        return _spread(self.end_ns - self.start_ns)


def _spread(times_ns: Int64Table) -> Int64s:
    spread: Int64s = times_ns.max(axis=0) - times_ns.min(axis=0)
    return spread


def rank_steps(rank: int, trace: Trace, steps: Steps) -> RankSteps:
    """The steps of one rank's trace."""
    start_ns, end_ns = steps.span.start_ns + trace.base_ns, steps.span.end_ns + trace.base_ns
    return RankSteps(rank, start_ns, end_ns, steps.gpu_ops > 0)


def steps_by_device(
    trace: Trace, steps: Steps, participants: Sequence[Participant]
) -> tuple[list[RankSteps], list[Participant]]:
    """The steps of each participant's device, as if it were a rank with the steps that launched
    most of their ops to it; and the participants, whose steps are numbered in these."""
    every = rank_steps(0, trace, steps)
    spans, renumbered = [], []
    for participant in participants:
        step_indices = np.flatnonzero((steps.device == participant.device) & every.used)
        number = np.full(len(steps) + 1, -1, dtype=np.int64)
        number[step_indices] = np.arange(len(step_indices))
        own = RankSteps(
            participant.rank,
            every.start_ns[step_indices],
            every.end_ns[step_indices],
            every.used[step_indices],
        )
        spans.append(own)
        renumbered.append(replace(participant, step=number[participant.step]))
    return spans, renumbered


def find_skew(
    spans: Sequence[RankSteps],
    participants: Sequence[Participant],
    groups: Sequence[Group],
    by_durations: bool,
    common_clock: bool,
) -> Skew | None:
    """The skew over the steps of the largest group (of equally large ones, with the most
    collectives). `spans` are the steps of each rank.

    A step of one rank is that of another in which most of their matched collectives are. Without
    collectives, steps are matched in order if all ranks have equally many. `by_durations` takes the
    differences of the clocks off. None if no step is matched.
    """
    largest = max(groups, key=lambda group: (len(group.members), group.op.shape[1]), default=None)
    if largest is None:
        if len({len(rank_span.start_ns) for rank_span in spans}) > 1 or len(spans) < 2:
            return None
        return _skew(spans, [0] * len(spans), common_clock)
    of_rank = {rank_span.rank: rank_span for rank_span in spans}
    chosen: list[RankSteps] = []
    offsets = []
    first = _steps_of(participants, largest, 0)
    for member, number in enumerate(largest.members):
        rank = participants[number].rank
        offset = _offset(first, _steps_of(participants, largest, member))
        if offset is not None and rank not in [rank_span.rank for rank_span in chosen]:
            clock_ns = int(largest.clock_ns[member]) if by_durations else 0
            own = of_rank[rank]
            chosen.append(
                replace(own, start_ns=own.start_ns - clock_ns, end_ns=own.end_ns - clock_ns)
            )
            offsets.append(offset)
    return _skew(chosen, offsets, True) if len(chosen) > 1 else None


def _steps_of(participants: Sequence[Participant], group: Group, member: int) -> Int64s:
    step: Int64s = participants[group.members[member]].step[group.op[member]]
    return step


def _offset(first: Int64s, other: Int64s) -> int | None:
    """The most frequent (step of the first member - step of this one), None without any."""
    both = (first >= 0) & (other >= 0)
    if not both.any():
        return None
    values, counts = np.unique((first - other)[both], return_counts=True)
    return int(values[counts.argmax()])


def _skew(spans: Sequence[RankSteps], offsets: Sequence[int], comparable: bool) -> Skew | None:
    """The steps that every rank has; step i of the first rank is step i - offset of another."""
    index = np.arange(len(spans[0].start_ns)) + offsets[0]
    rows = [index - offset for offset in offsets]
    kept = np.ones(len(index), dtype=np.bool_)
    for rank_span, row in zip(spans, rows, strict=True):
        inside = (row >= 0) & (row < len(rank_span.start_ns))
        kept &= inside
        kept[inside] &= rank_span.used[row[inside]]
    if not kept.any():
        return None
    starts = [rank_span.start_ns[row[kept]] for rank_span, row in zip(spans, rows, strict=True)]
    ends = [rank_span.end_ns[row[kept]] for rank_span, row in zip(spans, rows, strict=True)]
    return Skew(
        tuple(rank_span.rank for rank_span in spans),
        rows[0][kept],
        np.array(starts),
        np.array(ends),
        comparable,
    )
