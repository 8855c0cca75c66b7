"""The figures across ranks: who waits for whom, and the skew of their steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from decodescope.analyzer.collectives.participants import Participant, find_participants
from decodescope.analyzer.collectives.skew import find_skew, rank_steps
from decodescope.analyzer.collectives.waits import Waits
from decodescope.analyzer.reports.waiting import skew_report, waiting_figures
from decodescope.analyzer.schema.ranks_report import RankReport
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.waiting_report import (
    ClockSource,
    CollectiveReport,
    SkewReport,
    Straggler,
)
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Trace


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
    spans = [rank_steps(*one) for one in ranks]
    skew = find_skew(spans, participants, found.groups, found.by_durations, common_clock)
    return RankFigures(
        ranks=tuple(msgspec.structs.replace(one, **found.of_rank(one.rank)) for one in reports),
        clock=found.clock,
        straggler=found.straggler,
        no_straggler=found.no_straggler,
        collectives=found.collectives,
        skew=None if skew is None else skew_report(skew, _first_op_ns(ranks)),
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
            "waits are found from durations, and times across ranks are off by that much",
        )
    ]


def _first_op_ns(ranks: Sequence[tuple[int, Trace, Steps]]) -> int:
    """When the first op of all ranks began, on the wall clock."""
    began = (trace.base_ns + int(trace.ops.start_ns[0]) for _, trace, _ in ranks if len(trace.ops))
    return min(began, default=0)
