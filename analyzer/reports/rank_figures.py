"""The figures across ranks: who waits for whom, and the skew of their steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from decodescope.analyzer.collectives.participants import Participant, find_participants
from decodescope.analyzer.collectives.skew import Skew, find_skew
from decodescope.analyzer.collectives.waits import Waits
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.reports.waiting import waiting_figures
from decodescope.analyzer.schema.ranks_report import RankReport, SkewReport, StepSkew
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.waiting_report import ClockSource, CollectiveReport, Straggler
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Int64s, Trace

MAX_STEPS = 20


@dataclass(frozen=True, slots=True)
class RankFigures:
    """What `RanksReport` says across ranks; `ranks` are the reports given, completed."""

    ranks: tuple[RankReport, ...]
    clock: ClockSource | None
    straggler: Straggler | None
    no_straggler: str
    collectives: tuple[CollectiveReport, ...]
    skew: SkewReport | None
    findings: tuple[Finding, ...]


def rank_figures(
    ranks: Sequence[tuple[int, Trace, Steps]], reports: Sequence[RankReport], common_clock: bool
) -> RankFigures:
    """Compute them. `reports` has a report for each of `ranks`, `common_clock` says whether the
    wall clocks of the traces are one."""
    operations, participants = find_participants(ranks)
    found = waiting_figures(operations, participants, common_clock)
    skew = find_skew(ranks, participants, found.groups, found.by_durations, common_clock)
    return RankFigures(
        ranks=tuple(msgspec.structs.replace(one, **found.of_rank(one.rank)) for one in reports),
        clock=found.clock,
        straggler=found.straggler,
        no_straggler=found.no_straggler,
        collectives=found.collectives,
        skew=None if skew is None else _skew_report(skew, _first_op_ns(ranks)),
        findings=tuple(_findings(found.waits, participants, common_clock)),
    )


def _findings(
    waits: Sequence[Waits], participants: Sequence[Participant], common_clock: bool
) -> list[Finding]:
    """Clocks that share a base, and yet disagree by more than a transfer takes."""
    apart = [one for one in waits if common_clock and one.by_durations]
    if not apart:
        return []
    group = max((one.group for one in apart), key=lambda group: int(np.ptp(group.clock_ns)))
    first, last = int(group.clock_ns.argmin()), int(group.clock_ns.argmax())
    ranks = [participants[group.members[place]].rank for place in (last, first)]
    ahead_ns = int(np.ptp(group.clock_ns))
    return [
        Finding(
            "clocks_apart",
            f"by the ends of their collectives, the clock of rank {ranks[0]} is "
            f"{ahead_ns / 1e3:.1f} µs ahead of rank {ranks[1]}'s, longer than a transfer takes; "
            "waiting is found from durations, and times across ranks are off by that much",
        )
    ]


def _first_op_ns(ranks: Sequence[tuple[int, Trace, Steps]]) -> int:
    """When the first op of all ranks began, on the wall clock."""
    began = (trace.base_ns + int(trace.ops.start_ns[0]) for _, trace, _ in ranks if len(trace.ops))
    return min(began, default=0)


def _skew_report(skew: Skew, first_op_ns: int) -> SkewReport:
    start_ns, end_ns, length_ns = skew.start_spread_ns, skew.end_spread_ns, skew.length_spread_ns
    key_ns = start_ns if skew.comparable else length_ns
    worst = np.sort(np.argsort(-key_ns, kind="stable")[:MAX_STEPS])
    began_ns, ended_ns = skew.start_ns.min(axis=0), skew.end_ns.max(axis=0)
    last_to_start, last_to_end = skew.start_ns.argmax(axis=0), skew.end_ns.argmax(axis=0)
    counts = np.bincount(last_to_start[start_ns > 0], minlength=len(skew.ranks)).tolist()
    return SkewReport(
        ranks=skew.ranks,
        steps=len(skew.index),
        start_spread_ns=percentiles(start_ns) if skew.comparable else None,
        end_spread_ns=percentiles(end_ns) if skew.comparable else None,
        duration_spread_ns=percentiles(length_ns),
        last_to_start={
            rank: count
            for rank, count in zip(skew.ranks, counts, strict=True)
            if count and skew.comparable
        },
        worst=tuple(
            StepSkew(
                index=int(skew.index[step]),
                start_spread_ns=_value(start_ns, step, skew.comparable),
                end_spread_ns=_value(end_ns, step, skew.comparable),
                duration_spread_ns=int(length_ns[step]),
                last_to_start=_rank(skew, last_to_start, start_ns, step),
                last_to_end=_rank(skew, last_to_end, end_ns, step),
                at_ns=_value(began_ns - first_op_ns, step, skew.comparable),
                length_ns=_value(ended_ns - began_ns, step, skew.comparable),
            )
            for step in worst.tolist()
        ),
    )


def _value(values_ns: Int64s, step: int, known: bool) -> int | None:
    return int(values_ns[step]) if known else None


def _rank(skew: Skew, last: Int64s, spread_ns: Int64s, step: int) -> int | None:
    """The rank that was last, None if all were at once or there is no common clock."""
    return skew.ranks[int(last[step])] if skew.comparable and spread_ns[step] else None
