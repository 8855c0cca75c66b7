"""The figures across ranks: communication split, stragglers, collectives and skew."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import msgspec
import numpy as np

from decodescope.analyzer.collectives.matching import find_groups
from decodescope.analyzer.collectives.operations import Operation, bus_factor, message_bytes
from decodescope.analyzer.collectives.participants import Participant, find_participants
from decodescope.analyzer.collectives.skew import Skew, find_skew
from decodescope.analyzer.collectives.stragglers import Entries, entries, find_straggler
from decodescope.analyzer.collectives.waits import (
    SplitCommunication,
    Waits,
    find_waits,
    own_starts,
    split_communication,
)
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.schema.ranks_report import (
    ClockSource,
    CollectiveReport,
    RankReport,
    SkewReport,
    StepSkew,
    Straggler,
)
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Int64s, Trace

MAX_STEPS = 20


@dataclass(frozen=True, slots=True)
class RankFigures:
    """What `RanksReport` says across ranks; `ranks` are the reports given, completed. `waits` are
    those of the matched collectives of `participants`."""

    ranks: tuple[RankReport, ...]
    clock: ClockSource | None
    straggler: Straggler | None
    no_straggler: str
    collectives: tuple[CollectiveReport, ...]
    skew: SkewReport | None
    findings: tuple[Finding, ...]
    participants: tuple[Participant, ...] = field(compare=False, repr=False)
    waits: tuple[Waits, ...] = field(compare=False, repr=False)


def rank_figures(
    ranks: Sequence[tuple[int, Trace, Steps]], reports: Sequence[RankReport], common_clock: bool
) -> RankFigures:
    """Compute them. `reports` has a report for each of `ranks`, `common_clock` says whether the
    wall clocks of the traces are one."""
    operations, participants = find_participants(ranks)
    groups = find_groups(participants, operations, common_clock)
    waits = [find_waits(group, common_clock) for group in groups]
    matched = [one for one in waits if len(one.own_ns)]
    by_durations = any(one.by_durations for one in matched)
    found = entries(len(participants), matched)

    starts = own_starts(participants, matched)
    parts = [split_communication(one, own) for one, own in zip(participants, starts, strict=True)]
    straggler, why_none = _straggler(participants, found, parts)
    clocks = _clocks(len(participants), matched)
    skew = find_skew(ranks, participants, groups, by_durations, common_clock)
    completed = []
    for report in reports:
        mine = [place for place, one in enumerate(participants) if one.rank == report.rank]
        completed.append(_completed(report, mine, parts, found, clocks))
    return RankFigures(
        ranks=tuple(completed),
        clock=_clock_source(by_durations) if matched else None,
        straggler=straggler,
        no_straggler=why_none,
        collectives=_collectives(operations, participants, waits),
        skew=None if skew is None else _skew_report(skew, _first_op_ns(ranks)),
        findings=tuple(_findings(matched, participants, common_clock)),
        participants=tuple(participants),
        waits=tuple(matched),
    )


def _clock_source(by_durations: bool) -> ClockSource:
    return "durations" if by_durations else "common"


def _completed(
    report: RankReport,
    mine: Sequence[int],
    parts: Sequence[SplitCommunication],
    found: Sequence[Entries],
    clocks: Sequence[int | None],
) -> RankReport:
    """The report of a rank with the sums over its devices."""
    sums = {
        one.name: sum(getattr(parts[place], one.name) for place in mine)
        for one in fields(SplitCommunication)
    }
    late = [found[place].late_ns for place in mine]
    return msgspec.structs.replace(
        report,
        communication_ns=sums["own_ns"] + sums["waiting_ns"] + sums["unsplit_ns"],
        communication_own_ns=sums["own_ns"],
        communication_waiting_ns=sums["waiting_ns"],
        communication_unsplit_ns=sums["unsplit_ns"],
        exposed_own_ns=sums["exposed_own_ns"],
        exposed_waiting_ns=sums["exposed_waiting_ns"],
        exposed_unsplit_ns=sums["exposed_unsplit_ns"],
        collectives=sum(found[place].collectives for place in mine),
        last_entries=sum(found[place].last for place in mine),
        caused_waiting_ns=sum(found[place].caused_ns for place in mine),
        lateness_ns=percentiles(np.concatenate([*late, np.zeros(0, dtype=np.int64)])),
        clock_offset_ns=next((clocks[place] for place in mine if clocks[place] is not None), None),
    )


def _straggler(
    participants: Sequence[Participant],
    found: Sequence[Entries],
    parts: Sequence[SplitCommunication],
) -> tuple[Straggler | None, str]:
    """The straggler, its cost as a share of the median window of the devices; else why none."""
    windows = [int(one.ops.end_ns.max() - one.ops.start_ns[0]) for one in participants]
    window_ns = int(np.median(windows)) if windows else 0
    shared = [one.own_ns + one.waiting_ns + one.unsplit_ns for one in parts]
    number, why_none = find_straggler(found, int(np.median(shared)) if shared else 0)
    if number is None:
        return None, why_none
    one = found[number]
    return (
        Straggler(
            rank=participants[number].rank,
            collectives=one.collectives,
            last_entries=one.last,
            even_entries=one.even,
            caused_waiting_ns=one.caused_ns,
            cost_ns=one.cost_ns,
            cost_share=one.cost_ns / window_ns if window_ns else 0.0,
        ),
        "",
    )


def _clocks(participants: int, waits: Sequence[Waits]) -> list[int | None]:
    """Of each participant, its clock's offset in the group with the most collectives."""
    clocks: list[int | None] = [None] * participants
    for one in sorted(waits, key=lambda one: len(one.own_ns)):
        for member, clock_ns in zip(one.group.members, one.group.clock_ns.tolist(), strict=True):
            clocks[member] = clock_ns
    return clocks


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


