"""How far apart the ranks are in each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from decodescope.analyzer.collectives.groups import MatchedCollectives
from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.schema.communication_report import SkewReport, StepSkew
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Bools, Intervals, Trace

MAX_STEPS = 20


@dataclass(frozen=True, slots=True, eq=False)
class RankSteps(Intervals):
    """The GPU spans of one rank's steps on the wall clock. Steps without ops have no span, `used`
    is False for them."""

    used: Bools


def rank_steps(trace: Trace, steps: Steps) -> RankSteps:
    start_ns, end_ns = steps.span.start_ns + trace.base_ns, steps.span.end_ns + trace.base_ns
    return RankSteps(start_ns, end_ns, steps.gpu_ops > 0)


def steps_by_device(
    trace: Trace, steps: Steps, participants: Sequence[Participant]
) -> tuple[dict[int, RankSteps], list[Participant]]:
    """The steps that launched most of their ops to each participant's device, as if that were a
    rank; and these ranks, whose steps are numbered in these."""
    every = rank_steps(trace, steps)
    spans, ranks = {}, []
    for participant in participants:
        step_indices = np.flatnonzero((steps.device == participant.device) & every.used)
        number = np.full(len(steps) + 1, -1, dtype=np.int64)
        number[step_indices] = np.arange(len(step_indices))
        spans[participant.device] = every.take(step_indices)
        collectives = participant.collectives
        collectives = replace(collectives, step=number[collectives.step])
        ranks.append(replace(participant, rank=participant.device, collectives=collectives))
    return spans, ranks


def skew_report(
    matched: MatchedCollectives,
    spans: Mapping[int, RankSteps],
    *,
    common_clock: bool,
    first_op_ns: int,
) -> SkewReport | None:
    """The skew over the steps of the largest group (of equally large ones, with the most
    collectives). `spans` are the steps of each rank, `first_op_ns` is when the first op began, on
    the wall clock.

    A step of one rank is that of another in which most of their matched collectives are. Without
    collectives, steps are matched in order if all ranks have equally many. If waits are found from
    durations, the differences of the clocks are taken off. None if no step is matched.
    """
    participants, by_durations = matched.participants, matched.by_durations
    largest = max(
        matched.groups, key=lambda group: (len(group.members), group.op.shape[1]), default=None
    )
    if largest is None:
        if len({len(steps) for steps in spans.values()}) > 1 or len(spans) < 2:
            return None
        return _report(spans, dict.fromkeys(spans, 0), common_clock, first_op_ns)
    chosen: dict[int, RankSteps] = {}
    offsets = {}
    first = participants[largest.members[0]].collectives.step[largest.op[0]]
    for number, op, clock_ns in zip(largest.members, largest.op, largest.clock_ns, strict=True):
        rank, step = participants[number].rank, participants[number].collectives.step[op]
        both = (first >= 0) & (step >= 0)
        if both.any() and rank not in chosen:
            apart, counts = np.unique((first - step)[both], return_counts=True)
            offsets[rank] = int(apart[counts.argmax()])
            ahead_ns, steps = int(clock_ns) if by_durations else 0, spans[rank]
            chosen[rank] = replace(
                steps, start_ns=steps.start_ns - ahead_ns, end_ns=steps.end_ns - ahead_ns
            )
    return _report(chosen, offsets, True, first_op_ns) if len(chosen) > 1 else None


def _report(
    spans: Mapping[int, RankSteps], offsets: Mapping[int, int], comparable: bool, first_op_ns: int
) -> SkewReport | None:
    """The skew of the steps that every rank has; step i of the first rank is step i - offset of
    another. `comparable` is False where there is no common clock, and only lengths compare."""
    ranks = tuple(spans)
    index = np.arange(len(spans[ranks[0]])) + offsets[ranks[0]]
    kept = np.ones(len(index), dtype=np.bool_)
    for rank, steps in spans.items():
        row = index - offsets[rank]
        inside = (row >= 0) & (row < len(steps))
        kept &= inside
        kept[inside] &= steps.used[row[inside]]
    if not kept.any():
        return None
    index = index[kept]
    matched = [steps.take(index - offsets[rank]) for rank, steps in spans.items()]
    start_ns = np.array([steps.start_ns for steps in matched])
    end_ns = np.array([steps.end_ns for steps in matched])
    start_spread_ns, end_spread_ns = np.ptp(start_ns, axis=0), np.ptp(end_ns, axis=0)
    duration_spread_ns = np.ptp(end_ns - start_ns, axis=0)
    key_ns = start_spread_ns if comparable else duration_spread_ns
    worst = np.sort(np.argsort(-key_ns, kind="stable")[:MAX_STEPS])
    began_ns, ended_ns = start_ns.min(axis=0), end_ns.max(axis=0)
    starts_last, ends_last = start_ns.argmax(axis=0), end_ns.argmax(axis=0)
    counts = np.bincount(starts_last[start_spread_ns > 0], minlength=len(ranks)).tolist()

    def on_clock(time_ns: np.int64) -> int | None:
        return int(time_ns) if comparable else None

    return SkewReport(
        ranks=ranks,
        steps=len(index),
        start_spread_ns=percentiles(start_spread_ns) if comparable else None,
        end_spread_ns=percentiles(end_spread_ns) if comparable else None,
        duration_spread_ns=percentiles(duration_spread_ns),
        last_to_start={
            rank: count for rank, count in zip(ranks, counts, strict=True) if count and comparable
        },
        worst=tuple(
            StepSkew(
                index=int(index[step] - offsets[ranks[0]]),
                start_spread_ns=on_clock(start_spread_ns[step]),
                end_spread_ns=on_clock(end_spread_ns[step]),
                duration_spread_ns=int(duration_spread_ns[step]),
                last_to_start=ranks[starts_last[step]]
                if comparable and start_spread_ns[step]
                else None,
                last_to_end=ranks[ends_last[step]] if comparable and end_spread_ns[step] else None,
                at_ns=on_clock(began_ns[step] - first_op_ns),
                length_ns=on_clock(ended_ns[step] - began_ns[step]),
            )
            for step in worst.tolist()
        ),
    )