def _collectives(
    operations: Sequence[Operation], participants: Sequence[Participant], waits: Sequence[Waits]
) -> tuple[CollectiveReport, ...]:
    rows = []
    for place, operation in enumerate(operations):
        users = [number for number, one in enumerate(participants) if place in one.operation]
        mine = [one for one in waits if one.group.operation == operation]
        grouped = {number for one in mine for number in one.group.members}
        for one in mine:
            rows.append(_collective(operation, place, participants, one.group.members, one))
        if alone := [number for number in users if number not in grouped]:
            rows.append(_collective(operation, place, participants, alone, None))
    rows.sort(key=lambda row: (-row.total_ns, row.operation, row.kind, row.ranks))
    return tuple(rows)


def _collective(
    operation: Operation,
    place: int,
    participants: Sequence[Participant],
    members: Sequence[int],
    waits: Waits | None,
) -> CollectiveReport:
    lengths = []
    for number in members:
        one = participants[number]
        lengths.append(one.times(np.flatnonzero(one.operation == place)).length_ns)
    matched = 0 if waits is None else len(waits.own_ns)
    message_bytes, bus_bytes_per_s = _bandwidth(operation, participants, waits)
    return CollectiveReport(
        operation=operation.name,
        kind=operation.kind,
        ranks=tuple(sorted({participants[number].rank for number in members})),
        matched=matched,
        unmatched=sum(map(len, lengths)) - matched * len(members),
        total_ns=int(sum(int(length.sum()) for length in lengths)),
        own_ns=None if waits is None else percentiles(waits.own_ns),
        waiting_ns=None if waits is None else percentiles(waits.waiting_ns.ravel()),
        clock=None if waits is None or not matched else _clock_source(waits.by_durations),
        group=operation.group,
        message_bytes=message_bytes,
        bus_bytes_per_s=bus_bytes_per_s,
    )


def _bandwidth(
    operation: Operation, participants: Sequence[Participant], waits: Waits | None
) -> tuple[int | None, float | None]:
    """The median size of the matched messages and the median of their bus bandwidth."""
    if waits is None:
        return None, None
    group = waits.group
    given = participants[group.members[0]].bytes[group.op[0]]
    size = message_bytes(operation.name, given, len(group.members))
    known = (size > 0) & (waits.own_ns > 0)
    factor = bus_factor(operation.name, len(group.members))
    if not known.any() or factor is None:
        return None, None
    rates = size[known] / waits.own_ns[known] * 1e9 * factor
    return int(np.median(size[known])), float(np.median(rates))


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
